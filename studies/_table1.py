r"""Table 1 of arXiv:2207.08347: what is printed, and explicit lower bounds beside it.

The Lipschitz constant is 1 and the domain has radius 1 about its center: D = 2.

Lower bounds are those of the cube |x_j| <= r = d^{-1/p} inside the l_p ball, for every
method that is t-GDP when one record is replaced: no such method has a smaller worst
case on all sets of l_p diameter 2. Rows are X_ij = d^{-1/q} (+-1), q = p/(p-1), signs
independent with means P_j uniform on [-a, a]. The score of P_j is sum_i Z_ij/(1 -
P_j^2) with Z_ij = +-1 - P_j, so integration by parts gives for x = M(X), w_j = (a^2 -
P_j^2)/(1 - P_j^2),

    sum_i E <w Z_i, x> = E sum_j (a^2 - P_j^2) d E[x_j | P]/dP_j = 2 E <P, x>.

Were record i another one, its term would be 0. The chi-square divergence between the
two laws of x is at most c^2 = e^{t^2} - 1, and E <w Z_i, x>^2 <= a^4 |x|_2^2 <=
a^4 r^2 d. So m records allow E <P, x> <= m c a^2 r sqrt(d)/2, while the best point
has E r |P|_1 = a r d/2. In units of d^{-1/q} r d = 1:

* population: excess >= a/2 - n c a^2/(2 sqrt(d)), for every a <= 1;
* empirical, m of the n rows not 0 and a = 1: <P, x> and the mean of the Z_i differ by
  at most c r sqrt(d) more, so excess >= (m/n) (1/2 - m c/(2 sqrt(d)) - c/sqrt(d)).

Without privacy (Assouad) the rows are +-e_J, J uniform on K coordinates, with K = d for
p >= 2 and K = 1 for p < 2, signs of bias b towards an unknown direction in each:
excess >= K^{-1/p} b (1 - TV), TV^2 <= (n/K) b log((1+b)/(1-b))/2 (Pinsker).
"""

import math

import numpy as np


def printed_bound(params, *, dim, width, epsilon, delta):
    """Corollaries 2 to 5: ``dim`` parameters, ``width`` of them in a norm."""
    p, n = params["p"], params["n"]
    if p == 1.0:
        scale = 6.0 * math.sqrt(math.log(width))
    elif p <= 2.0:
        scale = 2.0 / math.sqrt(p - 1.0)
    else:
        scale = 2.0 * width ** (0.5 - 1.0 / p)
    rate = math.sqrt(-dim * math.log(2.0 * delta)) / (n * epsilon)
    if params["risk"] == "population":
        rate += 1.0 / math.sqrt(n)
    return 2.0 * scale * rate


def lower_bound(params, gdp, *, dim, width):
    """Largest of the lower bounds above for a method that is gdp-GDP.

    ``dim`` is d of the bounds with privacy, ``width`` that of the one without.
    """
    n, root = params["n"], math.sqrt(dim)
    shift = math.sqrt(math.expm1(gdp**2))
    if params["risk"] == "empirical":
        rows = max(1, min(n, int((0.5 - shift / root) * root / shift)))
        value = rows / n * (0.5 - (0.5 * rows + 1.0) * shift / root)
        return max(value, 0.0)
    bias = min(1.0, 0.5 * root / (n * shift))
    private = 0.5 * bias - 0.5 * n * shift * bias**2 / root
    return max(private, _statistical(params["p"], n, width))


def _statistical(p, n, width):
    size = width if p >= 2.0 else 1
    biases = np.geomspace(1e-3, 0.99, 400) * min(1.0, math.sqrt(size / n))
    divergence = n / size * biases * np.log((1.0 + biases) / (1.0 - biases))
    values = biases * (1.0 - np.sqrt(0.5 * divergence))
    return float(size ** (-1.0 / p) * values.max())
