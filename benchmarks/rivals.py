"""Private methods of other papers, in NumPy, to compare `dps.advise` with.

Every method takes a `Task` and a list of generators, and returns a row of coefficients
for each generator. None is tuned, and the ridge of output perturbation minimizes its
bound. The noise is calibrated by the Gaussian differential privacy of the budget, for
rows of norm at most 1. These are simulations: the noise is of doubles, and there is no
certificate.

| method | paper |
|---|---|
| output | Chaudhuri, Monteleoni and Sarwate (2011), Algorithm 1, Gaussian noise |
| pass_glm | Huggins, Adams and Broderick (2017); Kulkarni et al. (2021) |
| noisy_newton | Avella-Medina, Bradshaw and Loh (2023) |
| ftrl | Kairouz et al. (2021), one pass, noise of a binary tree |

Left out are methods that were better than the advised one by 3 % in at most two of 40
to 300 settings: Newton with double noise, the functional mechanism, AdaSSP as
published and TukeyEM. The logistic models of diffprivlib may leave the ball, so that
their risk is not comparable. ``studies/which_method.py`` runs all of these.
"""

from typing import Any, NamedTuple

import numpy as np

import dpsample as dps
from dpsample.optimizers.algorithms.ada_ssp import joint_square
from dpsample.privacy.curves.gaussian import gdp_from_budget
from dpsample.problem.facts import smoothness_or_inf


class Task(NamedTuple):
    """A problem, its budget, and the numbers that the noise is calibrated by."""

    problem: dps.Problem
    budget: dps.Budget
    rows: Any
    labels: Any

    @property
    def radius(self) -> float:
        """Radius of the ball."""
        return float(self.problem.domain.radius)

    @property
    def lipschitz(self) -> float:
        """Largest norm of a record's gradient."""
        return float(self.problem.facts.lipschitz(2.0))

    @property
    def smoothness(self) -> float:
        """Largest curvature of a record's loss, infinity if it has none."""
        return smoothness_or_inf(self.problem.facts)

    @property
    def gdp(self) -> float:
        """Gaussian-DP parameter of the budget."""
        budget = self.budget
        return gdp_from_budget(budget.epsilon, budget.delta)

    @property
    def sensitivity(self) -> float:
        """Largest change of the sum of gradients between neighbors."""
        factor = 1.0 if self.budget.relation == "zero_out" else 2.0
        return factor * self.lipschitz


def normals(generators, *shape):
    """Stack standard normal numbers of all generators."""
    return np.stack([rng.standard_normal(shape) for rng in generators])


def project(points, radius):
    """Project points on the ball."""
    norms = np.linalg.norm(points, axis=-1, keepdims=True)
    return points * np.minimum(1.0, radius / np.maximum(norms, 1e-300))


def symmetric(noise):
    """Return symmetric noise, of unit variance on the diagonal and half beside it."""
    upper = np.triu(noise, 1) / np.sqrt(2.0)
    diagonal = noise * np.eye(noise.shape[-1])
    return upper + np.swapaxes(upper, -1, -2) + diagonal


def slopes(loss, margins, labels, width=0.0):
    """Slopes at the margins; kinks are replaced by slopes that change on a width."""
    if not width:
        return loss.slope(margins, labels)
    ends = [loss.slope(margins + side * width / 2.0, labels) for side in (-1.0, 1.0)]
    kink = loss.kink(labels)
    share = np.clip((margins - kink) / width + 0.5, 0.0, 1.0)
    return ends[0] + share * (ends[1] - ends[0])


def curvatures(loss, margins, labels, width=0.0):
    """Second derivatives at the margins, of the smoothed loss if there is a width."""
    # Differences of slopes have an error of rounding below 1e-10.
    step = width / 100.0 if width else 1e-5
    low, high = (slopes(loss, margins + s * step, labels, width) for s in (-1.0, 1.0))
    return np.maximum(high - low, 0.0) / (2.0 * step)


def ridge_fit(task, ridge):
    """Minimize the risk plus a ridge on the whole space, without privacy."""
    rows, labels, loss = task.rows, task.labels, task.problem.loss
    theta = np.zeros(rows.shape[1])
    widths = (0.0,) if np.isfinite(task.smoothness) else (0.3, 0.03, 0.003)
    for width in widths:
        for _ in range(40):
            margins = rows @ theta
            gradient = rows.T @ slopes(loss, margins, labels, width) / len(labels)
            gradient += ridge * theta
            weights = curvatures(loss, margins, labels, width) / len(labels)
            hessian = (rows * weights[:, None]).T @ rows + ridge * np.eye(len(theta))
            step = np.linalg.solve(hessian, gradient)
            if gradient @ step < 1e-14:
                break
            scale, value = 1.0, loss.value(margins, labels).mean()
            value += 0.5 * ridge * theta @ theta
            while scale > 1e-4:
                point = theta - scale * step
                risk = loss.value(rows @ point, labels).mean()
                if risk + 0.5 * ridge * point @ point < value:
                    break
                scale /= 2.0
            theta = theta - scale * step
    return theta


def output(task, generators):
    """Perturb the minimizer of the risk plus a ridge."""
    n, dim = task.rows.shape
    noise = task.sensitivity / (n * task.gdp)
    radius, beta = task.radius, task.smoothness
    # Both minimize the ridge's bias, ridge M^2/2, plus what the noise adds.
    if np.isfinite(beta):
        ridge = (2.0 * beta * dim * noise**2 / radius**2) ** (1.0 / 3.0)
    else:
        ridge = np.sqrt(2.0 * task.lipschitz * np.sqrt(dim) * noise) / radius
    theta = ridge_fit(task, ridge)
    return project(theta + noise / ridge * normals(generators, dim), radius)


def ball_minimum(matrix, vector, radius, floor):
    """Minimize a parabola on the ball; eigenvalues are raised to the floor."""
    values, axes = np.linalg.eigh(matrix)
    # Eigenvalues below the floor may be noise only.
    values, target, shift = np.maximum(values, floor), axes.T @ vector, 0.0
    if np.linalg.norm(target / values) > radius:
        low, high = 0.0, np.linalg.norm(target) / radius
        for _ in range(60):
            shift = 0.5 * (low + high)
            if np.linalg.norm(target / (values + shift)) > radius:
                low = shift
            else:
                high = shift
    return axes @ (target / (values + shift))


def pass_glm(task, generators, *, reach=4.0):
    """Minimize a parabola for the logistic loss, from noisy second moments.

    The parabola is fitted between the margins -reach and reach.
    """
    rows, labels = task.rows, task.labels
    n, dim = rows.shape
    nodes = reach * np.cos(np.pi * (np.arange(200) + 0.5) / 200)
    _, slope, curvature = np.polynomial.polynomial.polyfit(
        nodes, -np.logaddexp(0.0, -nodes), 2
    )
    unit = np.sqrt(joint_square(0.5, 0.5, task.budget.relation)) / (task.gdp * n)
    stddev = unit / np.sqrt(0.5)
    gram, moment = rows.T @ rows / n, rows.T @ labels / n
    floor = -2.0 * curvature * stddev * np.sqrt(2.0 * dim)
    result = []
    for rng in generators:
        noisy = gram + stddev * symmetric(rng.standard_normal((dim, dim)))
        target = moment + stddev * rng.standard_normal(dim)
        scaled = -2.0 * curvature * noisy, slope * target
        result.append(ball_minimum(*scaled, task.radius, floor))
    return np.array(result)


def noisy_newton(task, generators, *, num_steps=6):
    """Take Newton steps with noise on gradients and on matrices of curvature."""
    rows, labels, loss = task.rows, task.labels, task.problem.loss
    n, dim = rows.shape
    gdp = task.gdp / np.sqrt(2.0 * num_steps)
    of_gradient = task.sensitivity / (n * gdp)
    of_matrix = task.sensitivity / task.lipschitz * task.smoothness / (n * gdp)
    floor = max(of_matrix * np.sqrt(2.0 * dim), 1e-6)
    thetas = np.zeros((len(generators), dim))
    for _ in range(num_steps):
        for k, rng in enumerate(generators):
            margins = rows @ thetas[k]
            gradient = rows.T @ loss.slope(margins, labels) / n
            gradient += of_gradient * rng.standard_normal(dim)
            weights = curvatures(loss, margins, labels) / n
            hessian = (rows * weights[:, None]).T @ rows
            hessian += of_matrix * symmetric(rng.standard_normal((dim, dim)))
            values, axes = np.linalg.eigh(hessian)
            thetas[k] -= axes @ ((axes.T @ gradient) / np.maximum(values, floor))
        thetas = project(thetas, task.radius)
    return thetas


def ftrl(task, generators, *, num_batches=64):
    """Follow the regularized leader in one pass; prefix sums have noise of a tree."""
    rows, labels, loss = task.rows, task.labels, task.problem.loss
    size, dim = len(labels) // num_batches, rows.shape[1]
    depth = num_batches.bit_length()
    stddev = task.sensitivity * np.sqrt(depth) / (size * task.gdp)
    noise_square = stddev**2 * dim * depth / num_batches
    eta = task.radius / np.sqrt(num_batches * (task.lipschitz**2 / 4.0 + noise_square))
    total = np.zeros((len(generators), dim))
    thetas, mean, nodes = total.copy(), total.copy(), {}
    for i in range(1, num_batches + 1):
        part = slice((i - 1) * size, i * size)
        margins = thetas @ rows[part].T
        slope = loss.slope(margins, np.broadcast_to(labels[part], margins.shape))
        total += slope @ rows[part] / size
        noise = np.zeros_like(total)
        for level in range(depth):
            if (i >> level) & 1:
                key = level, i >> level
                if key not in nodes:
                    nodes[key] = stddev * normals(generators, dim)
                noise += nodes[key]
        thetas = project(-eta * (total + noise), task.radius)
        if i > num_batches // 2:
            mean += thetas / (num_batches - num_batches // 2)
    return mean


# Methods by loss. Newton's needs a curvature, and one pass is for kinks.
RIVALS = {
    "logistic": {"pass_glm": pass_glm, "output": output, "noisy_newton": noisy_newton},
    "hinge": {"output": output, "ftrl": ftrl},
    "median": {"output": output, "ftrl": ftrl},
    "quantile 0.9": {"output": output, "ftrl": ftrl},
    "huber": {"output": output, "noisy_newton": noisy_newton},
    "squared": {"output": output, "noisy_newton": noisy_newton},
}
