"""A plane through a polytope, on which draws are compared."""

from dataclasses import replace

import numpy as np

import dpsample as dps
from tests.support.gibbs_cases import example
from tests.support.localized_laws import LocalCase

L, D = dps.losses, dps.domains


def local(loss, domain, *, entropy=None, gamma=1e-8, **options):
    if loss.name == "smoothed_hinge":  # the same labels as the logistic loss
        plain = example(L.Logistic(), domain, **options)
        plain = replace(plain, loss=loss)
    else:
        plain = example(loss, domain, **options)
    fields = {name: getattr(plain, name) for name in plain.__dataclass_fields__}
    return LocalCase(**fields, entropy=entropy, gamma=gamma)


def sides(angles, at):
    """Polytope with sides through a point, at angles, and a wide box."""
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    eye = np.eye(2)
    bounds = np.concatenate([rows @ np.array(at), np.full(4, 8.0)])
    return D.Polytope(np.vstack([rows, eye, -eye]), bounds)


AT, NEARBY = (0.15, 0.1), (0.6, 0.9)


MILD = 1e-3  # weight that leaves the mode where the losses are least


PLANE = {
    "logistic": local(L.Logistic(), D.WholeSpace(), k=300.0),
    "logistic, cold": local(L.Logistic(), D.WholeSpace(), k=3.0, mu=1.0),
    "huber, narrow": local(L.Huber(0.1), D.WholeSpace(), k=400.0),
    "huber on a ball": local(L.Huber(0.5), D.Ball(3.0), k=500.0),
    "smoothed hinge": local(L.SmoothedHinge(0.3), D.WholeSpace(), k=200.0),
    "power four on a ball": local(L.PowerFour(), D.Ball(2.0), k=200.0),
    "power four on an l_3 ball": local(L.PowerFour(), D.Ball(2.0, p=3.0), k=200.0),
    "p = 1.3": local(L.Logistic(), D.WholeSpace(), k=200.0, mu=0.3, p=1.3),
    "mode on the sphere": local(L.Logistic(), D.Ball(0.4), k=1e3),
    "sphere, off center, offset": local(
        L.Logistic(),
        D.Ball(0.4, center=[0.5, -0.4]),
        k=1e3,
        offset=[0.5, -1.0, 2.0, 0.0, 1.0, -0.3],
    ),
    "box, one side": local(L.Logistic(), D.Box([-5, -5], [5, 0.1]), k=1e3, mu=MILD),
    "box, two sides": local(L.Logistic(), D.Box(-0.1, 0.1), k=2e3),
    "edge": local(L.Squared(), sides([0.6], AT), k=1e3, mu=MILD),
    "corner": local(L.Logistic(), sides([0.4, 1.5], AT), k=1e3, mu=MILD),
    "blunt corner": local(L.Huber(0.5), sides([0.5, 0.8], AT), k=1e3, mu=MILD),
    "side nearby": local(L.Squared(), D.Box([-5, -5], NEARBY), k=200.0, mu=MILD),
    "degenerate corner": local(
        L.Logistic(), sides([-0.2, 0.4, 0.9, 1.5], AT), k=1e3, mu=MILD
    ),
    "twice the same side": local(
        L.Logistic(), sides([0.7, 0.7, -0.2], AT), k=1e3, mu=MILD
    ),
}
