"""`verify`: recompute every number of a certificate from the inputs that it lists.

Numbers include those of the *event*, the description of what was released from which
accounting computes epsilon and delta. Mechanisms, samplers and optimizers are built
again from their *specs*, which hold a type of the registry and its parameters.

The *kind* of a certificate names the mechanism that was run, and how: "noise/gaussian",
"stats/..." for a statistic, "objective/pure" for objective perturbation at delta = 0.
Kinds that begin with `TUNED` or `INTERVALS` contain the kinds of the fits inside.

The *gdp* of an event is its parameter in Gaussian differential privacy. A release with
it reveals as much as its true value plus Gaussian noise of standard deviation
sensitivity / gdp.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from dpsample import domains, losses, noise, optimizers, samplers
from dpsample.core import check
from dpsample.core.renamed import text_with_present_names, with_present_names
from dpsample.inference import sandwich
from dpsample.inference.tuning_plan import TuningPlan, name_candidates
from dpsample.noise.totals import MECHANISMS
from dpsample.optimizers.certification import certify
from dpsample.optimizers.loop.contributions import PSI_BOUND
from dpsample.optimizers.loop.tilted import perturbed_objective, tilt_scales
from dpsample.privacy.accounting.events import Event, GaussianEvent, PureEvent
from dpsample.privacy.budget import SHIFTS
from dpsample.privacy.certificates.certificate import Certificate
from dpsample.privacy.certificates.event_certificate import EventCertificate
from dpsample.privacy.certificates.json_form import strict_json
from dpsample.privacy.certificates.mechanism_spec import MechanismSpec, Value
from dpsample.privacy.certificates.registry import INTERVALS, TUNED, registry
from dpsample.privacy.certificates.verification_report import Check, VerificationReport
from dpsample.privacy.curves.additive import unit_gdp
from dpsample.privacy.curves.norm_tilt import NormTilt
from dpsample.privacy.curves.objective_perturbation import minimizer_error
from dpsample.problem.facts import PublicFacts
from dpsample.samplers.exact import exact
from dpsample.samplers.localized import localized
from dpsample.samplers.proximal import constant_time, requirements
from dpsample.samplers.whole_body import global_draws, tangent_cells
from dpsample.targets.reduced import facts_obstacle
from dpsample.verification import recomputation

RISKS = ("risk_bound", "printed_risk_bound", "risk_forecast")
# These inputs must be equal to the last bit. They are powers of two, or follow from
# stated numbers by products and roots. ``score_grid`` is the grid of noisy scores of
# candidates in a tuning, and ``curvature_grid`` and ``scores_grid`` are those of the
# two noisy matrices of confidence intervals.
EXACT = ("grid", "score_grid", "score_stddev", "curvature_grid", "scores_grid")

# Kinds of noisy steps on all records, with the inputs that bound the gradient of a
# record (one of them is there), and the input with the noise of a step.
STEPS = {
    "steps/full": (("lipschitz",), "noise_stddev"),
    "clipped/full": (("clip", "lipschitz"), "noise_stddev"),
    "proximal/clip/full": (("record_bound",), "stddev"),
}

Maker = Callable[..., noise.mechanism.AdditiveMechanism]
# Makers of mechanisms, and their parameters. The inputs of a certificate list these,
# with "rows" and "columns" for ``shape``, and "K" for ``domain``.
NOISE_MAKERS: dict[str, tuple[Maker, tuple[str, ...]]] = {
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

    A `Certificate` is calibrated again from its public inputs. For an
    `EventCertificate`, the noise mechanism or optimizer is built again from the inputs
    and the facts, its event must be the stated one, and epsilon is computed again from
    the event. Theorems and assumptions must be exactly those of the kind, in the words
    of this version.

    Parameters
    ----------
    certificate : Certificate or EventCertificate
        Certificate of a release or a mechanism, or one that was read from JSON.
    checker : {"standard", "ball"}
        "ball" proves the inequalities by ball arithmetic instead, which bounds all
        rounding errors. `dpsample.verification.ball_checker` shares no code with the
        rest and needs ``pip install 'dpsample[verify]'``. The report lists under "not
        checked" what is taken as stated, such as the events of most optimizers.

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
    >>> report[0].partition(":")[0], report[3]
    ('Consistent', 'epsilon_proved            1  [1]')
    """
    remedy = "Pass answer.certificate, or what Certificate.from_json returns."
    kinds = Certificate, EventCertificate
    check.instance(kinds, certificate=certificate, remedy=remedy)
    check.one_of(("standard", "ball"), checker=checker)
    if checker == "ball":
        return _prove_by_balls(certificate)
    report = _recompute_all(certificate)
    # A certificate that was read from JSON is marked as unverified until it passes
    # here.
    object.__setattr__(certificate, "is_unverified", False)
    return report


def _recompute_all(certificate: Certificate | EventCertificate) -> VerificationReport:
    """Make the certificate again, and the mechanism or the sampler that it names."""
    report = recomputation.recompute(certificate)
    if isinstance(certificate, Certificate):
        lines = _sampler_checks(certificate)
        return dataclasses.replace(report, checks=(*report.checks, *lines))
    if certificate.kind == "declared":  # a mechanism of the user
        unchecked = "that the mechanism has the event, which is its author's word"
        return dataclasses.replace(report, unchecked=(unchecked,))
    try:
        # An edited certificate may hold any numbers. NaN fails the comparisons below.
        with np.errstate(all="ignore"):
            rebuilt = _rebuild(certificate)
    except (ArithmeticError, TypeError) as error:
        check.fail("certificate", "one that can be made again", repr(error))
    lines = _compare_event(certificate, rebuilt)
    if _base_kind(certificate) in NOISE_MAKERS:
        lines.append(_check_noise_scale(certificate))
    if certificate.kind in STEPS:
        lines.append(_check_noise_of_steps(certificate, rebuilt))
    if certificate.kind.startswith("objective/pure"):
        lines.append(_check_pure_tilt(certificate))
    if certificate.kind in ("frank_wolfe/pure", "lasso/pure"):
        lines += _check_selections(certificate)
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
    """Build the sampler, and check the proof of a plan that draws in constant time.

    The sampler of a timed kind is such a plan, `ConstantTime`, whose number of
    operations is fixed by public facts. Only this kind is timed, because the kind of a
    certificate follows from the type of its sampler.
    """
    if c.sampler is None:
        return []
    sampler = _build(c.sampler, field="sampler")
    reason = _reason_against(sampler, c)
    if reason:
        check.fail("sampler", "one that draws this target", str(c.sampler), reason)
    if not c.registered.timed:
        return []
    is_plan = isinstance(sampler, constant_time.ConstantTime)
    if not (is_plan and MechanismSpec.of(sampler) == c.sampler):
        check.fail("sampler", "a whole plan", str(c.sampler))
    if c.max_work is not None or "DRAW.DEADLINE" in c.assumptions:
        check.fail("max_work", "None, and no deadline, in constant time", c.max_work)
    return [recomputation.check_at_most(*line) for line in sampler.check(c)]


def _reason_against(sampler: object, c: Certificate) -> str:
    """Return why a sampler can draw no target of the stated facts, or "" if it can."""
    if isinstance(sampler, samplers.Localized):
        reason = localized.explain_unsupported(c.facts.loss)
        if reason or not c.facts.domain.has_equalities:
            return reason
        return facts_obstacle(c.facts, c.regularizer)
    if isinstance(sampler, samplers.Proximal):
        # A certificate does not say where records are stored. In memory the sampler
        # supports most targets.
        return requirements.no_proximal_proof_in_memory(c.facts, c.regularizer)
    if isinstance(sampler, samplers.Global):
        return global_draws.explain_unsupported_facts(c.facts, c.regularizer)
    if isinstance(sampler, samplers.TangentCells):
        return tangent_cells.explain_unsupported_cells(c.facts, c.regularizer)
    if isinstance(sampler, samplers.Exact):
        return exact.explain_unsupported(c.facts, c.regularizer)
    return ""


def _rebuild(c: EventCertificate) -> EventCertificate:
    """Return the certificate of the mechanism that is built from the stated inputs."""
    if _base_kind(c) in NOISE_MAKERS:
        return _build_noise(c).certificate
    if c.kind.startswith("stats/"):
        return _certify_statistic(c)
    if c.facts is None:
        check.fail("certificate.facts", f"those of {c.kind!r}", "None")
    if c.kind.startswith(TUNED):
        return _certify_tuning(c, c.facts)
    clipped = "RECORDS.CLIPPED" in c.assumptions
    mechanism = _build(_mechanism_spec(c), field="mechanism")
    if c.kind.startswith(INTERVALS):
        plan = sandwich.plan_intervals(mechanism, c.facts, c.budget, clip_rows=clipped)
        return plan.certificate
    # The recipe of an optimizer has the phases of its run, and the privacy event, kind
    # and inputs that follow from them.
    recipe = mechanism.recipe(c.facts, c.budget, c.calibration)
    return certify(
        mechanism, recipe, c.facts, c.budget, c.calibration, clip_rows=clipped
    )


def _certify_tuning(c: EventCertificate, facts: PublicFacts) -> EventCertificate:
    """Return the certificate of a tuning with the stated candidates.

    Its input base_gdp is the gdp of one trial, which fits and scores one candidate.
    """
    spec = _mechanism_spec(c)
    inputs: dict[str, Any] = dict(c.inputs)
    input_types = {"stop": str, "scored_records": int} | dict.fromkeys(
        ("mean_tries", "cap", "score_share", "base_gdp"), float
    )
    for name, kind in input_types.items():
        checked: dict[str, Any] = {f"inputs.{name}": inputs.get(name)}
        check.instance(kind, **checked)
    if [name for name, _ in spec.parameters] != ["candidates"]:
        check.fail("certificate.mechanism", "with candidates only", str(spec))
    built = _build(spec.get("candidates"), field="mechanism")
    _, candidates = name_candidates(built)
    plan = TuningPlan(
        candidates=candidates,
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


def _certify_statistic(c: EventCertificate) -> EventCertificate:
    """Return the certificate of a statistic, whose inputs must be equal to these."""
    mechanism = _build(_mechanism_spec(c), field="mechanism")
    inputs: dict[str, Any] = dict(c.inputs)
    num_records: dict[str, Any] = {"inputs.num_records": inputs.get("num_records")}
    check.integer(1, **num_records)
    rebuilt: EventCertificate = mechanism.certificate(inputs["num_records"], c.budget)
    # Sensitivity and scale are powers of two, whole numbers and one quotient, which all
    # machines compute alike. So there is no tolerance.
    if c.inputs != rebuilt.inputs:
        recomputation.fail_disagreement("inputs", rebuilt.inputs, c.inputs)
    if c.event != rebuilt.event:
        recomputation.fail_disagreement("event", rebuilt.event, c.event)
    return rebuilt


def _base_kind(c: EventCertificate) -> str:
    """Return the kind of noise without the mark of its numerics."""
    return c.kind.removesuffix("/idealized").removesuffix("/pure")


def _build_noise(c: EventCertificate) -> noise.mechanism.AdditiveMechanism:
    """Build the noise mechanism from the stated inputs."""
    make, names = NOISE_MAKERS[_base_kind(c)]
    inputs: dict[str, Any] = {"calibration": c.calibration, **dict(c.inputs)}
    if "shape" in names:
        inputs["shape"] = (inputs.get("rows"), inputs.get("columns"))
    if "domain" in names:
        inputs["domain"] = domains.from_dict(strict_json(inputs.get("K")) or {})
    missing = [name for name in names if name not in inputs]
    if missing:
        check.fail("certificate.inputs", f"with {', '.join(missing)}", dict(c.inputs))
    budget = c.budget
    if budget.is_pure and c.kind in ("noise/laplace", "noise/k_norm"):
        # Former certificates at delta = 0 leave the error of cut off digits out, as
        # those at any delta do. No input depends on delta.
        budget = dataclasses.replace(budget, delta=0.5)
    return make(budget, **{name: inputs[name] for name in names})


def _check_noise_of_steps(c: EventCertificate, rebuilt: EventCertificate) -> Check:
    """Check, in fractions, that the stated noise of steps suffices for the event.

    The stated noise and the larger bound are used, because the comparison of inputs has
    a tolerance. A mean label and a choice are one more query each.
    """
    assert c.facts is not None and isinstance(c.event, GaussianEvent)
    inputs: dict[str, Any] = dict(c.inputs)
    bounds, noise_name = STEPS[c.kind]
    bound_name = next(name for name in bounds if name in inputs)
    bound: float = max(inputs[bound_name], dict[str, Any](rebuilt.inputs)[bound_name])
    num_steps = inputs.get("num_steps") or _mechanism_spec(c).get("num_steps")
    unit = Fraction(SHIFTS[c.budget.relation]) / c.facts.num_records
    square = (unit * Fraction(bound) / Fraction(inputs[noise_name])) ** 2 * num_steps
    for name in ("label_stddev", "choice_stddev"):
        if name in inputs:
            square += (unit / Fraction(inputs[name])) ** 2
    name, gdp = "event of the noise<=event", c.event.gdp
    if not square <= Fraction(gdp) ** 2:
        stated = repr(math.sqrt(square))
        check.fail(name, f"at most {gdp!r}", stated, "It is not a proof.")
    return Check(name=name, stated=f"{math.sqrt(square):.6g}", recomputed=f"{gdp:.6g}")


def _check_pure_tilt(c: EventCertificate) -> Check:
    """Check that the stated tilt and output noise add up to the event's epsilon.

    Objective perturbation minimizes the risk plus ``ridge`` |theta|^2 / 2 plus a random
    linear function, the *tilt*. Noise on the output hides how far the solver stopped
    from the minimizer. This is at most (2 gap / m)^(1/2), where m is the strong
    convexity. The stated numbers themselves are used, because their comparison has a
    tolerance.
    """
    assert c.facts is not None and isinstance(c.event, PureEvent)
    inputs: dict[str, Any] = dict(c.inputs)
    scales = tilt_scales(c.facts, risk="empirical")
    m = scales.convexity(inputs["ridge"])
    tilt = NormTilt(
        objective=perturbed_objective(scales, inputs["ridge"], c.budget.relation),
        dim=c.facts.dim,
        radius=c.facts.radius,
        scale=inputs["tilt_scale"],
        max_length=inputs["max_tilt"],
        error=minimizer_error(strong_convexity=m, gap=inputs["gap"]),
        output_scale=inputs["output_scale"],
    )
    name = "tilt+output noise<=epsilon"
    return recomputation.check_at_most(name, tilt.epsilon, c.event.epsilon)


def _check_selections(c: EventCertificate) -> list[Check]:
    """Check the sensitivity of scores, and that selections have the event's epsilon.

    The stated numbers themselves are used, because their comparison has a tolerance.
    """
    assert c.facts is not None and isinstance(c.event, PureEvent)
    facts, inputs = c.facts, dict[str, Any](c.inputs)
    radius, is_lasso = facts.domain.ball_radius, c.kind == "lasso/pure"
    if is_lasso:
        bound = inputs["entry_bound"]
        unit = bound * (bound * (1.0 + radius) + facts.offset_bound) / facts.num_records
    else:
        unit = PSI_BOUND * inputs["scale"] / inputs["fold_size"]
    change = SHIFTS[c.budget.relation] * radius * unit
    sensitivity = inputs["score_sensitivity"]
    # Each record of the lasso is read in all steps, and otherwise in one of them.
    spent = 2.0 * inputs["inverse_temperature"] * sensitivity
    spent *= inputs["num_steps"] if is_lasso else 1
    at_most = recomputation.check_at_most
    return [
        at_most("change of a score<=sensitivity", change, sensitivity),
        at_most("event of the selections<=event", spent, c.event.epsilon),
    ]


def _check_noise_scale(c: EventCertificate) -> Check:
    """Check that the stated scale suffices for the parameter of the stated event.

    The scale itself is used, because the comparison of inputs has a tolerance.
    """
    inputs: dict[str, Any] = {"r": None, **dict(c.inputs)}
    sensitivity = inputs["sensitivity"]
    # Gaussian noise lists its stddev, and noise of the Laplace type its scale.
    scale = inputs.get("stddev", inputs.get("scale"))
    if inputs["r"] is not None:  # generalized Gaussian noise
        dim, scale = inputs.get("dim"), inputs["sigma"]
        # Noise of matrices has the proof of vectors of singular values.
        if dim is None:
            dim = min(inputs["rows"], inputs["columns"])
        # The gdp at sigma = 1 takes the part of the sensitivity: the gdp is inversely
        # proportional to sigma.
        sensitivity = unit_gdp(
            sensitivity=sensitivity, dim=dim, p=inputs["p"], r=inputs["r"]
        )
    parameter = math.nan  # no inequality holds for an event of another type
    if isinstance(c.event, GaussianEvent):
        parameter = c.event.gdp
    if isinstance(c.event, PureEvent):
        parameter = c.event.epsilon
    return recomputation.check_at_most(
        "event of the inputs<=event", sensitivity / scale, parameter
    )


def _mechanism_spec(c: EventCertificate) -> MechanismSpec:
    """Return the spec of the mechanism, which must have one."""
    if not isinstance(c.mechanism, MechanismSpec):
        check.fail("certificate.mechanism", "with its parameters", c.mechanism)
    return c.mechanism


@functools.cache
def _mechanism_types() -> dict[str, type]:
    """Return the classes that certificates may name, by their names."""
    public = {
        name: getattr(module, name)
        for module in (samplers, optimizers, losses)
        for name in module.__all__
    }
    others = (constant_time.ConstantTime, sandwich.Sandwich, *MECHANISMS)
    types = public | {kind.__name__: kind for kind in others}
    return {name: types[name] for name in registry().types if name in types}


def _build(value: Value, *, field: str) -> Any:
    """Return the object that a spec describes, and any other value as it is.

    Only classes of the registry's types are called, and each checks its options.
    """
    if isinstance(value, tuple):
        return tuple(_build(item, field=field) for item in value)
    if not isinstance(value, MechanismSpec):
        return value
    if value.type not in _mechanism_types():
        check.fail(f"certificate.{field}", "of types of dpsample", value.type)
    arguments = {name: _build(item, field=field) for name, item in value.parameters}
    kind = _mechanism_types()[value.type]
    arguments = with_present_names(kind, arguments)
    return check.build(f"certificate.{field}", kind, arguments)


def _compare_event(stated: EventCertificate, rebuilt: EventCertificate) -> list[Check]:
    """Compare the mechanism, its inputs and its event with what was built again."""
    for name in ("kind", "mechanism", "calibration", "facts"):
        stated_value, rebuilt_value = getattr(stated, name), getattr(rebuilt, name)
        if name == "mechanism":
            # Certificates of an earlier version have former names of parameters. Among
            # mechanisms with events, only `NoisyGD` has a renamed parameter.
            text = str(stated_value)
            stated_value = text_with_present_names(optimizers.NoisyGD, text)
        if stated_value != rebuilt_value:
            recomputation.fail_disagreement(name, rebuilt_value, stated_value)
    names = [name for name, _ in stated.inputs]
    expected = [name for name, _ in rebuilt.inputs]
    if names != expected:
        recomputation.fail_disagreement("inputs", expected, names)
    checks, tolerance = [], recomputation.TOLERANCE
    rebuilt_inputs: dict[str, Any] = dict(rebuilt.inputs)
    for name, value in stated.inputs:
        if name in EXACT and value != rebuilt_inputs[name]:
            recomputation.fail_disagreement(
                f"inputs.{name}", rebuilt_inputs[name], value
            )
        # Objective perturbation with a Gaussian tilt chooses the solver's gap from a
        # bound of the risk.
        is_risk_gap = name == "gap" and "tilt_stddev" in names
        input_tolerance = tolerance
        if is_risk_gap or name in RISKS:
            # A polytope's width, on which bounds of the risk depend, is the mean of
            # thousands of linear programs. Other inputs have the tolerance of the
            # event, which follows from most of them.
            input_tolerance = 1e-6
        checks.append(
            _check_alike(f"inputs.{name}", value, rebuilt_inputs[name], input_tolerance)
        )
        if is_risk_gap and isinstance(value, float):
            # Output noise is proportional to the root of the gap that it hides, and
            # must suffice for the stated gap. It is compared later, because the
            # certificates of these optimizers list it after the gap.
            rebuilt_inputs["output_stddev"] *= math.sqrt(value / rebuilt_inputs["gap"])
    return [
        *(line for line in checks if line is not None),
        *_check_events_alike(stated.event, rebuilt.event, tolerance),
    ]


def _check_events_alike(
    stated: Event | None, rebuilt: Event | None, tolerance: float
) -> list[Check]:
    """Compare events, number by number."""
    checks: list[Check] = []

    def compare(name: str, value: object, expected: object) -> None:
        if (
            isinstance(value, dict)
            and isinstance(expected, dict)
            and set(value) == set(expected)
        ):
            for key in value:
                compare(f"{name}.{key}", value[key], expected[key])
        elif isinstance(value, list) and isinstance(expected, list):
            if len(value) != len(expected):
                recomputation.fail_disagreement(name, expected, value)
            for index, pair in enumerate(zip(value, expected, strict=True)):
                compare(f"{name}[{index}]", *pair)
        else:
            line = _check_alike(name, value, expected, tolerance)
            checks.extend([] if line is None else [line])

    pair = (None if event is None else event.to_dict() for event in (stated, rebuilt))
    compare("event", *pair)
    return checks


def _check_alike(
    name: str, stated: object, rebuilt: object, tolerance: float
) -> Check | None:
    """Return the line of a float that agrees, or None for an equal value of a type."""
    if isinstance(stated, float) and isinstance(rebuilt, float) and stated != rebuilt:
        return recomputation.check_agreement(name, stated, rebuilt, tolerance=tolerance)
    if type(stated) is not type(rebuilt) or stated != rebuilt:
        recomputation.fail_disagreement(name, rebuilt, stated)
    if not isinstance(stated, float):
        return None
    return Check(name=name, stated=f"{stated:.6g}", recomputed=f"{rebuilt:.6g}")
