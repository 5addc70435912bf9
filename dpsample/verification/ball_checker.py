"""Ball checker: proves the inequalities of a certificate from its JSON alone.

It shares no code with the rest of dpsample, which it checks. It needs only this file,
`registry.toml` and python-flint, neither NumPy nor Numba. In ball arithmetic a number
is a midpoint with a radius that bounds all rounding errors. The precision is doubled
until the balls of the two sides of an inequality do not overlap:

    python ball_checker.py answer.json

For a draw it proves that the sensitivity follows from the listed facts, gdp from the
sensitivity, and delta from gdp (Balle and Wang 2018, equation (6)), or delta from the
range of one record's loss. It also proves that the error gamma of the sampler fits into
the rest of delta. For an event it proves that delta at
the stated epsilon is at most the stated one. For noise on a query, statistics, and
noisy steps on all records it also proves that the listed noise has the event. The
numbers of a statistic follow from its totals. `list_unchecked` names the statements
that it does not prove.

JSON may come from anywhere. Every field is therefore checked before it is used, and any
other error also means that the certificate is not proved.
"""

import functools
import hashlib
import json
import math
import re
import sys
import tomllib
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn

try:
    from flint import arb, ctx
except ImportError:  # `prove` raises an error that says how to install it
    arb = ctx = None

Json = dict[str, Any]
Ball = Any  # an `arb` of python-flint
# Each line has the name, the left and the right side of an inequality.
Lines = list[tuple[str, str, str]]

CERTIFICATES = Path(__file__).parents[1] / "privacy" / "certificates"
# Largest number of bits of precision. It is doubled from 64 on until balls are apart.
MAX_BITS = 1 << 14


class Format:
    """Formats of certificates and answers. In former ones a mechanism is a text."""

    draw: str = "dpsample certificate 3"
    event: str = "dpsample event certificate 3"
    former: ClassVar[dict[str, str]] = {
        "dpsample certificate 2": draw,
        "dpsample event certificate 2": event,
    }
    release: str = "dpsample-release-3"
    fit: str = "dpsample-fit-1"
    statistic: str = "dpsample-statistic-1"


# Losses with a bounded curvature and decimals, whose draws are exact on bodies.
GLOBAL_LOSSES = frozenset(
    "linear logistic capped_logistic calibrated_logistic smoothed_hinge huber squared "
    "power_four".split()
)
DRAW_FIELDS = set(
    "format registry releasable facts budget p risk calibration sampler_share "
    "strong_convexity confidence regularizer lipschitz diff_lipschitz range_bound k mu "
    "gdp delta_exact gamma epsilon_proved risk_bound theorems sampler max_work "
    "assumptions seeded digest".split()
)
EVENT_FIELDS = set(
    "format registry releasable kind mechanism budget calibration facts inputs event "
    "epsilon_proved theorems assumptions seeded digest".split()
)
FACTS = set(
    "num_records dim loss domain row_bound row_norm response_bound offset_bound "
    "intercept".split()
)
# Fields of losses, domains and events, in addition to their names. Their values are
# numbers and lists of numbers, except the label of a user's own loss.
LOSSES = dict.fromkeys(["linear", "logistic", "hinge", "absolute", "squared"], "") | {
    "power_four": "",
    "calibrated_logistic": "",
    "smoothed_hinge": "width",
    "huber": "width",
    "quantile": "level",
    "capped_logistic": "cap",
    "custom": "label declared_slope lower_curvature upper_curvature third_derivative "
    "labels reads_response",
    "record_gradient": "label dim smoothness",
}
DOMAINS = {
    "whole_space": "",
    "simplex": "",
    "ball": "radius p center",
    "box": "lower upper",
    "schatten_ball": "radius p shape",
    "polytope": "A b",
}
EVENTS = {
    "gaussian": "gdp",
    "pure": "epsilon",
    "bounded_range": "range",
    "approximate": "epsilon delta",
    "concentrated": "rho",
    "near": "event total_variation",
    "composed": "events",
    "parallel": "events",
    "poisson_gaussian": "sampling_rate noise_multiplier num_steps",
    "allocated_gaussian": "noise_multiplier num_steps num_epochs",
}
# Multiple of one record's bound by which a neighbor moves a sum over all records.
SHIFTS = {"replace_one": 2, "zero_out": 1}
# Kinds of noisy steps on all records. For each, the names of the input that bounds the
# gradient of a record (one of them is there), and the input with the noise of a step.
STEPS = {
    "steps/full": (["lipschitz"], "noise_stddev"),
    "clipped/full": (["clip", "lipschitz"], "noise_stddev"),
    "proximal/clip/full": (["record_bound"], "stddev"),
}
# Kinds of objective perturbation with delta = 0.
PURE_TILTS = ("objective/pure", "objective/pure/rounded")
# Kinds of exact selections of vertices with delta = 0.
SELECTIONS = ("frank_wolfe/pure", "lasso/pure")
# Kinds whose random digits are drawn on demand, only for budgets with delta = 0.
ON_DEMAND = (*SELECTIONS, "noise/laplace/pure", "noise/k_norm/pure")
# Maximum number of objects and lists inside one another in a mechanism.
MAX_DEPTH = 12
# Largest second derivative of the losses that a draw in constant time supports. A
# smoothed hinge has one over its width.
CURVATURES = {"logistic": 0.25, "huber": 1.0, "squared": 1.0}


class Pattern:
    """Regular expressions for texts of a certificate."""

    # Certificates of former formats hold a mechanism as a call, as Python's repr writes
    # it, with plain values. A call has the name of the constructor, and each option is
    # a keyword with its value. Only a loss may be a call itself.
    value: str = (
        r"(?:-?[0-9][0-9.e+-]*|-?inf|'[a-z0-9_]{1,40}'|None|True|False"
        r"|\([0-9., e+-]*\))"
    )
    loss: str = rf"[A-Za-z]+\((?:[a-z0-9_]+={value})?\)"
    # Earlier certificates have the option `boundary_loss` under the name `wall_loss`.
    option: str = rf"(?:[a-z0-9_]+={value}|(?:boundary|wall)_loss={loss})"
    call: re.Pattern[str] = re.compile(
        rf"([A-Za-z]+)\(((?:{option}(?:, {option})*)?)\)"
    )
    # Names that users may give to their own mechanisms.
    label: re.Pattern[str] = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,59}")
    # Names of inputs, and words as inputs.
    name: re.Pattern[str] = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
    word: re.Pattern[str] = re.compile(r"[A-Za-z0-9_.+-]{1,40}")
    # Names of types and parameters of mechanisms, and their texts: words and
    # infinities.
    parameter: re.Pattern[str] = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")
    option_word: re.Pattern[str] = re.compile(r"[a-z0-9_]{1,40}|-inf")


class NotProved(ValueError):
    """A certificate is malformed, or one of its inequalities is not proved."""


class _Spec(NamedTuple):
    """Type of a mechanism, which is the name of a class, and its parameters."""

    type: str
    parameters: Json
    is_former: bool  # read from the text of a former format


def prove(text: str) -> Lines:
    """Prove every inequality of a certificate, or of the answer that holds it.

    Parameters
    ----------
    text : str
        JSON as `to_json` of a `Certificate`, `EventCertificate`, `Release` or `Fit`
        writes it.

    Returns
    -------
    list of (str, str, str)
        Name, left side and right side of every inequality that was proved.

    Raises
    ------
    NotProved
        If something is malformed, false or not decided. The message names it.
    ImportError
        If python-flint is not installed.

    Examples
    --------
    >>> import dpsample as dps
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> made = dps.noise.gaussian_mechanism(budget, sensitivity=1.0)
    >>> [name for name, _, _ in prove(made.certificate.to_json())]
    ['delta(epsilon;event)<=delta', 'event of the inputs<=event']
    """
    if arb is None:
        raise ImportError(
            "checker='ball' needs python-flint: pip install 'dpsample[verify]'."
        )
    content = _parse_json(text)
    before = ctx.prec
    try:
        if content.get("format") in (Format.release, Format.fit):
            names = "format theta feature_names encoding certificate digest"
            _require(set(content) == set(names.split()), "the answer has other fields")
            _check_binding(content)
            content = content["certificate"]
        if content.get("format") == Format.statistic:
            _check_statistic(content)
            content = content["certificate"]
        stated = str(content.get("format"))
        kind = Format.former.get(stated, stated)
        _require(kind in (Format.draw, Format.event), f"format {stated!r} is unknown")
        return _prove_draw(content) if kind == Format.draw else _prove_event(content)
    except NotProved:
        raise
    except (
        LookupError,
        TypeError,
        AttributeError,
        ValueError,
        ArithmeticError,
        RecursionError,
        MemoryError,
    ) as error:
        raise NotProved(f"The certificate is malformed ({error!r}).") from error
    finally:
        ctx.prec = before


def list_unchecked(text: str) -> list[str]:
    """Return the statements of a proved certificate that `prove` does not check."""
    content = _parse_json(text)
    is_answer = "certificate" in content and content.get("format") != Format.statistic
    left = ["where theta lies: domain and public grid"] if is_answer else []
    kind = content.get("certificate", content).get("kind", "draw")
    if kind.startswith(("noise/", "stats/")):
        return left
    if kind == "declared":
        return ["that the mechanism has the event, which is its author's word"]
    left = ["bounds of the risk", *left]
    if kind == "draw" or kind in STEPS:
        return left
    if kind in SELECTIONS:
        return ["the bound of the scores' rounding errors", *left]
    if kind in PURE_TILTS:
        solver = "that the solver keeps its gap"
        return [solver, "the radius of a domain without a table", *left]
    return ["that the listed noise gives the event, which is taken as stated", *left]


# Reading.


def _fail(reason: str) -> NoReturn:
    raise NotProved(f"Not proved: {reason}.")


def _require(holds: bool, reason: str) -> None:
    if not holds:
        _fail(reason)


def _parse_json(text: str) -> Json:
    """Return the content of JSON that can be read in one way only.

    Keys must not repeat, and numbers must be written as Python writes them, so that no
    other program reads another certificate in the same file.
    """

    def once(pairs: list[tuple[str, Any]]) -> Json:
        _require(len(dict(pairs)) == len(pairs), "a key is repeated")
        return dict(pairs)

    def shortest(kind: type) -> Callable[[str], Any]:
        def number(digits: str) -> Any:
            is_short = len(digits) <= 40 and repr(kind(digits)) == digits
            _require(is_short, f"{digits[:40]} is not written as Python writes it")
            return kind(digits)

        return number

    try:
        content = json.loads(
            text,
            object_pairs_hook=once,
            parse_float=shortest(float),
            parse_int=shortest(int),
            parse_constant=lambda word: _fail(f"{word} is not a number"),
        )
    except (json.JSONDecodeError, TypeError, RecursionError):
        _fail("the text is not JSON")
    _require(isinstance(content, dict), "the text is not a certificate")
    certificate: Json = content
    return certificate


def _float(value: Any, name: str, *, zero: bool = False) -> float:
    """Return a stated float, which is positive and normal, or 0 if ``zero``."""
    _require(isinstance(value, float), f"{name} is not a float")
    is_normal = 2.0**-1022 <= value < math.inf  # subnormal numbers lack digits
    _require(
        is_normal or (zero and value == 0.0), f"{name} = {value!r} is out of range"
    )
    return float(value)


def _exponent(value: Any) -> Ball:
    """Return 1/p of a stated exponent p in [1, inf]."""
    if value == "inf":
        return arb(0)
    is_number = isinstance(value, float | int) and not isinstance(value, bool)
    _require(is_number and value >= 1, f"{value!r} is not an exponent")
    return 1 / arb(value)


def _bound(value: Any, name: str) -> Ball:
    """Return a declared bound, >= 0 and finite."""
    is_number = isinstance(value, float | int) and not isinstance(value, bool)
    _require(is_number and 0 <= value < math.inf, f"{name} = {value!r} is not a bound")
    return arb(value)


def _sha256(content: object) -> str:
    """Return the SHA-256 of the canonical JSON of a value."""
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _check_binding(release: Json) -> None:
    """Check that a release's digest binds theta, names, encoding and certificate."""
    theta = release["theta"]
    _require(all(isinstance(x, float) for x in theta), "theta is not a list of floats")
    bound = {
        "certificate": release["certificate"]["digest"],
        "encoding": release["encoding"],
        "feature_names": release["feature_names"],
        "theta": [x.hex() for x in theta],
    }
    _require(
        release["digest"] == _sha256(bound), "theta and certificate are not one release"
    )


# Parts of both kinds of certificates.


@functools.cache
def _registry() -> Json:
    with (CERTIFICATES / "registry.toml").open("rb") as file:
        return tomllib.load(file)


def _check_identifiers(
    c: Json, kind: Json, theorems: list[list[str]], rest: Json
) -> None:
    """Check the identifiers of a certificate, their sentences and the digest.

    ``theorems`` has the lists of theorems that are allowed. ``rest`` has the
    assumptions "before" and "after" those of the kind, and says whether there are
    "records", about which there is a further assumption.
    """
    table = _registry()
    # Sentences may be those of an earlier version, which the seal names.
    words, version = table["theorems"] | table["assumptions"], table["version"]
    while version > 1 and not c["registry"].startswith(f"{version}:"):
        version -= 1
        words |= table["former"][str(version)]
    _require(c["theorems"] in theorems, f"theorems are not {theorems[0]}")
    # Earlier versions list nothing that was added later.
    since = table["since"]
    are_old = all(since.get(name, 1) <= version for name in c["theorems"])
    _require(are_old, f"version {version} has no such theorems")
    records = ["RECORDS.REFUSED"], ["RECORDS.CLIPPED"]
    middle = kind.get("assumptions", [])
    allowed = [
        [*rest["before"], *middle, *rest["after"], *(r if rest["records"] else [])]
        for r in records
    ]
    allowed += [
        [*assumptions, "FIT.SEARCH"] for assumptions in allowed if rest["records"]
    ]
    allowed = [[name for name in a if since.get(name, 1) <= version] for a in allowed]
    _require(c["assumptions"] in allowed, f"assumptions are not {allowed[0]}")
    used = {name: words[name] for name in (*c["theorems"], *c["assumptions"])}
    seal = f"{version}:{_sha256(used)}"
    _require(c["registry"] == seal, "the words behind the identifiers are others")
    _require(isinstance(c["seeded"], bool), "seeded is not a bool")
    is_proved = c["calibration"] != "paper" and ("event" not in c or bool(c["event"]))
    is_releasable = kind.get("releasable", True) and not c["seeded"] and is_proved
    _require(c["releasable"] is is_releasable, f"releasable is not {is_releasable}")
    _require(
        c["digest"] == _sha256(c | {"digest": ""}), "the digest belongs to other fields"
    )


def _registered_kind(name: str, stated: _Spec | str, *, field: str) -> Json:
    """Return a kind of the registry that has the mechanism."""
    kinds = _registry()["kinds"]
    _require(name in kinds, f"kind {name!r} is unknown")
    kind: Json = kinds[name]
    is_spec = isinstance(stated, _Spec)
    label = stated.type if isinstance(stated, _Spec) else stated
    if not kind["by"]:
        is_name = is_spec or Pattern.label.fullmatch(label) is not None
        _require(is_name, f"{field} {label!r} is not a name")
        return kind
    is_allowed = label in kind["by"] and is_spec == (label in _registry()["types"])
    _require(is_allowed, f"{field} {label!r} is unknown to {name!r}")
    # Classes have gained options since certificates had texts, but no sampler has.
    if isinstance(stated, _Spec) and (name.startswith("draw/") or not stated.is_former):
        _check_parameters(stated, field)
    return kind


def _read_spec(c: Json, field: str) -> _Spec | str:
    """Return the mechanism of a certificate, or the name that it has instead."""
    value = c[field]
    if c["format"] in Format.former:
        _require(isinstance(value, str), f"{field} is not a text")
        call = Pattern.call.fullmatch(value)
        return value if call is None else _read_call(call[1], call[2])
    if isinstance(value, str):
        return value
    _check_spec(value, field, MAX_DEPTH)
    return _Spec(value["type"], value["parameters"], is_former=False)


def _check_spec(value: object, field: str, depth: int) -> None:
    """Check the form of a mechanism, or of a part of one."""
    _require(depth >= 0, f"{field} is nested too deeply")
    if isinstance(value, list):
        for item in value:
            _check_spec(item, field, depth - 1)
    elif isinstance(value, dict):
        has_fields = set(value) == {"type", "parameters"}
        _require(has_fields, f"{field} is not a type with parameters")
        names = [value["type"], *value["parameters"]]
        are_names = all(
            isinstance(n, str) and Pattern.parameter.fullmatch(n) for n in names
        )
        _require(are_names, f"{field} has a type or a parameter that is not a name")
        _require(isinstance(value["parameters"], dict), f"{field} has no parameters")
        for item in value["parameters"].values():
            _check_spec(item, field, depth - 1)
    elif isinstance(value, str):
        is_word = Pattern.option_word.fullmatch(value) is not None
        _require(is_word, f"{field} has the text {value[:40]!r}, which is not a word")
    else:
        is_plain = value is None or isinstance(value, float | int)
        _require(is_plain, f"{field} has a value of another type")


def _check_parameters(spec: _Spec, field: str) -> None:
    """Check that a mechanism has the parameters of its type, in their order."""
    listed = _registry()["types"][spec.type]
    parameter_names = [name.removesuffix("?") for name in listed]
    stated = [name for name in parameter_names if name in spec.parameters]
    _require(
        [*spec.parameters] == stated, f"the parameters of {field} are not {listed}"
    )
    if not spec.is_former:
        missing = [name for name in listed if not name.endswith("?")]
        is_whole = set(missing) <= set(stated)
        _require(is_whole, f"the parameters of {field} are not {listed}")
    for name, value in spec.parameters.items():
        if name == "boundary_loss" and value is not None:
            losses = {_class_name(loss): fields for loss, fields in LOSSES.items()}
            is_loss = isinstance(value, dict) and value["type"] in losses
            _require(is_loss, "boundary_loss is not a loss")
            fields = losses[value["type"]].split()
            _require(
                [*value["parameters"]] == fields, "boundary_loss has other parameters"
            )
        else:
            has_part = '"type"' in json.dumps(value)
            _require(not has_part, f"{name} of {field} is not a plain value")


def _class_name(name: str) -> str:
    """Return the name of the class of a loss."""
    return "".join(word.capitalize() for word in name.split("_"))


def _read_call(name: str, text: str) -> _Spec:
    """Return the mechanism that a call of a former format describes."""
    parameters: Json = {}
    for option, value in re.findall(
        rf"([a-z0-9_]+)=({Pattern.value}|{Pattern.loss})", text
    ):
        _require(option not in parameters, f"{option} is repeated")
        loss = re.fullmatch(r"([A-Za-z]+)\((.*)\)", value)
        if loss is None:
            parameters[option] = _read_plain(value)
        else:
            part = _read_call(loss[1], loss[2])
            parameters[option] = {"type": part.type, "parameters": part.parameters}
    return _Spec(name, parameters, is_former=True)


def _read_plain(text: str) -> Any:
    """Return the value that a text of Python stands for, as JSON holds it."""
    if text in ("None", "True", "False"):
        return {"None": None, "True": True, "False": False}[text]
    if text.startswith("("):
        items = text[1:-1].removesuffix(",").split(", ")
        return [_read_plain(item) for item in items if item]
    if text.startswith("'") or text.endswith("inf"):
        return text.strip("'")
    number = int(text) if re.fullmatch("-?[0-9]+", text) else float(text)
    _require(repr(number) == text, f"{text} is not written as Python writes it")
    return number


def _common_assumptions(kind: Json) -> list[str]:
    """Return the assumptions of all mechanisms, without those that a kind proves."""
    proved = {"ARITHMETIC": "counted", "TIME": "timed"}
    names = ("ARITHMETIC", "BITS", "PUBLIC", "TIME", "COMPOSITION", "UNIT")
    return [name for name in names if not kind.get(proved.get(name, ""), False)]


def _budget(c: Json, *, pure: bool = False) -> tuple[float, float, str]:
    """Return epsilon, delta and the neighboring relation of the budget."""
    budget = c["budget"]
    _require(set(budget) == {"epsilon", "delta", "relation"}, "the budget is malformed")
    _require(budget["relation"] in SHIFTS, "the relation is unknown")
    epsilon = _float(budget["epsilon"], "epsilon")
    delta = _float(budget["delta"], "delta", zero=pure)
    _require(delta < 1.0, "delta >= 1")
    return epsilon, delta, budget["relation"]


def _prove_at_most(
    name: str, sides: Callable[[], tuple[Ball, Ball]]
) -> tuple[str, str, str]:
    """Prove left <= right, with as many bits of precision as that takes.

    ``sides`` computes both sides in the current precision.
    """
    bits = 64
    while bits <= MAX_BITS:
        ctx.prec = bits
        left, right = sides()
        line = name, left.str(6, radius=False), right.str(6, radius=False)
        # Comparisons of balls are true only if they hold for all their points. If the
        # balls overlap, neither is.
        if left <= right:
            return line
        if left > right:
            _fail(f"{name} is false, {line[1]} > {line[2]}")
        bits *= 2
    _fail(f"{name} is not decided with {MAX_BITS} bits")


def _check_stated(name: str, stated: float, sides: Callable[[], Ball]) -> None:
    """Check that a number agrees with the one that follows from the facts."""
    # Relative difference that is allowed between numbers that are stated for the reader
    # and the same numbers as they follow from the facts.
    slack = 1e-9
    _prove_at_most(
        f"{name} as stated", lambda: (arb(stated), sides() * (1 + arb(slack)))
    )
    _prove_at_most(
        f"{name} as stated", lambda: (sides() * (1 - arb(slack)), arb(stated))
    )


# Sensitivities, from tables of losses and domains of this file.


# Exponents p of norms are passed as 1/p, named ``inverse``, which is 0 for the maximum.
# The exponent of the dual norm is then 1 - inverse.


def _power(base: Ball, exponent: Ball) -> Ball:
    return (exponent * base.log()).exp()


def _norm(entries: list[Ball], inverse: Ball) -> Ball:
    """Return the l_p norm of entries >= 0, where ``inverse`` is 1/p."""
    largest = arb(0)
    for entry in entries:
        largest = largest.max(entry)
    if inverse == 0 or not largest > 0:
        return largest
    # Relative to the largest entry, powers neither overflow nor vanish.
    total = sum((_power(x / largest, 1 / inverse) for x in entries if x > 0), arb(0))
    return largest * _power(total, inverse)


def _conversion(size: int, have: Ball, want: Ball) -> Ball:
    """Return the largest l_want norm over the l_have norm; both exponents as 1/p."""
    return _power(arb(size), (want - have).max(arb(0)))


def _domain_norm(facts: Json) -> Ball:
    """Return the largest norm in the domain, in the dual of the rows' norm."""
    domain, dim = facts["domain"], facts["dim"]
    inverse = 1 - _exponent(facts["row_norm"])
    name = domain["name"]
    if name == "ball":
        center = domain["center"]
        spread = _conversion(dim, _exponent(domain["p"]), inverse)
        largest = [] if center is None else [abs(arb(x)) for x in center]
        return _norm(largest, inverse) + _bound(domain["radius"], "radius") * spread
    if name == "box":
        pairs = _box_ends(domain, dim)
        largest = [abs(arb(a)).max(abs(arb(b))) for a, b in pairs]
        return _norm(largest, inverse) * _conversion(dim // len(pairs), arb(0), inverse)
    if name == "simplex":
        return arb(1)
    if name == "schatten_ball":
        spread = _conversion(min(domain["shape"]), _exponent(domain["p"]), inverse)
        return _bound(domain["radius"], "radius") * spread
    _fail(f"this checker has no table for the {facts['loss']['name']} loss on a {name}")


def _row_bound(facts: Json) -> Ball:
    """Return the bound of a row, including the 1 of an intercept."""
    row = _bound(facts["row_bound"], "row_bound")
    if not facts["intercept"]:
        return row
    return _norm([row, arb(1)], _exponent(facts["row_norm"]))


def _slope_bound(facts: Json) -> Ball:
    """Return the largest derivative of the loss with respect to the margin.

    It holds on the whole domain, for every possible record.
    """
    loss, response = facts["loss"], facts["response_bound"]
    name = loss["name"]
    if name in ("logistic", "hinge", "smoothed_hinge", "absolute"):
        return arb(1)
    if name == "quantile":
        level = arb(loss["level"])
        return level.max(1 - level)
    if name == "huber":
        return _bound(loss["width"], "width")
    if name == "calibrated_logistic":
        return arb(1) / 2
    if name == "capped_logistic":
        return _bound(loss["cap"], "cap").min(arb(1))
    if name == "custom":
        return _bound(loss["declared_slope"], "declared_slope")
    bound = arb(1) if response is None else _bound(response, "response_bound")
    if name == "linear":
        return bound
    _require(name in ("squared", "power_four"), f"the loss {name!r} is unknown")
    _require(response is not None, "the responses have no bound")
    margin = _row_bound(facts) * _domain_norm(facts) + _bound(
        facts["offset_bound"], "offset_bound"
    )
    return margin + bound if name == "squared" else 4 * (margin + bound) ** 3


def _lipschitz(facts: Json, p: object) -> Ball:
    """Return the Lipschitz constant of one record's loss in the l_p norm.

    For matrices it is the Schatten-p norm.
    """
    return _slope_bound(facts) * _row_bound(facts) * _dual_ratio(facts, p)


def _dual_ratio(facts: Json, p: object = 2.0) -> Ball:
    """Return the largest ratio of the dual of the l_p norm and the norm of rows."""
    size = facts["dim"]
    if facts["domain"]["name"] == "schatten_ball":
        size = min(facts["domain"]["shape"])
    return _conversion(size, _exponent(facts["row_norm"]), 1 - _exponent(p))


# Range of one record's loss, for draws that are calibrated by it. Rows may exceed their
# bound by a rounding error of 1e-12.
ROW_SLACK = 2e-12


def _positive(x: Ball) -> Ball:
    """Return max(0, x)."""
    return x.max(arb(0))


def _loss_value(loss: Json, u: Ball, y: Ball) -> Ball:
    """Return phi(u, y) of a loss with a table here, convex in u."""
    z, e = y * u, abs(u - y)
    match loss["name"]:
        case "linear":
            return -z
        case "hinge":
            return _positive(1 - z)
        case "logistic":
            return _softplus(-z)
        case "capped_logistic":
            # The tangent at the log odds of the cap continues the logistic loss.
            cap = arb(loss["cap"])
            odds = (cap / (1 - cap)).log()
            return _softplus((-z).min(odds)) + cap * _positive(-z - odds)
        case "calibrated_logistic":
            return (-_positive(z)).exp() / 2 + _positive(-z) / 2
        case "smoothed_hinge":
            # The smoothed hinge is a Huber function of the gap 1 - z, where positive.
            width = arb(loss["width"])
            return _huber(_positive(1 - z), width) / width
        case "absolute":
            return e
        case "quantile":
            level = arb(loss["level"])
            return (level * (y - u)).max((level - 1) * (y - u))
        case "huber":
            return _huber(e, arb(loss["width"]))
        case "squared":
            return e**2 / 2
        case "power_four":
            return e**4
    _fail(f"this checker has no range of the {loss['name']} loss")


def _softplus(x: Ball) -> Ball:
    return _positive(x) + (1 + (-abs(x)).exp()).log()


def _huber(size: Ball, width: Ball) -> Ball:
    """Return the integral of min(t, width) over t from 0 to ``size`` >= 0."""
    low = size.min(width)
    return low**2 / 2 + width * (size - low)


def _largest_oscillation(facts: Json) -> Ball:
    """Return the largest sup f - inf f on the domain of one record's loss f.

    The loss is convex in the margin, and the margins of a record fill an interval of
    length at most W inside [-U, U]. The largest oscillation is at an interval of length
    W at one of the ends, with one of the largest responses.
    """
    loss, response = facts["loss"], facts["response_bound"]
    name, rows = loss["name"], _row_bound(facts) * (1 + arb(ROW_SLACK))
    radius = _domain_norm(facts)
    offset = _bound(facts["offset_bound"], "offset_bound") * (1 + arb(ROW_SLACK))
    reach = rows * radius + offset
    width = rows * _domain_diameter(facts).min(2 * radius)
    is_label = name in (
        *("logistic", "capped_logistic", "calibrated_logistic"),
        *("hinge", "smoothed_hinge"),
    )
    if name in ("squared", "power_four"):
        _require(response not in (None, "inf"), "the responses have no bound")
    is_free = name in ("absolute", "quantile", "huber") and response in (None, "inf")
    is_free = is_free or name == "custom"
    if is_free:  # the slope's bound is all that is known
        return _slope_bound(facts) * (1 + arb(ROW_SLACK)) * width
    has_default = is_label or (name == "linear" and response is None)
    largest = arb(1) if has_default else _bound(response, "response_bound")
    worst = arb(0)
    for y in (largest, -largest):
        for low in (-reach, reach - width):
            high = low + width
            ends = [_loss_value(loss, low, y), _loss_value(loss, high, y)]
            # Each loss is monotone, or least at u = y.
            nearest = y.max(low).min(high)
            minimum = ends[0].min(ends[1]).min(_loss_value(loss, nearest, y))
            worst = worst.max(ends[0].max(ends[1]) - minimum)
    return worst


def _domain_diameter(facts: Json) -> Ball:
    """Return the largest distance in the domain, in the dual of the rows' norm."""
    domain, dim = facts["domain"], facts["dim"]
    inverse = 1 - _exponent(facts["row_norm"])
    if domain["name"] == "ball":
        spread = _conversion(dim, _exponent(domain["p"]), inverse)
        return 2 * _bound(domain["radius"], "radius") * spread
    if domain["name"] == "box":
        pairs = _box_ends(domain, dim)
        sides = [arb(high) - arb(low) for low, high in pairs]
        return _norm(sides, inverse) * _conversion(dim // len(pairs), arb(0), inverse)
    if domain["name"] == "simplex":  # the distance of two vertices
        return _power(arb(2), inverse)
    return 2 * _domain_norm(facts)


def _is_plain(value: object) -> bool:
    """Return whether a value is a number, None or infinity, or a list of these."""
    if isinstance(value, list):
        return all(map(_is_plain, value))
    is_number = value is None or isinstance(value, float | int)
    return is_number or value in ("inf", "-inf")


def _check_form(content: Json, fields_of: dict[str, str], title: str) -> None:
    """Check that an object has exactly the known fields, without free text."""
    name = content["name"]
    _require(
        isinstance(name, str) and name in fields_of, f"the {title} {name!r} is unknown"
    )
    fields = fields_of[name].split()
    if name == "polytope" and "A_eq" in content:
        fields += ["A_eq", "b_eq"]
    _require(set(content) == {"name", *fields}, f"the {title} has other fields")
    _require(content.get("events") != [], f"the {title} has no parts")
    for field in fields:
        is_inner = field in ("event", "events", "label")
        _require(
            is_inner or _is_plain(content[field]), f"{title}'s {field} is not a number"
        )
    for inner in (*content.get("events", ()), *filter(None, [content.get("event")])):
        _check_form(inner, fields_of, title)


def _check_point(value: object, dim: int, title: str) -> None:
    """Check that a value is a list of ``dim`` finite numbers."""
    is_point = isinstance(value, list) and len(value) == dim
    _require(is_point, f"{title} is not a point of {dim} numbers")
    for x in value if isinstance(value, list) else []:
        _require(type(x) in (float, int) and math.isfinite(x), f"{x!r} in {title}")


def _box_ends(box: Json, dim: int) -> list[tuple[float, float]]:
    """Return the ends along each coordinate, or only once if all are the same."""
    ends = [box[name] for name in ("lower", "upper")]
    points = [[float(x) for x in (e if isinstance(e, list) else [e])] for e in ends]
    count = max(map(len, points))
    is_point = all(len(point) in (1, dim) for point in points)
    _require(is_point and 0 < count, "a bound of the box is not a point")
    return list(
        zip(*(p if len(p) == count else p * count for p in points), strict=True)
    )


def _check_domain(domain: Json, dim: int) -> None:
    """Check that a domain exists in ``dim`` dimensions."""
    _check_form(domain, DOMAINS, "domain")
    if "radius" in domain:
        _require(bool(_bound(domain["radius"], "radius") > 0), "the radius is 0")
        _exponent(domain["p"])
    if "shape" in domain:
        sides = domain["shape"]
        is_shape = isinstance(sides, list) and len(sides) == 2
        is_shape = is_shape and all(type(n) is int and n > 0 for n in sides)
        is_shape = is_shape and math.prod(sides) == dim
        _require(is_shape, "the shape does not have dim entries")
    if domain.get("center") is not None:
        _check_point(domain["center"], dim, "the center")
    for rows, limits in (("A", "b"), ("A_eq", "b_eq")):
        if rows in domain:
            _require(bool(domain[rows]), f"{rows} has no rows")
            for row in domain[rows]:
                _check_point(row, dim, f"a row of {rows}")
                _require(any(row), f"a row of {rows} is 0")
            _check_point(domain[limits], len(domain[rows]), limits)
    if domain["name"] == "box":
        pairs = _box_ends(domain, dim)
        is_box = all(-math.inf < low < high < math.inf for low, high in pairs)
        _require(is_box, "the box is empty or has no end")


def _check_body(body: Json, dim: int) -> None:
    """Check that K is the unit ball of a norm, as noise in its gauge requires.

    A polytope only needs 0 in its interior.
    """
    _check_domain(body, dim)
    is_known = body["name"] not in ("whole_space", "simplex")
    is_about_zero = is_known and all(x == 0 for x in body.get("center") or [])
    if body["name"] == "box":
        is_about_zero = all(low == -high for low, high in _box_ends(body, dim))
    if body["name"] == "polytope":
        is_about_zero = "A_eq" not in body and min(body["b"]) > 0
    _require(is_about_zero, "K is not a body about 0")


def _check_facts(facts: Json) -> None:
    """Check the public facts of a problem."""
    _require(set(facts) == FACTS, "the facts are malformed")
    _check_form(facts["loss"], LOSSES, "loss")
    for name in {"width", "level", "cap"} & set(facts["loss"]):
        size = _bound(facts["loss"][name], name)
        _require(
            bool(size > 0) and bool(name != "level" or size < 1), f"{name} = {size}"
        )
    _check_domain(facts["domain"], facts["dim"])
    _bound(facts["offset_bound"], "offset_bound")
    _row_bound(facts)
    _exponent(facts["row_norm"])
    bound = facts["response_bound"]
    if bound not in (None, "inf"):
        _require(bool(_bound(bound, "response_bound") > 0), "response_bound is 0")
    for name in ("num_records", "dim"):
        value = facts[name]
        is_count = isinstance(value, int) and not isinstance(value, bool)
        _require(is_count and value >= 1, f"{name} is not a count")
    _require(isinstance(facts["intercept"], bool), "intercept is not a bool")
    is_matrix = facts["domain"]["name"] == "schatten_ball"
    _require(not (is_matrix and facts["intercept"]), "matrices have no intercept")


def _check_regularizer(c: Json) -> None:
    """Check that r is 1-strongly convex in the norm of the sensitivity."""
    r, domain = c["regularizer"], c["facts"]["domain"]
    if r["name"] == "entropy":  # 1-strongly convex by Pinsker's inequality
        fits = set(r) == {"name"} and domain["name"] == "simplex" and c["p"] == 1.0
        _require(fits, "entropy is strongly convex in l1 on the simplex only")
        return
    is_matrix = domain["name"] == "schatten_ball"
    names = {"name", "p", "center", "variant"} | ({"shape"} if is_matrix else set())
    _require(set(r) == names, "the regularizer is malformed")
    _require(r["name"] == ("schatten_squared" if is_matrix else "squared_norm"), "r")
    _require(not is_matrix or r["shape"] == domain["shape"], "r has another shape")
    _require(r["p"] == c["p"] and r["center"] is None, "r belongs to another norm")
    is_printed = c["calibration"] == "paper" and c["p"] == 1.0
    variant = "printed" if is_printed else "optimized"
    _require(r["variant"] == variant, f"r is not {variant}")


# Certificates of draws.


def _gaussian_delta(epsilon: float, gdp: Ball) -> Ball:
    """Return delta of two unit Gaussians at distance gdp; it increases with gdp."""
    if not gdp > 0:
        return arb(0)
    z, root = arb(epsilon) / gdp - gdp / 2, arb(2).sqrt()
    # The second term is e^epsilon times a tail that is farther out by gdp.
    shifted = arb(epsilon).exp() * ((z + gdp) / root).erfc()
    return ((z / root).erfc() - shifted) / 2


def _risk_theorems(c: Json) -> list[list[str]]:
    """Return the lists of theorems that may stand for the risk bound."""
    is_sure, has_ridge = c["confidence"] is not None, c["strong_convexity"] > 0.0
    if not is_sure:
        stability = ["RISK.STABILITY"] if c["risk"] == "population" else []
        return [["RISK.MEAN", *stability]]
    if c["risk"] == "population":
        first = "RISK.ENERGY" if has_ridge else "RISK.MEAN"
        return [[first, "RISK.STABILITY", "RISK.LIPSCHITZ"]]
    # Without a ridge the package takes the smaller of two bounds.
    either = [] if has_ridge else [["RISK.MEAN", "RISK.LIPSCHITZ"]]
    return [["RISK.ENERGY"], *either]


def _check_sampler(c: Json) -> tuple[Json, Json]:
    """Check the sampler of a draw. Return its kind in the registry and parameters."""
    name, spec = "draw", None
    if c["sampler"] is None:
        kind = _registered_kind(name, "draw", field="sampler")
    else:
        spec = _read_spec(c, "sampler")
        label = spec.type if isinstance(spec, _Spec) else spec
        name = f"draw/{label.lower()}"
        kind = _registered_kind(name, spec, field="sampler")
    # Localization needs a bound of the curvature from above.
    loss = c["facts"]["loss"]
    is_smooth = loss["name"] not in {"hinge", "absolute", "quantile", "record_gradient"}
    is_smooth = is_smooth and loss.get("upper_curvature") != "inf"
    _require(name != "draw/localized" or is_smooth, "the loss cannot be localized")
    if name == "draw/global":
        _check_exact(c["facts"], c["p"], GLOBAL_LOSSES)
    if name == "draw/tangentcells":
        piecewise_linear = {"hinge", "absolute", "quantile"}
        _check_exact(c["facts"], c["p"], GLOBAL_LOSSES | piecewise_linear)
        _require(c["facts"]["dim"] <= 3, "cells of more than 3 dimensions")
    if c["budget"]["delta"] == 0.0 and spec is not None:
        is_pure = kind.get("exact", False) and kind.get("counted", False)
        _require(is_pure, "the sampler has an error, which delta = 0 does not include")
    return kind, spec.parameters if isinstance(spec, _Spec) else {}


def _check_exact(facts: Json, p: float, losses: frozenset[str]) -> None:
    """Check that exact draws on all of the domain are possible for public facts."""
    domain, loss = facts["domain"], facts["loss"]
    _require(loss["name"] in losses, "the loss has no exact draws")
    is_body = domain["name"] in ("box", "polytope")
    is_body = is_body and domain.get("A_eq") is None
    if domain["name"] == "ball":
        is_body = domain["p"] in (2.0, "inf")
    _require(is_body and p == 2.0, "the domain or p has no exact draws")


def _check_draw_form(c: Json, kind: Json) -> None:
    """Check the options of a draw's certificate, its theorems and its assumptions."""
    _require(c["risk"] in ("population", "empirical"), "the risk is unknown")
    calibrations = ("exact", "closed_form", "paper", "range")
    _require(c["calibration"] in calibrations, "calibration")
    share, ridge = c["sampler_share"], c["strong_convexity"]
    _float(share, "sampler_share", zero=True)
    _float(ridge, "strong_convexity", zero=True)
    _require(share < 1.0, "sampler_share >= 1")
    _check_risk_form(c)
    # Theorems 3 to 6 choose k and mu: 4 and 6 for the population risk, 5 and 6 with a
    # ridge.
    number = 3 + (c["risk"] == "population") + 2 * (ridge > 0.0)
    choice = f"CHOICE.{number}" + ".PAPER" * (c["calibration"] == "paper")
    curve = f"CURVE.{c['calibration'].upper()}"
    sampler_error = ["NEAR"] if share > 0.0 else []
    first, risks = ["COMPARISON", curve, choice], _risk_theorems(c)
    if c["calibration"] == "range":
        _require(ridge == 0.0 and c["confidence"] is None, "a ridge or a confidence")
        first = ["RANGE", "RANGE.CURVE", "CHOICE.RANGE"]
        is_population = c["risk"] == "population"
        risks = [["RISK.MEAN", *(["RISK.RANGE"] if is_population else [])]]
    theorems = [
        [*first, *risk, *sampler_error, *kind.get("theorems", [])] for risk in risks
    ]
    limit = c["max_work"]
    _require(limit is None or _float(limit, "max_work") >= 1.0, "max_work < 1")
    before = ["LOSS.DECLARED", *_common_assumptions(kind)]
    before += ["RIDGE"] if ridge > 0.0 else []
    after = ["DRAW.WORK"] if limit is not None else []
    is_draw = c["sampler"] is not None
    has_deadline = is_draw and "DRAW.DEADLINE" in c["assumptions"]
    after += ["DRAW.DEADLINE"] if has_deadline else []
    rest = {"before": before, "after": after, "records": is_draw}
    _check_identifiers(c, kind, theorems, rest)
    _check_regularizer(c)


def _check_risk_form(c: Json) -> None:
    """Check that what is stated about the risk consists of numbers, not of words."""
    _float(c["risk_bound"], "risk_bound")
    is_infinite = c["range_bound"] == "inf" and c["strong_convexity"] > 0.0
    _require(is_infinite or _float(c["range_bound"], "range_bound") > 0.0, "no range")
    confidence = c["confidence"]
    is_share = confidence is None or _float(confidence, "confidence") < 1.0
    _require(is_share, "confidence >= 1")


def _prove_draw(c: Json) -> Lines:
    """Prove a `Certificate`: sensitivity, gdp, delta and the sampler's error."""
    _require(set(c) == DRAW_FIELDS, "the certificate has other fields")
    # Only the range of log ratios proves a draw at delta = 0.
    is_range = c["calibration"] == "range"
    facts, (epsilon, delta, relation) = c["facts"], _budget(c, pure=is_range)
    _check_facts(facts)
    kind, parameters = _check_sampler(c)
    _check_draw_form(c, kind)
    numbers = {
        name: _float(c[name], name, zero=name == "delta_exact" and delta == 0.0)
        for name in ("lipschitz", "diff_lipschitz", "k", "mu", "gdp", "delta_exact")
    }
    is_paper, ridge = c["calibration"] == "paper", c["strong_convexity"]
    may_be_exact = kind.get("exact", False) or c["sampler"] is None
    gamma = _float(c["gamma"], "gamma", zero=may_be_exact)
    has_error = c["sampler_share"] > 0.0
    _require((gamma > 0.0) == has_error, "gamma and sampler_share disagree")
    proved = _float(c["epsilon_proved"], "epsilon_proved", zero=is_paper)
    _require(is_paper or proved == epsilon, "epsilon_proved is not the budget's")
    if ridge > 0.0:
        _require(c["mu"] == ridge, "mu is not the ridge's strength")
    else:
        _require(facts["domain"]["name"] != "whole_space", "the domain is unbounded")
    n, shift = facts["num_records"], SHIFTS[relation]
    parameter = "k*Omega/n" if is_range else "gdp"
    # A ridge is part of each record's loss, so a record that is set to zero takes its
    # share of the curvature along.
    loses_curvature = ridge > 0.0 and relation == "zero_out"
    _check_stated("lipschitz", numbers["lipschitz"], lambda: _lipschitz(facts, c["p"]))
    _check_stated(
        "diff_lipschitz",
        numbers["diff_lipschitz"],
        lambda: shift * _lipschitz(facts, c["p"]),
    )

    def distance() -> tuple[Ball, Ball]:
        curvature_kept = 1 - arb(1) / n if loses_curvature else arb(1)
        ratio = arb(numbers["k"]) / (arb(numbers["mu"]) * curvature_kept)
        distance = shift * _lipschitz(facts, c["p"]) / n * ratio.sqrt()
        return distance, arb(numbers["gdp"])

    def curve() -> tuple[Ball, Ball]:
        delta_0 = arb(numbers["delta_exact"])
        if is_range:
            # One record changes n F by its loss, or by two losses if it is replaced.
            change = shift * _largest_oscillation(facts)
            return _range_delta(arb(numbers["k"]) * change / n, proved), delta_0
        return _gaussian_delta(proved, arb(numbers["gdp"])), delta_0

    def spent() -> tuple[Ball, Ball]:
        total = arb(numbers["delta_exact"]) + (1 + arb(proved).exp()) * arb(gamma)
        return total, arb(delta)

    return [
        _prove_at_most("(G_Delta/n)*sqrt(k/mu)<=gdp", distance),
        _prove_at_most(f"delta(epsilon;{parameter})<=delta_0", curve),
        _prove_at_most("delta_0+(1+e^epsilon)*gamma<=delta", spent),
        *(_prove_constant_time(c, parameters, gamma) if kind.get("timed") else []),
    ]


# Draws in constant time. A plan makes a public number of passes over the records. It
# draws T times from a Gaussian envelope of a conditional density, whose center, the
# tangent, is found by J gradient steps. Either theta is released or, if fewer than T of
# all M proposals were accepted, nothing. samplers/proximal/constant_time.py has the
# proof, to whose parts the functions below refer.


class _TimedPlan(NamedTuple):
    """A plan of a draw in constant time: h, T, J, M, and the facts of its problem."""

    step_size: float  # h
    num_steps: int  # T
    num_gradients: int  # J
    num_proposals: int  # M
    k: float
    mu: float
    facts: Json

    @property
    def radius(self) -> Ball | None:
        """Radius of the domain; None for the whole space."""
        domain = self.facts["domain"]
        is_ball = domain["name"] == "ball"
        return _bound(domain["radius"], "radius") if is_ball else None

    def sizes(self) -> tuple[Ball, ...]:
        """Return h, k mu, k L b^2 and k G, all enclosed in balls.

        L bounds the second derivative of the loss, b the l2 norm of a row, and G is the
        Lipschitz constant.
        """
        loss, k = self.facts["loss"], arb(self.k)
        if loss["name"] == "smoothed_hinge":
            curvature = 1 / _bound(loss["width"], "width")
        else:
            curvature = arb(CURVATURES[loss["name"]])
        inverse = _exponent(self.facts["row_norm"])
        row = _row_bound(self.facts)
        row *= _conversion(self.facts["dim"], inverse, arb(0.5))
        slope = k * _lipschitz(self.facts, 2.0)
        return arb(self.step_size), k * arb(self.mu), k * curvature * row**2, slope

    def acceptance(self) -> Ball:
        """Return a lower bound of the acceptance probability p: parts 1 to 4.

        Lengths are in units of 1/sqrt(a), a = k mu (1 + h)/h.
        """
        step, ridge, trace, slope = self.sizes()
        dim, j, radius = self.facts["dim"], self.num_gradients, self.radius
        a = ridge * (1 + step) / step
        s, first = trace / a, 2 * slope / a.sqrt()
        # Gradient steps contract by q. `error` is e, their distance from the tangent.
        q = s / (s + 2)
        if radius is None:
            error = (1 + s) * q ** (j - 1) * first
            exponent = -arb(dim) / 2 * (1 + s / dim).log() - error**2 * s / (2 + 2 * s)
            return exponent.exp()
        reach = a.sqrt() * radius
        error = (1 + s) * q ** (j - 1) * first.min(q * reach)
        return _ball_acceptance(s, reach, error, dim)


def _read_plan(c: Json, parameters: Json) -> _TimedPlan:
    """Read the plan from the parameters of the sampler, and check that it is one."""
    names = ["step_size", "num_steps", "num_gradients", "work"]
    _require([*parameters] == names, "the plan is malformed")
    size = _float(parameters["step_size"], "step_size")
    t, j, b = (parameters[name] for name in names[1:])
    are_counts = all(type(count) is int for count in (t, j, b))
    _require(are_counts, "the plan is malformed")
    is_free = c["max_work"] is None and "DRAW.DEADLINE" not in c["assumptions"]
    _require(is_free, "a plan has no max_work and no deadline")
    # One pass computes the gradient at the start, and each step has J gradients.
    num_proposals = b - 1 - t * j
    _require(min(t, j) >= 1 and num_proposals >= t, "the plan has too few passes")
    _require(b < 2**31, "the plan has too many passes")
    facts, domain = c["facts"], c["facts"]["domain"]
    is_ball = domain["name"] == "ball" and domain["p"] == 2.0
    _require(is_ball or domain["name"] == "whole_space", "no plan for the domain")
    _require(c["p"] == 2.0, "p is not 2")
    is_smooth = facts["loss"]["name"] in {*CURVATURES, "smoothed_hinge"}
    _require(is_smooth, "no plan for the loss")
    return _TimedPlan(size, t, j, num_proposals, c["k"], c["mu"], facts)


def _prove_constant_time(c: Json, parameters: Json, gamma: float) -> Lines:
    """Prove that the plan's steps and passes suffice, on every data set.

    The steps have nine tenths of gamma, and one tenth is for the event that nothing is
    released.
    """
    plan = _read_plan(c, parameters)
    t, m = plan.num_steps, plan.num_proposals

    def distance() -> tuple[Ball, Ball]:
        # Part 6: by Pinsker's inequality from the KL divergence after T steps, which
        # begin at the center at a distance of `start` / sqrt(k mu).
        step, ridge, _, slope = plan.sizes()
        start = slope / ridge.sqrt() + arb(plan.facts["dim"]).sqrt()
        if plan.radius is not None:
            start = start.min(ridge.sqrt() * plan.radius)
        error = start / (2 * step.sqrt()) * (-(t - 1) * (1 + step).log()).exp()
        return error, 9 * arb(gamma) / 10

    def nothing_released() -> tuple[Ball, Ball]:
        # Part 5: P(Bin(M, p) < T) <= exp(-M KL((T - 1)/M || p)).
        p, share = plan.acceptance(), arb(t - 1) / m
        _require(bool(p > share), "more proposals are accepted than p says")
        divergence = (1 - share) * ((1 - share) / (1 - p)).log()
        divergence += share * (share / p).log() if t > 1 else 0
        return (-m * divergence).exp(), arb(gamma) / 10

    return [
        _prove_at_most("TV(num_steps)<=0.9*gamma", distance),
        _prove_at_most("P(nothing released)<=0.1*gamma", nothing_released),
    ]


def _ball_acceptance(s: Ball, reach: Ball, error: Ball, dim: int) -> Ball:
    """Return the least acceptance probability on a ball: parts 3 and 4 of the proof.

    ``s`` is S, ``reach`` the radius R and ``error`` e. ``edge`` is t, and ``fourth``
    bounds E r^4 of r^2 ~ chi^2(d - 1), the squared distance from an axis.
    """
    edge, fourth = arb(2) / 5, arb(dim) ** 2 - 1
    _require(bool(reach >= 3), "the ball is too small for the step")
    # Part 3, centers at a depth of at least t. `inside` bounds P(K).
    phi = (-edge / arb(2).sqrt()).erfc() / 2  # Phi(t)
    lost = (dim - 1) / (2 * reach) + fourth / (2 * reach**3)
    inside = phi - 2 * lost / 5 - (-((reach - edge) ** 2) / 2).exp() / 2
    _require(bool(inside > 0), "the ball is too small for the dimension")
    spread = 1 + fourth / (10 * edge * reach**2 * inside)
    inner = inside * (-s * (spread.sqrt() + error) ** 2 / 2).exp()
    # Part 4, centers outside or just inside. `mean_excess` bounds E X, and `outside`
    # the probability that the proposal leaves the part of K for which that bound holds.
    first, second = (dim - 1) / (2 * (reach - edge)), fourth / (4 * (reach - edge) ** 2)
    density = (-(edge**2) / 2).exp() / (2 * arb.pi()).sqrt()  # phi(t)
    mean_excess = (edge + density / phi) * first + second / 2
    spread = (1 + 8 * first / 5 + second).max(reach / (reach - edge))
    outside = (-((reach / 2 - edge) ** 2) / 2).exp()
    outside += fourth / (4 * reach**3) * (reach / 4 + (reach / (reach - edge)) ** 2)
    if dim > 1:
        # Chernoff bound of chi^2(d - 1) at `ratio` times its mean.
        ratio = reach * (reach - edge) / (2 * (dim - 1))
        _require(bool(ratio > 1), "the ball is too small for the dimension")
        outside += (-(dim - 1) * (ratio - 1 - ratio.log()) / 2).exp()
    # `rate` is l of the exponential proposal at D = -t, and `whole` its acceptance.
    rate = ((edge**2 + 4).sqrt() - edge) / 2
    whole = rate * (-(rate**2) / 2 - edge * rate).exp() * (2 * arb.pi()).sqrt() * phi
    accepted = (-mean_excess - s * (spread.sqrt() + error) ** 2 / 2).exp()
    return inner.min(whole * (accepted - outside))


# Certificates of events.


def _event_delta(event: Json, epsilon: float) -> Ball:
    """Return an upper bound of an event's delta at epsilon."""
    name = event["name"]
    if name == "gaussian":
        return _gaussian_delta(epsilon, arb(_float(event["gdp"], "gdp", zero=True)))
    if name in ("pure", "approximate"):
        event_epsilon = _float(event["epsilon"], "event's epsilon", zero=True)
        fails = arb(0)
        if name == "approximate":
            fails = arb(_float(event["delta"], "event's delta", zero=True))
        if epsilon >= event_epsilon:
            return fails
        # The worst mechanism is randomized response that fails with this probability
        # (Kairouz et al. 2015).
        excess = 1 - (arb(epsilon) - arb(event_epsilon)).exp()
        return fails + (1 - fails) * excess / (1 + (-arb(event_epsilon)).exp())
    if name == "bounded_range":
        return _bounded_range_delta(_float(event["range"], "range", zero=True), epsilon)
    if name == "near":
        return _near_delta(event, epsilon)
    if name == "parallel":
        worst = arb(0)
        for part in event["events"]:
            worst = worst.max(_event_delta(part, epsilon))
        return worst
    if name == "concentrated":
        return _concentrated_delta(_float(event["rho"], "rho", zero=True), epsilon)
    if name == "composed" and all(e["name"] == "gaussian" for e in event["events"]):
        parts = [_float(e["gdp"], "gdp", zero=True) for e in event["events"]]
        total = sum((arb(gdp) ** 2 for gdp in parts), arb(0))
        return _gaussian_delta(epsilon, total.sqrt())
    _fail(f"this checker does not account for {name} events")


def _search_minimum(
    value: Callable[[float], Ball], low: float, high: float, num_steps: int
) -> tuple[float, float]:
    """Return an interval around a minimum, shortened by golden sections."""
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    for _ in range(num_steps):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if value(left) <= value(right):
            high = right
        else:
            low = left
    return low, high


def _near_delta(event: Json, epsilon: float) -> Ball:
    """Return a bound of delta of a mechanism near another one.

    It is delta_0(e) + (1 + exp(e)) distance, with delta_0 of the other mechanism, the
    total-variation distance, and the best e <= epsilon that is found. Every such e is a
    bound, so the search for it need not be exact.
    """
    distance = _float(event["total_variation"], "distance", zero=True)

    def bound(e: float) -> Ball:
        return _event_delta(event["event"], e) + (1 + arb(e).exp()) * arb(distance)

    # A search within searches would take too long.
    simple = ("gaussian", "pure", "bounded_range", "approximate")
    is_simple = event["event"]["name"] in simple
    num_steps = 60 if is_simple else 0
    low, _ = _search_minimum(lambda e: bound(e).mid(), 0.0, epsilon, num_steps)
    return bound(epsilon).min(bound(low))


def _bounded_range_delta(length: float, epsilon: float) -> Ball:
    """Return the largest delta of all pairs whose log ratios span at most ``length``.

    Dong, Durfee and Rogers (2020).
    """
    return _range_delta(arb(length), epsilon) if length > epsilon else arb(0)


def _range_delta(length: Ball, epsilon: float) -> Ball:
    """Return the same of a ball of lengths. It is 0 up to epsilon."""
    missing = _positive(1 - ((arb(epsilon) - length) / 2).exp())
    return missing**2 / (1 - (-length).exp())


def _concentrated_delta(rho: float, epsilon: float) -> Ball:
    """Return a bound of delta of a rho-zCDP mechanism.

    It is Proposition 7 of Canonne, Kamath and Steinke (2020) at an order a = 1 + e^t.
    Every order gives a bound, so the search for t need not be exact.
    """
    if rho == 0.0:
        return arb(0)

    def log_delta(t: float) -> float:
        a = 1.0 + math.exp(t)
        tail = (a - 1.0) * math.log1p(-1.0 / a) - math.log(a)
        return (a - 1.0) * (a * rho - epsilon) + tail

    low, high = _search_minimum(log_delta, -40.0, 40.0, 200)
    a = 1 + arb(math.exp(0.5 * (low + high)))
    tail = (a - 1) * (1 - 1 / a).log() - a.log()
    return ((a - 1) * (a * arb(rho) - arb(epsilon)) + tail).exp()


def _is_count(value: object) -> bool:
    """Return whether a value is a whole number >= 1, and not True."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


class _QueryNoise(NamedTuple):
    """Noise on a query: the kind of its certificate, and the listed inputs."""

    kind: str
    inputs: Json

    @property
    def base(self) -> str:
        """The kind, whether or not errors of numerics are included."""
        return self.kind.removesuffix("/idealized").removesuffix("/pure")

    def take(self, *names: str) -> list[Any]:
        """Return inputs, which must be exactly these and the grid."""
        inputs = self.inputs
        are_all = set(inputs) == {*names, "grid"}
        _require(are_all, f"the inputs are not {', '.join(names)}")
        for name in {"sensitivity", "stddev", "sigma", "scale"} & set(names):
            value = inputs[name]
            is_whole = isinstance(value, int) and not isinstance(value, bool)
            _float(float(value) if is_whole else value, name)
        for name in {"dim", "rows", "columns"} & set(names):
            _require(_is_count(inputs[name]), f"{name} is not a count")
        return [inputs[name] for name in names]

    def check_grid(self, is_exact: bool, scale: Any) -> None:
        """Check the kind and the grid: a power of two, about a 2000th of the scale."""
        kinds = [self.base + ("" if is_exact else "/idealized")]
        if is_exact and self.base in ("noise/laplace", "noise/k_norm"):
            kinds.append(f"{self.base}/pure")
        _require(self.kind in kinds, "the kind is another")
        grid = _float(self.inputs["grid"], "grid")
        public_grid = math.ldexp(1.0, math.frexp(float(scale))[1] - 11)
        _require(grid == public_grid or not is_exact, "the grid is another one")

    def level(self) -> Ball:
        """Return the gdp or epsilon that follows from the inputs."""
        match self.base:
            case "noise/gaussian":
                return self._gaussian()
            case "noise/laplace" | "noise/discrete_laplace":
                return self._laplace()
            case "noise/k_norm":
                return self._k_norm()
        return self._generalized_gaussian()

    def _gaussian(self) -> Ball:
        sensitivity, norm, stddev = self.take("sensitivity", "norm", "stddev")
        _require(norm == "l2", "the norm is not l2")
        self.check_grid(True, stddev)
        return arb(sensitivity) / arb(stddev)

    def _laplace(self) -> Ball:
        sensitivity, norm, scale = self.take("sensitivity", "norm", "scale")
        _require(norm == "l1", "the norm is not l1")
        if self.base == "noise/laplace":
            self.check_grid(True, scale)
        else:
            is_whole = self.kind == self.base and self.inputs["grid"] == 1.0
            _require(is_whole, "the grid is not 1")
            _require(isinstance(sensitivity, int), "the sensitivity is not an integer")
        return arb(sensitivity) / arb(scale)

    def _k_norm(self) -> Ball:
        """Noise with density exp(-gauge / scale), where K is the unit ball."""
        dim, sensitivity, text, scale = self.take("dim", "sensitivity", "K", "scale")
        body = _parse_json(text)
        _check_body(body, dim)
        radius = _float(body.get("radius", 1.0), "radius")
        # Only noise in the l1 ball has independent coordinates, which are drawn
        # exactly.
        is_exact = (body["name"], body.get("p")) == ("ball", 1.0)
        self.check_grid(is_exact, scale * radius)
        return arb(sensitivity) / arb(scale)

    def _generalized_gaussian(self) -> Ball:
        """Noise with density exp(-|x|_r^2 / (2 sigma^2)), of vectors or matrices.

        The sensitivity is stated in the dual of the l_p (Schatten-p) norm, and
        converted to the norm of exponent r.
        """
        if self.base == "noise/generalized_gaussian":
            s, size, p, r, norm, sigma = self.take(
                "sensitivity", "dim", "p", "r", "norm", "sigma"
            )
            prefix = "l_"
        else:
            s, rows, columns, p, r, norm, sigma = self.take(
                "sensitivity", "rows", "columns", "p", "r", "norm", "sigma"
            )
            size, prefix = min(rows, columns), "Schatten-"
        dual = "inf" if p == 1.0 else "1"
        if p not in ("inf", 1.0):
            dual = f"{p / (p - 1.0):g}"
        _require(norm == f"{prefix}{dual}", "the norm is another one")
        # Gaussian noise, and all noise of one number, is drawn exactly.
        self.check_grid(r == 2.0 or size == 1, sigma)
        is_exponent = isinstance(r, float | int) and 2 <= r < math.inf
        _require(is_exponent, "r is not from [2, inf)")
        ratio = _conversion(size, 1 - _exponent(p), _exponent(r))
        return (arb(r) - 1).sqrt() * arb(s) * ratio / arb(sigma)


class _Statistic(NamedTuple):
    """A statistic of a column: whole numbers with noise, or a grid point by ranks.

    Entries of the column are rounded to a grid. Totals are sums of whole numbers of its
    steps, from the middle of the column's bounds for means. So sensitivities are whole
    numbers of steps, too.
    """

    kind: str
    parameters: Json
    inputs: Json
    ends: tuple[Fraction, Fraction]  # bounds of the column, in steps of the grid

    @classmethod
    def read(cls, kind: str, parameters: Json, inputs: Json) -> "_Statistic":
        """Read the parameters of a mechanism, and check the grid."""
        _require(_is_count(inputs.get("num_records")), "num_records is not a count")
        for name in {"num_cells", "num_groups"} & set(parameters):
            _require(_is_count(parameters[name]), f"{name} is not a count")
        if "lower" not in parameters:
            return cls(kind, parameters, inputs, (Fraction(0), Fraction(0)))
        lower, upper = parameters["lower"], parameters["upper"]
        are_floats = isinstance(lower, float) and isinstance(upper, float)
        _require(
            are_floats and 1e-280 <= upper - lower,
            "the upper bound is not above the lower one",
        )
        size = max(abs(lower), abs(upper))
        _require(size <= 1e280, "the bounds are too large")
        # The step is about 2^-41 of the width of the column, and never below the
        # spacing of floats at its ends. Bits are the exponent of this power of two.
        bits = max(math.frexp(upper - lower)[1] - 41, math.frexp(size)[1] - 54)
        _require(inputs.get("grid") == math.ldexp(1.0, bits), "the grid is another one")
        step = Fraction(2) ** bits
        ends = Fraction(lower) / step, Fraction(upper) / step
        return cls(kind, parameters, inputs, ends)

    @property
    def whole_ends(self) -> tuple[int, int, int]:
        """Steps of the lower bound, the middle and the upper bound."""
        lower, upper = map(round, self.ends)
        return lower, (lower + upper) // 2, upper

    def sensitivities(self, relation: str) -> dict[str, int]:
        """Return the sensitivity of each block of totals."""
        lower, middle, upper = self.whole_ends
        moved = SHIFTS[relation]
        reach = max(upper - middle, middle - lower)
        width = upper - lower
        match self.kind:
            case "stats/count":
                return {"": 1}
            case "stats/histogram":
                return {"": moved}
            case "stats/sum":
                return {"": width if moved == 2 else max(abs(lower), abs(upper))}
            case "stats/mean":
                return {"": width if moved == 2 else reach}
            case "stats/group_means":
                return {"sum_": moved * reach, "count_": moved}
        _fail("the statistic is unknown")

    def prove(self, relation: str, event: Json) -> tuple[str, str, str]:
        """Prove that the noise, or the rate of ranks, has the event."""
        inputs = self.inputs
        names = {"num_records"} | ({"grid"} & set(inputs))
        if self.kind == "stats/quantile":
            _require(set(inputs) == {*names, "rate"}, "the inputs are not the rate")
            rate = _float(inputs["rate"], "rate")
            is_float = isinstance(self.parameters["level"], float)
            _require(is_float, "the level is not a float")
            level = Fraction(self.parameters["level"])
            _require(0 < level < 1, "the level is not inside of (0, 1)")
            change = Fraction(1) if relation == "replace_one" else max(level, 1 - level)
            length, limit = 2 * change * Fraction(rate), Fraction(event["range"])
            _require(length <= limit, "the range of the ranks exceeds the event's")
            sides = f"{float(length):.6g}", f"{float(limit):.6g}"
            return "range of the ranks<=event", *sides
        loss = Fraction(0)
        for block, sensitivity in self.sensitivities(relation).items():
            names |= {f"{block}sensitivity", f"{block}scale"}
            stated = inputs.get(f"{block}sensitivity")
            is_same = type(stated) is int and stated == sensitivity
            _require(is_same, f"the {block}sensitivity is not {sensitivity}")
            scale = _float(inputs.get(f"{block}scale"), f"{block}scale")
            loss += sensitivity / Fraction(scale)
        _require(set(inputs) == names, f"the inputs are not {sorted(names)}")
        epsilon = Fraction(event["epsilon"])
        _require(loss <= epsilon, "the epsilon of the noise exceeds the event's")
        return (
            "event of the noise<=event",
            f"{float(loss):.6g}",
            f"{float(epsilon):.6g}",
        )

    def values(self, totals: list[int]) -> list[float] | list[int]:
        """Return the numbers that follow from the totals."""
        lower, middle, upper = self.whole_ends
        if self.kind in ("stats/count", "stats/histogram"):
            _require(len(totals) == self.parameters.get("num_cells", 1), "totals")
            return totals
        if self.kind == "stats/group_means":
            m = self.parameters["num_groups"]
            _require(len(totals) == 2 * m, "the totals are not sums and counts")
            steps = [
                Fraction(a, b) if b > 0 else Fraction(0)
                for a, b in zip(totals[:m], totals[m:], strict=True)
            ]
            steps = [
                min(max(middle + x, Fraction(lower)), Fraction(upper)) for x in steps
            ]
        else:
            _require(len(totals) == 1, "there is not one total")
            steps = [Fraction(totals[0])]
        if self.kind == "stats/mean":
            steps = [middle + x / self.inputs["num_records"] for x in steps]
        if self.kind == "stats/quantile":
            is_inside = self.ends[0] <= steps[0] <= self.ends[1]
            _require(is_inside, "the total is not a grid point within the bounds")
        return [float(x * Fraction(self.inputs["grid"])) for x in steps]


def _check_statistic(answer: Json) -> None:
    """Check the totals of a statistic, its values and the digest that binds them."""
    fields = set("format value names totals certificate digest".split())
    _require(set(answer) == fields, "the statistic has other fields")
    names, totals = answer["names"], answer["totals"]
    _require(all(type(x) is int for x in totals), "totals are not integers")
    are_names = all(isinstance(x, str) for x in names) and len(set(names)) == len(names)
    _require(are_names, "names are not different words")
    certificate = answer["certificate"]
    bound = {
        "certificate": certificate["digest"],
        "names": names,
        "totals": totals,
    }
    _require(answer["digest"] == _sha256(bound), "totals and certificate do not fit")
    spec = _read_spec(certificate, "mechanism")
    _require(isinstance(spec, _Spec), "the mechanism is not a statistic's")
    parameters = spec.parameters if isinstance(spec, _Spec) else {}
    inputs = _inputs(certificate["inputs"])
    values = _Statistic.read(certificate["kind"], parameters, inputs).values(totals)
    expected: Any = dict(zip(names, values, strict=True)) if names else values[0]
    # As text, because Python compares True, 1 and 1.0 as equal.
    is_same = json.dumps(answer["value"]) == json.dumps(expected)
    _require(is_same, "the value does not follow from the totals")
    _require(bool(names) or len(values) == 1, "names are missing")


def _prove_steps(c: Json, parameters: Json, inputs: Json) -> tuple[str, str, str]:
    """Prove that the noise of steps on all records has the event.

    The bound of a record's gradient is a clipping threshold in the parameters of the
    mechanism, or follows from the facts.
    """
    facts, (bounds, noise) = c["facts"], STEPS[c["kind"]]
    names = [name for name in bounds if name in inputs]
    _require(len(names) == 1, f"the inputs do not bound gradients by one of {bounds}")
    bound = _float(inputs[names[0]], names[0])
    stddev = _float(inputs.get(noise), noise)
    planned = parameters.get("num_steps")  # None if the optimizer finds it
    counts = [] if planned is None else [planned]
    counts += [inputs["num_steps"]] if "num_steps" in inputs else []
    for count in counts:
        _require(type(count) is int and count >= 1, "num_steps is not a count")
    _require(len(set(counts)) == 1, "the number of steps is not stated once")
    steps = counts[0]
    clips = [parameters.get("clip"), parameters.get("threshold")]
    is_clipped = any(type(clip) in (int, float) and clip == bound for clip in clips)
    if not is_clipped:
        _check_stated(names[0], bound, lambda: _lipschitz(facts, 2.0))
    shift = SHIFTS[c["budget"]["relation"]]
    stddevs = [
        _query_noise(c, parameters, inputs, query) for query in ("label", "choice")
    ]

    def sides() -> tuple[Ball, Ball]:
        # A stated constant may be too small by the tolerance of the check above.
        largest = arb(bound)
        if not is_clipped:
            largest = largest.max(_lipschitz(facts, 2.0))
        # Gaussian steps compose by the root of the sum of squares.
        unit = shift / arb(facts["num_records"])
        square = (unit * largest / arb(stddev)) ** 2 * steps
        for query_stddev in stddevs:
            # A mean of numbers from -1 to 1, of labels or of changes of losses, is one
            # more query.
            if query_stddev is not None:
                square += (unit / arb(query_stddev)) ** 2
        return square.sqrt(), arb(c["event"]["gdp"])

    return _prove_at_most("event of the noise<=event", sides)


def _prove_selections(c: Json, parameters: Json, inputs: Json) -> Lines:
    """Prove that exact selections have the event, and the sensitivity of their scores.

    Scores are those of the vertices +-R e_j of the l1 ball of radius R.
    """
    facts, domain = c["facts"], c["facts"]["domain"]
    is_l1 = domain["name"] == "ball" and domain["p"] == 1
    is_l1 = is_l1 and all(x == 0 for x in domain["center"] or [])
    _require(is_l1, "the domain is not an l1 ball about 0")
    sensitivity = _float(inputs.get("score_sensitivity"), "score_sensitivity")
    rate = _float(inputs.get("inverse_temperature"), "inverse_temperature", zero=True)
    steps, size = inputs.get("num_steps", 0), facts["num_records"]
    _require(_is_count(steps), "num_steps is not a count")
    is_lasso = c["kind"] == "lasso/pure"
    limit = "entry_bound" if is_lasso else "scale"
    bound, fold = _float(inputs.get(limit), limit), inputs.get("fold_size", 0)
    for name, value in (("num_steps", steps), (limit, bound)):
        stated = parameters.get(name)
        _require(stated is None or stated == value, f"{name} is another one")
    if is_lasso:
        _require(facts["loss"]["name"] == "squared", "the loss is not squared")
    else:
        is_disjoint = _is_count(fold) and fold * steps <= size
        _require(is_disjoint, "a record is in several folds")
    # A record of the lasso is read in every step.
    repeats = int(steps) if is_lasso else 1

    def changes() -> tuple[Ball, Ball]:
        radius = _bound(domain["radius"], "radius")
        if is_lasso:
            margin = arb(bound) * (1 + radius)
            margin += _bound(facts["offset_bound"], "offset_bound")
            unit = arb(bound) * margin / size
        else:  # the soft truncation is at most 2 sqrt(2)/3 times its scale
            unit = 2 * arb(2).sqrt() / 3 * arb(bound) / fold
        return SHIFTS[c["budget"]["relation"]] * radius * unit, arb(sensitivity)

    def sides() -> tuple[Ball, Ball]:
        # The logarithm of a weight and that of the sum of weights move alike.
        return 2 * repeats * arb(rate) * arb(sensitivity), arb(c["event"]["epsilon"])

    return [
        _prove_at_most("change of a score<=sensitivity", changes),
        _prove_at_most("event of the selections<=event", sides),
    ]


def _query_noise(c: Json, parameters: Json, inputs: Json, query: str) -> float | None:
    """Return the noise of a mean label or choice, None if there is no such query."""
    share, name = f"{query}_share", f"{query}_stddev"
    is_asked, is_stated = parameters.get(share) is not None, name in inputs
    _require(is_asked == is_stated, f"{share} and {name} come together")
    if not is_stated:
        return None
    _require(c["kind"] == "steps/full", "a mean label comes before full steps only")
    facts, output = c["facts"], parameters.get("output")
    label_share = _float(parameters.get("label_share"), "label_share")
    stated = parameters.get("choice_share")
    choice_share = 0.0 if stated is None else _float(stated, "choice_share")
    _require(label_share < 1.0 - choice_share, "label_share >= 1 with choice_share")
    is_known = output == "decaying" or (output == "scaled" and stated is None)
    is_known = is_known and parameters.get("clip") is None
    condition = "a mean label comes before a scaled or decaying descent without a clip"
    _require(is_known, condition)
    has_intercept = facts["intercept"] and facts["offset_bound"] == 0.0
    _require(has_intercept, "a mean label needs an intercept, and no offsets")
    loss = facts["loss"]["name"]
    # Labels of these losses are -1 and 1, so that n of them change by 2.
    with_labels = "logistic calibrated_logistic capped_logistic smoothed_hinge hinge"
    _require(loss in with_labels.split(), "a mean label is of labels -1 and 1")
    stddev = _float(inputs[name], name)
    _require(stddev > 0.0, f"{name} is not positive")
    return stddev


def _curvature_bound(facts: Json) -> Ball:
    """Return the largest second derivative of the loss with respect to the margin.

    It holds on the whole domain, for every possible record.
    """
    loss, response = facts["loss"], facts["response_bound"]
    name = loss["name"]
    fixed = {"logistic": 0.25, "calibrated_logistic": 0.5, "huber": 1.0, "linear": 0.0}
    if name in fixed:
        return arb(fixed[name])
    if name == "custom":
        return _bound(loss["upper_curvature"], "upper_curvature")
    if name == "smoothed_hinge":
        width = _bound(loss["width"], "width")
        return arb(0) if _is_within(facts, 1 - width) else 1 / width
    if name == "capped_logistic":
        cap = _bound(loss["cap"], "cap")
        if cap >= 0.5:
            return arb(0.25)
        return arb(0) if _is_within(facts, (1 / cap - 1).log()) else cap * (1 - cap)
    _require(name in ("squared", "power_four"), f"the loss {name!r} has kinks")
    _require(response not in (None, "inf"), "the responses have no bound")
    if name == "squared":
        return arb(1)
    reach = _row_bound(facts) * _domain_norm(facts)
    reach += _bound(facts["offset_bound"], "offset_bound")
    return 12 * (reach + _bound(response, "response_bound")) ** 2


def _is_within(facts: Json, limit: Ball) -> bool:
    """Return whether all margins of all records are below a limit."""
    if facts["domain"]["name"] in ("polytope", "whole_space"):
        return False
    offset = _bound(facts["offset_bound"], "offset_bound")
    return bool(_row_bound(facts) * _domain_norm(facts) + offset < limit)


def _smoothness(facts: Json) -> Ball:
    """Return the l_2 bound phi'' |a|^2 of the curvature of one record's loss."""
    return _curvature_bound(facts) * (_row_bound(facts) * _dual_ratio(facts)) ** 2


def _radius(facts: Json) -> Ball | None:
    """Return the largest l_2 distance from a domain's center; None without a table."""
    domain, dim = facts["domain"], facts["dim"]
    half = arb(1) / 2
    if domain["name"] == "ball":
        spread = _conversion(dim, _exponent(domain["p"]), half)
        return _bound(domain["radius"], "radius") * spread
    if domain["name"] == "schatten_ball":
        spread = _conversion(min(domain["shape"]), _exponent(domain["p"]), half)
        return _bound(domain["radius"], "radius") * spread
    if domain["name"] == "simplex":
        return (1 - arb(1) / dim).sqrt()
    if domain["name"] == "box" and "inf" not in json.dumps(domain):
        pairs = _box_ends(domain, dim)
        sides = [(arb(high) - arb(low)) / 2 for low, high in pairs]
        return _norm(sides, half) * _conversion(dim // len(pairs), arb(0), half)
    return None


def _prove_pure_tilt(c: Json, parameters: Json, inputs: Json) -> Lines:
    """Prove that the random linear term and the output noise have the event.

    `dpsample.privacy.curves.norm_tilt` has the theorem and its letters.
    """
    facts, names = c["facts"], set(inputs) - {"risk_bound"}
    listed = set(
        "lipschitz smoothness radius ridge gap tilt_scale max_tilt output_scale "
        "log_determinant output_epsilon".split()
    )
    _require(names == listed, f"the inputs are not {sorted(listed)}")
    may_be_zero = ("smoothness", "log_determinant", "radius")
    stated = {
        name: _float(inputs[name], name, zero=name in may_be_zero)
        for name in names - {"radius", "max_tilt"}
    }
    ridge, gap = arb(stated["ridge"]), arb(stated["gap"])
    scale, noise = arb(stated["tilt_scale"]), arb(stated["output_scale"])
    own_ridge = parameters.get("ridge")
    _require(
        own_ridge is None or own_ridge == stated["ridge"],
        "the ridge is another one",
    )
    _require(parameters.get("tilt", "norm") == "norm", "the tilt is Gaussian")
    size, dim = facts["num_records"], facts["dim"]
    rows = 1 + arb(3e-12)  # rows may exceed their bound by a rounding error
    shift = SHIFTS[c["budget"]["relation"]]

    def determinant() -> Ball:
        ratio = _smoothness(facts) * rows / (2 * ridge * size)
        return ratio.log1p()

    def output() -> Ball:
        # The objective is 2 ridge-strongly convex, so a gap bounds a distance.
        return 2 * arb(dim).sqrt() * (gap / ridge).sqrt() / noise

    _check_stated("lipschitz", stated["lipschitz"], lambda: _lipschitz(facts, 2.0))
    _check_stated("smoothness", stated["smoothness"], lambda: _smoothness(facts))
    _check_stated("log_determinant", stated["log_determinant"], determinant)
    _check_stated("output_epsilon", stated["output_epsilon"], output)
    length, radius = _tilt_length(inputs, facts, c["kind"])
    if c["kind"] == "objective/pure/rounded":
        _check_rounding(facts)

    def sides() -> tuple[Ball, Ball]:
        total = shift * _lipschitz(facts, 2.0) * rows / scale
        total += determinant() + output()
        if length is not None:
            # Chernoff's bound of the probability of a longer tilt, times the largest
            # ratio of the output's densities.
            x = arb(length) / scale
            _require(bool(x >= dim), "tilts are shortened too much")
            log_tail = dim * (1 + (x / dim).log()) - x
            kappa = 2 * arb(dim).sqrt() * arb(radius) * (1 + arb(1e-9)) / noise
            total += 2 * (log_tail + kappa).exp().log1p()
        return total, arb(c["event"]["epsilon"])

    return [_prove_at_most("tilt+output noise<=epsilon", sides)]


def _tilt_length(inputs: Json, facts: Json, kind: str) -> tuple[float | None, float]:
    """Return the largest length of a tilt, None without one, and the radius."""
    radius, length = inputs["radius"], inputs["max_tilt"]
    is_free = length in ("inf", math.inf)
    if radius in ("inf", math.inf):
        _require(is_free, "tilts are shortened on an unbounded domain")
        _require(kind == "objective/pure", "rounding errors have no bound")
        return None, 0.0
    size = _float(radius, "radius", zero=True)
    _check_radius(size, facts)
    if is_free:
        _require(kind == "objective/pure", "rounding errors have no bound")
        return None, size
    return _float(length, "max_tilt"), size


def _check_rounding(facts: Json) -> None:
    """Check that rounding errors of the solver's steps have a bound.

    It is known for losses of few operations on Euclidean balls and boxes.
    """
    name, domain = facts["loss"]["name"], facts["domain"]
    losses = "linear logistic capped_logistic calibrated_logistic smoothed_hinge huber"
    is_round = domain["name"] == "ball" and _exponent(domain["p"]) == 0.5
    has_few_operations = name in (*losses.split(), "squared")
    is_counted = has_few_operations and (is_round or domain["name"] == "box")
    _require(is_counted, f"rounding errors of {name} on {domain} have no bound")


def _check_radius(stated: float, facts: Json) -> None:
    """Check the stated radius against the domain, if it has a table here."""
    if _radius(facts) is None:
        name = facts["domain"]["name"]
        _require(name == "polytope", "an unbounded domain has a radius")
        return

    def radius() -> Ball:
        bound = _radius(facts)
        return arb(0) if bound is None else bound

    _check_stated("radius", stated, radius)


def _inputs(pairs: list[list[Any]]) -> Json:
    """Return the listed inputs by name, which are numbers, words or a domain K."""
    for name, value in pairs:
        is_word = isinstance(value, str) and Pattern.word.fullmatch(value) is not None
        is_body = name == "K" and isinstance(value, str)
        is_plain = value is None or isinstance(value, float | int)
        is_allowed = is_word or is_body or is_plain
        _require(is_allowed, f"the input {name!r} is not a number or a word")
        _require(Pattern.name.fullmatch(name) is not None, f"{name!r} is not a name")
    inputs = dict(pairs)
    _require(len(inputs) == len(pairs), "an input is repeated")
    return inputs


def _loss_assumptions(kind: Json, loss: str) -> list[str]:
    """Return the assumptions about a loss, and check that the kind supports it."""
    is_trusted = kind.get("trusts", False)
    if loss == "record_gradient":
        # Such a loss has gradients of records but no margin, on which these proofs
        # rest.
        prefixes = ("CLIPPED.CONVEX", "MOVES.", "OBJECTIVE")
        needs_margin = any(
            name.startswith(prefixes) for name in kind.get("theorems", [])
        )
        needs_margin = needs_margin or is_trusted
        _require(not needs_margin, "the proof needs a loss of the margin")
    declared = ["LOSS.DECLARED"] if is_trusted and loss == "custom" else []
    is_own = loss in ("custom", "record_gradient")
    return [*declared, "FIT.WORK", *(["LOSS.OWN"] if is_own else [])]


def _event_budget(c: Json) -> tuple[float, float]:
    """Return epsilon and delta, and check that the kind may have such a delta."""
    epsilon, delta, _ = _budget(c, pure=True)
    is_cut_off = c["kind"] in ON_DEMAND and delta > 0.0
    _require(not is_cut_off, "digits on demand are drawn for delta = 0 only")
    return epsilon, delta


def _prove_event(c: Json) -> Lines:
    """Prove an `EventCertificate`: delta of the event, and the event of the noise."""
    _require(set(c) == EVENT_FIELDS, "the certificate has other fields")
    epsilon, delta = _event_budget(c)
    spec = _read_spec(c, "mechanism")
    kind = _registered_kind(c["kind"], spec, field="mechanism")
    inputs, event, facts = _inputs(c["inputs"]), c["event"], c["facts"]
    _require(c["calibration"] in ("exact", "paper"), "calibration")
    if event is not None:
        _check_form(event, EVENTS, "event")
    name = "" if event is None else event["name"]
    _require(name in kind["events"], f"{c['kind']!r} is not a {name} event")
    if event is None:
        _require(c["calibration"] == "paper", "nothing is proved without an event")
        _require(c["epsilon_proved"] == "inf", "no epsilon is proved")
    is_noise = c["kind"].startswith("noise/")
    is_statistic = c["kind"].startswith("stats/")
    has_none = c["kind"] == "declared" or is_noise or is_statistic
    is_given = has_none == (facts is None)
    _require(is_given, "only a fit has facts, and it must have them")
    after = []
    if facts is not None:
        _check_facts(facts)
        after = _loss_assumptions(kind, facts["loss"]["name"])
    theorems = kind.get("theorems", [])
    before = _common_assumptions(kind)
    rest = {"before": before, "after": after, "records": facts is not None}
    _check_identifiers(c, kind, [theorems, [*theorems, "RENYI.POISSON"]], rest)
    if event is None:
        return []
    if c["epsilon_proved"] == "inf":
        _require(c["calibration"] == "paper", "no epsilon is proved")
        return []
    proved = _float(c["epsilon_proved"], "epsilon_proved", zero=True)
    if c["calibration"] == "exact":
        _require(proved <= epsilon * (1.0 + 1e-9), "epsilon_proved exceeds the budget")

    def curve() -> tuple[Ball, Ball]:
        return _event_delta(event, proved), arb(delta)

    lines = [_prove_at_most("delta(epsilon;event)<=delta", curve)]
    parameters = spec.parameters if isinstance(spec, _Spec) else {}
    if c["kind"] in STEPS:
        lines.append(_prove_steps(c, parameters, inputs))
    if c["kind"] in SELECTIONS:
        lines += _prove_selections(c, parameters, inputs)
    if c["kind"] in PURE_TILTS:
        lines += _prove_pure_tilt(c, parameters, inputs)
    if is_statistic and isinstance(spec, _Spec):
        statistic = _Statistic.read(c["kind"], spec.parameters, inputs)
        lines.append(statistic.prove(c["budget"]["relation"], event))
    if is_noise:
        stated = event["gdp" if name == "gaussian" else "epsilon"]
        noise = _QueryNoise(c["kind"], inputs)

        def level() -> tuple[Ball, Ball]:
            return noise.level(), arb(stated)

        lines.append(_prove_at_most("event of the inputs<=event", level))
    return lines


def main(arguments: list[str]) -> int:
    """Prove a file and print the inequalities. Return 0 if all of them are proved."""
    if len(arguments) != 1:
        print("usage: ball_checker.py FILE")
        return 2
    try:
        text = Path(arguments[0]).read_text(encoding="utf-8-sig")
        lines, left = prove(text), list_unchecked(text)
    except (NotProved, ImportError, OSError, UnicodeDecodeError) as error:
        print(error)
        return 1
    for name, lower, upper in lines:
        print(f"{name}  {lower} <= {upper}")
    if left:
        print(f"Not checked: {'; '.join(left)}.")
    is_given = any("event" in words for words in left)
    print("Proved, if the event is as stated." if is_given else "Proved.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
