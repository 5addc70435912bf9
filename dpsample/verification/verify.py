"""The verb for certificates: every number from what is listed, events included."""

import ast
import dataclasses
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal

import numpy as np

from dpsample import domains, losses, noise, optimizers, samplers
from dpsample.core import check
from dpsample.inference import sandwich
from dpsample.inference.tuning_plan import TuningPlan, name_candidates
from dpsample.optimizers.certification import certify
from dpsample.privacy.accounting.events import Event, GaussianEvent, PureEvent
from dpsample.privacy.certificates.certificate import Certificate
from dpsample.privacy.certificates.event_certificate import EventCertificate
from dpsample.privacy.certificates.json_form import strict_json
from dpsample.privacy.certificates.registry import INTERVALS, TUNED
from dpsample.privacy.certificates.verification_report import Check, VerificationReport
from dpsample.privacy.curves.additive import smooth_sensitivity
from dpsample.problem.facts import PublicFacts
from dpsample.samplers.exact import exact
from dpsample.samplers.localized import localized
from dpsample.samplers.proximal import constant_time, requirements
from dpsample.targets.reduced import facts_obstacle
from dpsample.verification import recomputation as verification

# Inputs agree to the digits of the event: it follows from most of them. Bounds of the
# risk do not: a polytope's width is the mean of thousands of linear programs.
INPUT_TOLERANCE = 1e-6
RISKS = ("risk_bound", "printed_risk_bound", "risk_forecast")
# Powers of two, and what follows from stated numbers by products and roots.
EXACT = ("grid", "score_grid", "score_stddev", "curvature_grid", "scores_grid")

Maker = Callable[..., noise.mechanism.AdditiveMechanism]
# Mechanisms from the inputs that their certificates list.
NOISES: dict[str, tuple[Maker, tuple[str, ...]]] = {
    "noise/gaussian": (noise.gaussian_mechanism, ("sensitivity", "calibration")),
    "noise/generalized_gaussian": (
        noise.generalized_gaussian_mechanism,
        ("dim", "sensitivity", "p", "r", "calibration"),
    ),
    "noise/schatten_gaussian": (
        noise.schatten_gaussian_mechanism,
        ("shape", "sensitivity", "p", "r"),
    ),
    "noise/laplace": (noise.laplace_mechanism, ("sensitivity",)),
    "noise/discrete_laplace": (noise.geometric_mechanism, ("sensitivity",)),
    "noise/k_norm": (noise.k_norm_mechanism, ("domain", "dim", "sensitivity")),
}


def verify(
    certificate: Certificate | EventCertificate,
    *,
    checker: Literal["standard", "ball"] = "standard",
) -> VerificationReport:
    """Recompute every number of a certificate from what it lists.

    A `Certificate` is calibrated again from its public inputs. Of an
    `EventCertificate`, the noise mechanism or optimizer is built again from the inputs
    and the facts, its event must be the stated one, and epsilon is computed again from
    the event. Theorems and assumptions must be exactly those of the kind, in the words
    of this version.

    Parameters
    ----------
    certificate : Certificate or EventCertificate
        Of a release, of a mechanism, or read from JSON.
    checker : {"standard", "ball"}
        "ball" proves the inequalities by ball arithmetic instead, in a file that shares
        no code with the rest: `dpsample.verification.ball_checker`, which needs
        ``pip install 'dpsample[verify]'``. What it takes as stated, as the events of
        most optimizers, the report lists under "not checked".

    Returns
    -------
    VerificationReport
        The checks, one a line when printed, and what was not checked.

    Raises
    ------
    ValueError
        Naming the first number that disagrees, or a field that was edited.
    ImportError
        If ``checker`` is "ball" and python-flint is not installed.

    Guarantee
    ---------
    What passes follows from the listed inputs, theorems and assumptions. That the
    inputs are those of the actual run, and that the sampler keeps its promise, is not
    visible in a certificate.

    Examples
    --------
    >>> import dpsample as dps
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> mech = dps.noise.gaussian_mechanism(budget, sensitivity=1.0)
    >>> report = str(verify(mech.certificate)).splitlines()
    >>> report[0].partition(":")[0], report[2]
    ('Consistent', 'epsilon_proved            1  [1]')
    """
    remedy = "Pass answer.certificate, or what Certificate.from_json returns."
    kinds = Certificate, EventCertificate
    check.instance(kinds, certificate=certificate, remedy=remedy)
    check.one_of(("standard", "ball"), checker=checker)
    if checker == "ball":
        return _prove_by_balls(certificate)
    report = _recompute_all(certificate)
    object.__setattr__(certificate, "is_unverified", False)
    return report


def _recompute_all(certificate: Certificate | EventCertificate) -> VerificationReport:
    """Make the certificate again, and the mechanism or the sampler that it names."""
    report = verification.recompute(certificate)
    if isinstance(certificate, Certificate):
        lines = _sampler_checks(certificate)
        return dataclasses.replace(report, checks=(*report.checks, *lines))
    if certificate.kind == "declared":
        unchecked = "that the mechanism has the event, which is its author's word"
        return dataclasses.replace(report, unchecked=(unchecked,))
    try:
        with np.errstate(all="ignore"):  # inputs may be anything
            rebuilt = _rebuild(certificate)
    except (ArithmeticError, TypeError) as error:
        check.fail("certificate", "one that can be made again", repr(error))
    lines = _event_checks(certificate, rebuilt)
    if _base(certificate) in NOISES:
        lines.append(_noise_check(certificate))
    return dataclasses.replace(report, checks=(*report.checks, *lines))


def _prove_by_balls(c: Certificate | EventCertificate) -> VerificationReport:
    """Hand the JSON, and nothing else, to the independent checker."""
    from dpsample.verification.ball_checker import list_unchecked, prove

    text = c.to_json()
    checks = tuple(Check(name=n, stated=s, recomputed=r) for n, s, r in prove(text))
    return VerificationReport(
        statement=c.statement,
        checks=checks,
        unchecked=tuple(list_unchecked(text)),
        certificate=c,
    )


def _sampler_checks(c: Certificate) -> list[Check]:
    """Refuse a sampler that could not be made; prove a plan of constant time."""
    if c.sampler is None:
        return []
    is_plan = c.sampler.startswith("ConstantTime(")
    namespace = constant_time if is_plan else samplers
    sampler = _build_value(ast.parse(c.sampler, mode="eval").body, namespace)
    reason = _reason_against(sampler, c)
    if reason:
        check.fail("sampler", "one that draws this target", c.sampler, reason)
    if not c.registered.timed:
        return []
    if not (
        isinstance(sampler, constant_time.ConstantTime) and repr(sampler) == c.sampler
    ):
        check.fail("sampler", "a whole plan, as its repr", c.sampler)
    if c.max_work is not None or "DRAW.DEADLINE" in c.assumptions:
        check.fail("max_work", "None, and no deadline, in constant time", c.max_work)
    return [verification.check_at_most(*line) for line in sampler.check(c)]


def _reason_against(sampler: object, c: Certificate) -> str:
    """Why a sampler cannot have drawn any target of the stated facts, or nothing."""
    if isinstance(sampler, samplers.Localized):
        reason = localized.explain_unsupported(c.facts.loss)
        if reason or not c.facts.domain.has_equalities:
            return reason
        return facts_obstacle(c.facts, c.regularizer)
    if isinstance(sampler, samplers.Proximal):
        return requirements.no_proximal_proof_in_memory(c.facts, c.regularizer)
    if isinstance(sampler, samplers.Exact):
        return exact.explain_unsupported(c.facts, c.regularizer)
    return ""


def _rebuild(c: EventCertificate) -> EventCertificate:
    """Certificate of the mechanism that is built from the stated inputs."""
    if _base(c) in NOISES:
        return _noise(c).certificate
    if c.facts is None:
        check.fail("certificate.facts", f"those of {c.kind!r}", "None")
    if c.kind.startswith(TUNED):
        return _certify_tuning(c, c.facts)
    call = _call(c)
    clipped = "RECORDS.CLIPPED" in c.assumptions
    if c.kind.startswith(INTERVALS):
        sandwich_spec = _build_value(call, sandwich)
        return sandwich.plan_intervals(
            sandwich_spec, c.facts, c.budget, clip_rows=clipped
        ).certificate
    optimizer = _build_value(call, optimizers)
    recipe = optimizer.recipe(c.facts, c.budget, c.calibration)
    return certify(
        optimizer, recipe, c.facts, c.budget, c.calibration, clip_rows=clipped
    )


def _certify_tuning(c: EventCertificate, facts: PublicFacts) -> EventCertificate:
    """Certificate of a tuning with the stated candidates and gdp of a try."""
    call = _call(c)
    inputs: dict[str, Any] = dict(c.inputs)
    input_types = {"stop": str, "scored_records": int} | dict.fromkeys(
        ("mean_tries", "cap", "score_share", "base_gdp"), float
    )
    for name, kind in input_types.items():
        checked: dict[str, Any] = {f"inputs.{name}": inputs.get(name)}
        check.instance(kind, **checked)
    values = [_build_value(entry.value, optimizers) for entry in call.keywords]
    if [entry.arg for entry in call.keywords] != ["candidates"]:
        check.fail("certificate.mechanism", "with candidates only", c.mechanism)
    plan = TuningPlan(
        candidates=name_candidates(values[0])[1],
        facts=facts,
        clip_rows="RECORDS.CLIPPED" in c.assumptions,
        budget=c.budget,
        stop=inputs["stop"],
        mean_tries=inputs["mean_tries"],
        num_scored=inputs["scored_records"],
        cap=inputs["cap"],
        score_share=inputs["score_share"],
    )
    plan.check()
    gdp = inputs["base_gdp"]
    return plan.certificate(gdp, plan.recipes(gdp))


def _base(c: EventCertificate) -> str:
    return c.kind.removesuffix("/idealized")


def _noise(c: EventCertificate) -> noise.mechanism.AdditiveMechanism:
    make, names = NOISES[_base(c)]
    inputs: dict[str, Any] = {"calibration": c.calibration, **dict(c.inputs)}
    if "shape" in names:
        inputs["shape"] = (inputs.get("rows"), inputs.get("columns"))
    if "domain" in names:
        inputs["domain"] = domains.from_dict(strict_json(inputs.get("K")) or {})
    missing = [name for name in names if name not in inputs]
    if missing:
        check.fail("certificate.inputs", f"with {', '.join(missing)}", dict(c.inputs))
    return make(c.budget, **{name: inputs[name] for name in names})


def _noise_check(c: EventCertificate) -> Check:
    """Check that the stated scale, to its last digit, suffices for the event."""
    inputs: dict[str, Any] = {"r": None, **dict(c.inputs)}
    size, scale = inputs["sensitivity"], inputs.get("stddev", inputs.get("scale"))
    if inputs["r"] is not None:
        dim, scale = inputs.get("dim"), inputs["sigma"]
        if dim is None:
            dim = min(inputs["rows"], inputs["columns"])
        case = {"sensitivity": size, "dim": dim, "p": inputs["p"], "r": inputs["r"]}
        size = smooth_sensitivity(**case)
    spent = c.event.gdp if isinstance(c.event, GaussianEvent) else math.nan
    if isinstance(c.event, PureEvent):
        spent = c.event.epsilon
    return verification.check_at_most("event of the inputs<=event", size / scale, spent)


def _call(c: EventCertificate) -> ast.Call:
    """Return the tree of the mechanism, which must be a call."""
    call = ast.parse(c.mechanism, mode="eval").body
    if not isinstance(call, ast.Call):
        check.fail("certificate.mechanism", "a call, as its repr", c.mechanism)
    return call


def _build_value(tree: ast.expr, namespace: ModuleType) -> Any:
    """Value of a repr, whose grammar the registry has checked."""
    if isinstance(tree, ast.Name):
        return math.inf
    if isinstance(tree, ast.Tuple):
        return tuple(_build_value(element, namespace) for element in tree.elts)
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        return ast.literal_eval(tree)
    kind, arguments = getattr(namespace, tree.func.id, None), {}
    if not isinstance(kind, type):
        condition = f"of names of {namespace.__name__}"
        check.fail("certificate.mechanism", condition, tree.func.id)
    for entry in tree.keywords:
        source = losses if entry.arg == "wall_loss" else namespace
        arguments[entry.arg] = _build_value(entry.value, source)
    return check.build("certificate.mechanism", kind, arguments)


def _event_checks(stated: EventCertificate, rebuilt: EventCertificate) -> list[Check]:
    """Compare the mechanism, its inputs and its event with what was built again."""
    for name in ("kind", "mechanism", "calibration", "facts"):
        if getattr(stated, name) != getattr(rebuilt, name):
            verification.fail_disagreement(
                name, getattr(rebuilt, name), getattr(stated, name)
            )
    names, expected = ([n for n, _ in c.inputs] for c in (stated, rebuilt))
    if names != expected:
        verification.fail_disagreement("inputs", expected, names)
    checks, tolerance = [], verification.TOLERANCE
    rebuilt_inputs: dict[str, Any] = dict(rebuilt.inputs)
    for name, value in stated.inputs:
        if name in EXACT and value != rebuilt_inputs[name]:
            verification.fail_disagreement(
                f"inputs.{name}", rebuilt_inputs[name], value
            )
        is_accuracy = name == "gap" and "tilt_stddev" in names  # a part of a risk
        digits = INPUT_TOLERANCE if is_accuracy or name in RISKS else tolerance
        checks.append(
            _check_alike(f"inputs.{name}", value, rebuilt_inputs[name], digits)
        )
        if is_accuracy and isinstance(value, float):
            # The noise that hides it has to be that of the stated one.
            rebuilt_inputs["output_stddev"] *= math.sqrt(value / rebuilt_inputs["gap"])
    return [
        *(line for line in checks if line is not None),
        *_check_events_alike(stated.event, rebuilt.event, tolerance),
    ]


def _check_events_alike(
    stated: Event | None, rebuilt: Event | None, tolerance: float
) -> list[Check]:
    """Compare events, number by number."""

    def compare(name: str, one: object, other: object) -> None:
        if isinstance(one, dict) and isinstance(other, dict) and set(one) == set(other):
            for key in one:
                compare(f"{name}.{key}", one[key], other[key])
        elif isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                verification.fail_disagreement(name, other, one)
            for index, pair in enumerate(zip(one, other, strict=True)):
                compare(f"{name}[{index}]", *pair)
        else:
            line = _check_alike(name, one, other, tolerance)
            checks.extend([] if line is None else [line])

    checks: list[Check] = []
    pair = (None if event is None else event.to_dict() for event in (stated, rebuilt))
    compare("event", *pair)
    return checks


def _check_alike(
    name: str, stated: object, rebuilt: object, tolerance: float
) -> Check | None:
    """Line of a float that agrees; other values must be equal and of one type."""
    if isinstance(stated, float) and isinstance(rebuilt, float) and stated != rebuilt:
        return verification.check_agreement(name, stated, rebuilt, tolerance=tolerance)
    if type(stated) is not type(rebuilt) or stated != rebuilt:
        verification.fail_disagreement(name, rebuilt, stated)
    if not isinstance(stated, float):
        return None
    return Check(name=name, stated=f"{stated:.6g}", recomputed=f"{rebuilt:.6g}")
