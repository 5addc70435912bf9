"""Doors: every public callable with parameters, derived from the public `__all__`s."""

import importlib
import inspect
import pkgutil
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

import dpsample as dps

# Their subclasses are the doors; a base has nothing of its own to construct.
BASES = {"Domain", "Event", "Loss", "Noise", "Regularizer", "Sampler"}
# Built by the package only: their fields are results, no input. Methods are doors.
RESULTS = {
    "AdditiveMechanism",
    "AuditReport",
    "SequentialReport",
    "Calibration",
    "Certificate",
    "CheckReport",
    "Claim",
    "Comparison",
    "Custom",
    "Dataset",
    "EventCertificate",
    "ExactCurve",
    "Expectations",
    "ExponentialMechanism",
    "Finding",
    "Fit",
    "Intervals",
    "GrowthRegression",
    "HardInstance",
    "MeetingTimes",
    "Minimum",
    "MixingBound",
    "MomentCheck",
    "NoisyAnswer",
    "RecordGradient",
    "Release",
    "Statistic",
    "TotalVariationCurve",
    "UnbiasedMoments",
    "VerificationReport",
}
# Steps inside one call of a door: their arguments are objects that the package built.
INNER = {
    "batch_scheme",
    "blocks",
    "bregman_curvature",
    "check_at_records",
    "check_declarations",
    "check_on",
    "check_records",
    "check_response",
    "checked_batch_size",
    "contains_exactly",
    "curvature",
    "describe",
    "facets",
    "hull_normals",
    "identity",
    "in_coordinates",
    "in_hull_coordinates",
    "kink",
    "loop",
    "margin_bounds",
    "move_inside",
    "near_response",
    "norm_length",
    "of",
    "oscillation",
    "params",
    "parse_field",
    "plan",
    "prepare",
    "proximal_step",
    "run_bounds",
    "scales",
    "secant_curvature",
    "size_of_batch",
    "sizes",
    "slacks",
    "slope_bound",
    "steps_of",
    "third_derivative_bound",
    "tune_proposal",
    "with_sampler",
    "words",
    "losses.RecordGradient.risk",
}


class Door(NamedTuple):
    """One public callable; ``owner`` is the class of a method."""

    name: str
    function: Any
    owner: type | None
    parameters: tuple[str, ...]


def _modules() -> Iterator[tuple[str, Any]]:
    yield "", dps
    for found in pkgutil.walk_packages(dps.__path__, "dpsample."):
        parts = found.name.split(".")[1:]
        # Doors of their own: arguments of one program, scikit-learn's conventions, and
        # models of other libraries.
        has_own = parts[0] in ("cli", "estimators", "interop")
        if has_own or any(part.startswith("_") for part in parts):
            continue
        module = importlib.import_module(found.name)
        if hasattr(module, "__all__"):
            yield ".".join(parts) + ".", module


def _parameters(function: Any) -> tuple[str, ...]:
    names = inspect.signature(function).parameters
    return tuple(name for name in names if name not in ("self", "cls"))


def _methods(prefix: str, owner: type) -> Iterator[Door]:
    for name in dir(owner):
        static = inspect.getattr_static(owner, name)
        method = getattr(owner, name)
        function = getattr(method, "__func__", method)
        is_method = inspect.isfunction(function) and not isinstance(static, property)
        is_inner = name in INNER or f"{prefix}.{name}" in INNER
        if name.startswith("_") or is_inner or not is_method:
            continue
        parameters = _parameters(function)
        if parameters:
            yield Door(f"{prefix}.{name}", function, owner, parameters)


def public_callables() -> dict[str, Any]:
    """Public functions and classes by name, each under its shortest name."""
    found: dict[int, tuple[str, Any]] = {}
    for prefix, module in _modules():
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or isinstance(value, types.FunctionType):
                found.setdefault(id(value), (prefix + name, value))
    return dict(found.values())


def doors() -> list[Door]:
    """Doors: functions, constructors, and each method once, on one class.

    Left out: exceptions, compiled kernels (they trust their callers), and the named
    tuples that kernels read.
    """
    found, seen = [], set()
    for name, value in public_callables().items():
        if not inspect.isclass(value):
            found.append(Door(name, value, None, _parameters(value)))
            continue
        if issubclass(value, BaseException | tuple) or value.__name__ in BASES:
            continue
        if value.__name__ not in RESULTS and _parameters(value):
            found.append(Door(name, value, None, _parameters(value)))
        for door in _methods(name, value):
            if door.function not in seen:
                seen.add(door.function)
                found.append(door)
    return [door for door in found if door.parameters]


DOORS = {door.name: door for door in doors()}
