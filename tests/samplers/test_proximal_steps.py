"""Proximal maps of the penalties, alone and with a ball or a box."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import dpsample as dps
from dpsample.optimizers.algorithms.proximal_sgd import check_domain
from dpsample.optimizers.loop.steps import ProximalStep
from tests.support.gradient_vectors import one_step

WHOLE = dps.domains.WholeSpace()
BALL = dps.domains.Ball(0.8)
CUBE = dps.domains.Ball(0.4, p=np.inf)
BOX = dps.domains.Box([-0.2, -1.0, 0.0, -0.1], [0.5, 0.3, 0.4, 2.0])
SIMPLEX = dps.domains.Simplex()
SIZE = 0.7
LASSO = {"l1": 0.3}
ELASTIC = {"l1": 0.3, "l2": 0.9}
RIDGE = {"l2": 0.9}
GROUPS = {"l1": 0.2, "groups": (1, 0, 1, 1)}
SPARSE_GROUPS = {"l1": 0.2, "l2": 0.5, "groups": (0, 0, 3, 2)}


def penalty(theta: np.ndarray, options: dict) -> np.ndarray:
    """Penalty at the rows of theta."""
    groups = np.array(options.get("groups", ()))
    value = 0.5 * options.get("l2", 0.0) * (theta**2).sum(axis=-1)
    if groups.size == 0:
        return value + options.get("l1", 0.0) * np.abs(theta).sum(axis=-1)
    for group in set(groups.tolist()):
        part = theta[..., groups == group]
        size = np.sqrt(part.shape[-1]) * np.linalg.norm(part, axis=-1)
        value = value + options["l1"] * size
    return value


def candidates(
    domain: dps.domains.Domain, point: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Points of the domain near and far, with and without the point's zeros."""
    scales = 10.0 ** rng.uniform(-6.0, 0.5, 600)
    near = point + scales[:, None] * rng.standard_normal((600, len(point)))
    near[::3] *= point != 0.0
    near[1::3] *= rng.random((200, len(point))) < 0.5
    return np.array([domain.project(row) for row in near])


@pytest.mark.slow
@pytest.mark.parametrize("options", [LASSO, ELASTIC, RIDGE, GROUPS, SPARSE_GROUPS])
@pytest.mark.parametrize("domain", [WHOLE, BALL, CUBE, BOX, SIMPLEX])
def test_steps_are_proximal_points(options: dict, domain: dps.domains.Domain) -> None:
    """The objective is strongly convex: it grows by half the squared distance."""
    try:
        check_domain(
            domain, 4, l1=options.get("l1", 0.0), groups=options.get("groups", ())
        )
    except ValueError:
        assert options.get("l1") and (
            domain is SIMPLEX or ("groups" in options and domain in (CUBE, BOX))
        )
        return
    rng = np.random.default_rng(8)
    for _ in range(6):
        v = rng.standard_normal(4)
        step = ProximalStep(SIZE, **options)
        point = one_step(-v[None, :] / SIZE, step, domain=domain)
        assert domain.contains(point)

        def objective(theta: np.ndarray, v: np.ndarray = v) -> np.ndarray:
            size = ((theta - v) ** 2).sum(axis=-1)
            return SIZE * penalty(theta, options) + 0.5 * size

        others = candidates(domain, point, rng)
        growth = objective(others) - objective(point)
        apart = 0.5 * ((others - point) ** 2).sum(axis=-1)
        assert (growth >= apart - 1e-13).all()


def test_soft_threshold_in_closed_form() -> None:
    v = np.array([1.0, -0.1, 0.5, -2.0])
    found = one_step(-v[None, :], ProximalStep(1.0, l1=0.3, l2=1.0))
    assert found == pytest.approx([0.35, 0.0, 0.1, -0.85], abs=1e-15)


def test_group_soft_threshold_in_closed_form() -> None:
    v = np.array([3.0, 0.1, 4.0, 0.2])
    step = ProximalStep(1.0, l1=0.5, groups=(0, 1, 0, 1))
    shrink = 1.0 - 0.5 * np.sqrt(2.0) / 5.0
    expected = [3.0 * shrink, 0.0, 4.0 * shrink, 0.0]
    assert one_step(-v[None, :], step) == pytest.approx(expected, abs=1e-14)


def test_groups_of_one_are_the_lasso() -> None:
    v = np.random.default_rng(9).standard_normal((1, 5))
    alone = ProximalStep(1.0, l1=0.3, groups=(0, 1, 2, 3, 4))
    assert one_step(v, alone) == pytest.approx(
        one_step(v, ProximalStep(1.0, l1=0.3)), abs=1e-15
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ProximalStep(1.0, l1=-0.1), "l1 must be"),
        (lambda: ProximalStep(0.0), "sizes must be > 0"),
        (lambda: ProximalStep([1.0, np.nan]), "sizes must be finite"),
        (lambda: ProximalStep(1.0, groups=(0, 1)).numbers(3), "groups must be"),
        (lambda: ProximalStep(1.0, groups=(0, 1, 3)).numbers(3), "from 0 to 2"),
        (lambda: ProximalStep(1.0, groups=(0, -1, 1)).numbers(3), "from 0 to 2"),
    ],
)
def test_impossible_steps_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_domains_without_a_closed_form_are_refused() -> None:
    bad = (
        (dps.domains.Ball(1.0, p=1.0), ()),
        (dps.domains.Ball(1.0, center=[0.5, 0.0]), ()),
        (dps.domains.Box(0.5, 1.0), ()),
        (dps.domains.Box(-1.0, 1.0), (0, 0)),
        (dps.domains.Simplex(), ()),
    )
    for domain, groups in bad:
        with pytest.raises(ValueError, match="domain must be the whole space"):
            check_domain(domain, 2, l1=0.1, groups=groups)
        check_domain(domain, 2, l1=0.0, groups=groups)
