"""The small targets on which exactness is tested, by name."""

import dpsample as dps
from tests.support.gibbs_cases import example

L, D = dps.losses, dps.domains
TRIANGLE = ([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [0.3, 0.6, 0.5])

ONE_DIMENSION = {
    "logistic on a ball around 6, mode on the boundary": example(
        L.Logistic(), D.Ball(1.0, center=[6.0]), dim=1, num_records=4, k=50.0, mu=0.01
    ),
    "logistic on the box [5, 7]": example(
        L.Logistic(), D.Box(5.0, 7.0), dim=1, num_records=4, k=50.0, mu=0.01
    ),
    "hinge": example(L.Hinge(), D.Ball(1.0), dim=1),
    "absolute on the line": example(L.Absolute(), D.WholeSpace(), dim=1),
}
TWO_DIMENSIONS = {
    "logistic on a ball": example(L.Logistic(), D.Ball(1.0)),
    "logistic, mode on the sphere": example(L.Logistic(), D.Ball(0.7), k=100.0),
    "logistic with offset, ball off center": example(
        L.Logistic(),
        D.Ball(0.8, center=[0.5, -0.4]),
        k=40.0,
        offset=[0.5, -1.0, 2.0, 0.0, 1.0, -0.3],
    ),
    "hinge on a ball": example(L.Hinge(), D.Ball(1.0)),
    "hinge on the plane": example(L.Hinge(), D.WholeSpace(), mu=0.3),
    "absolute on a box": example(L.Absolute(), D.Box(-0.5, 1.0), mu=0.3),
    "squared on the plane": example(L.Squared(), D.WholeSpace(), mu=0.3),
    "linear on a box": example(L.Linear(), D.Box(-0.5, 1.0)),
    "hinge, p = 1.2, plane": example(L.Hinge(), D.WholeSpace(), p=1.2, mu=0.3),
    "hinge, p = 1.5, box": example(L.Hinge(), D.Box(-0.5, 1.0), p=1.5),
    "squared, p = 1.5, l_1.5 ball": example(L.Squared(), D.Ball(1.0, p=1.5), p=1.5),
    "quantile, p = 1, l_1 ball": example(L.Quantile(0.3), D.Ball(1.0, p=1.0), p=1.0),
    "hinge, p = 1.2, l_1 ball": example(L.Hinge(), D.Ball(1.0, p=1.0), p=1.2),
    "hinge, p = 1.2, l_1.5 ball off center": example(
        L.Hinge(), D.Ball(1.0, p=1.5, center=[0.3, -0.5]), p=1.2
    ),
    "huber on an l_3 ball": example(L.Huber(0.5), D.Ball(0.7, p=3.0), k=40.0),
    "hinge on a triangle": example(L.Hinge(), D.Polytope(*TRIANGLE), k=10.0),
    "hinge, p = 1.5, triangle": example(L.Hinge(), D.Polytope(*TRIANGLE), p=1.5),
    "logistic on a nuclear-norm ball": example(
        L.Logistic(), D.SchattenBall(1.0, p=1.0, shape=(2, 1)), k=40.0
    ),
    "fourth power on a ball": example(L.PowerFour(), D.Ball(1.0), k=5.0),
}
CASES = ONE_DIMENSION | TWO_DIMENSIONS
