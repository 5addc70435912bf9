"""Ball checker: a proof of a certificate's inequalities, from its JSON alone.

It shares no code with the rest of dpsample: this file, `registry.toml` and python-flint
are all it needs, neither NumPy nor Numba. Numbers are enclosed in balls whose radius
counts every rounding, and the precision is doubled until an inequality is decided:

    python dpsample/verification/ball_checker.py answer.json

What is proved: that the sensitivity follows from the listed facts, gdp from it, delta
from gdp (Balle and Wang 2018, equation (6)), and that gamma fits into the rest of
delta. Of events, that their delta at the stated epsilon is at most the stated one, and
for noise on a query and noisy steps on all records that the listed noise has the event.
What else is stated is not looked at; `unchecked` lists it.
"""

import functools
import hashlib
import json
import math
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

try:
    from flint import arb, ctx
except ImportError:  # said in words by `prove`
    arb = ctx = None

Json = dict[str, Any]
Ball = Any  # arb
Lines = list[tuple[str, str, str]]  # name, left side and right side

REGISTRY = Path(__file__).with_name("certificates") / "registry.toml"
# Bits of precision, doubled from the first to the second number.
FIRST_BITS = 64
MAX_BITS = 1 << 14
SMALLEST_NORMAL = 2.0**-1022
# Relative difference that is allowed between numbers that are stated for the reader
# and the same numbers as they follow from the facts.
AGREEMENT = 1e-9
# Formats of certificates and answers.
DRAW = "dpsample certificate 2"
EVENT = "dpsample event certificate 2"
RELEASE = "dpsample-release-3"
FIT = "dpsample-fit-1"
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
# Fields of losses, domains and events, besides their names: numbers and lists of them,
# except the label of a user's own loss.
OWN = "label declared_slope lower_curvature upper_curvature third_derivative labels"
LOSSES = dict.fromkeys(["linear", "logistic", "hinge", "absolute", "squared"], "") | {
    "power_four": "",
    "calibrated_logistic": "",
    "smoothed_hinge": "width",
    "huber": "width",
    "quantile": "level",
    "capped_logistic": "cap",
    "custom": f"{OWN} reads_response",
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
    "approximate": "epsilon delta",
    "concentrated": "rho",
    "near": "event total_variation",
    "composed": "events",
    "parallel": "events",
    "poisson_gaussian": "sampling_rate noise_multiplier num_steps",
    "allocated_gaussian": "noise_multiplier num_steps num_epochs",
}
COMMON = ["ARITHMETIC", "BITS", "PUBLIC", "TIME"]
SHIFTS = {"replace_one": 2, "zero_out": 1}
# Kinds of noisy steps on all records: inputs with the bound of a record's gradient, of
# which one is there, and with the noise of a step.
STEPS = {
    "steps/full": (["lipschitz"], "noise_stddev"),
    "clipped/full": (["clip", "lipschitz"], "noise_stddev"),
    "proximal/clip/full": (["record_bound"], "stddev"),
}
VALUE = (
    r"(?:-?[0-9][0-9.e+-]*|-?inf|'[a-z0-9_]{1,40}'|None|True|False|\([0-9., e+-]*\))"
)
OPTIONS = {
    "draw/localized": "",
    "draw/proximal": "oracle step_size",
    "draw/constanttime": "step_size num_steps num_gradients work",
    "draw/exact": "",
}
OPTION = rf"(?:[a-z0-9_]+={VALUE}|wall_loss=[A-Za-z]+\((?:[a-z0-9_]+={VALUE})?\))"
CALL = re.compile(rf"([A-Za-z]+)\((?:{OPTION}(?:, {OPTION})*)?\)")
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,59}")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
WORD = re.compile(r"[A-Za-z0-9_.+-]{1,40}")


class NotProved(ValueError):
    """A certificate is malformed, or one of its inequalities is not proved."""


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
        Name, left side and right side of what was proved.

    Raises
    ------
    NotProved
        Naming what is malformed, false or not decided.
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
        if content.get("format") in (RELEASE, FIT):
            names = "format theta feature_names encoding certificate digest"
            _require(set(content) == set(names.split()), "the answer has other fields")
            _check_binding(content)
            content = content["certificate"]
        kind = content.get("format")
        _require(kind in (DRAW, EVENT), f"format {kind!r} is unknown")
        return _prove_draw(content) if kind == DRAW else _prove_event(content)
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
    """Return what `prove` takes as stated in a certificate that it proves."""
    content = _parse_json(text)
    is_answer = "certificate" in content
    left = ["where theta lies: domain and public grid"] if is_answer else []
    kind = content.get("certificate", content).get("kind", "draw")
    if kind.startswith("noise/"):
        return left
    if kind == "declared":
        return ["that the mechanism has the event, which is its author's word"]
    left = ["bounds of the risk", *left]
    if kind == "draw" or kind in STEPS:
        return left
    return ["that the listed noise gives the event, which is taken as stated", *left]


# Reading.


def _fail(reason: str) -> NoReturn:
    raise NotProved(f"Not proved: {reason}.")


def _require(holds: bool, reason: str) -> None:
    if not holds:
        _fail(reason)


def _parse_json(text: str) -> Json:
    """Content of JSON that has one reading."""

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
            parse_constant=lambda word: _fail(f"{word} is no number"),
        )
    except (json.JSONDecodeError, TypeError, RecursionError):
        _fail("the text is not JSON")
    _require(isinstance(content, dict), "the text is no certificate")
    certificate: Json = content
    return certificate


def _float(value: Any, name: str, *, zero: bool = False) -> float:
    """Return a stated float: positive and normal, or 0 where that is allowed."""
    _require(isinstance(value, float), f"{name} is no float")
    is_normal = SMALLEST_NORMAL <= value < math.inf
    _require(
        is_normal or (zero and value == 0.0), f"{name} = {value!r} is out of range"
    )
    return float(value)


def _exponent(value: Any) -> Ball:
    """1/p of an exponent p in [1, inf]."""
    if value == "inf":
        return arb(0)
    is_number = isinstance(value, float | int) and not isinstance(value, bool)
    _require(is_number and value >= 1, f"{value!r} is no exponent")
    return 1 / arb(value)


def _bound(value: Any, name: str) -> Ball:
    """Return a declared bound, >= 0 and finite."""
    is_number = isinstance(value, float | int) and not isinstance(value, bool)
    _require(is_number and 0 <= value < math.inf, f"{name} = {value!r} is no bound")
    return arb(value)


def _sha256(content: object) -> str:
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _check_binding(release: Json) -> None:
    """Check that a release's digest binds theta, names, encoding and certificate."""
    theta = release["theta"]
    _require(all(isinstance(x, float) for x in theta), "theta is no list of floats")
    bound = {
        "certificate": release["certificate"]["digest"],
        "encoding": release["encoding"],
        "feature_names": release["feature_names"],
        "theta": [x.hex() for x in theta],
    }
    _require(
        release["digest"] == _sha256(bound), "theta and certificate are not one release"
    )


# What both kinds of certificates share.


@functools.cache
def _registry() -> Json:
    with REGISTRY.open("rb") as file:
        return tomllib.load(file)


def _check_identifiers(
    c: Json, kind: Json, theorems: list[list[str]], rest: Json
) -> None:
    """Check that identifiers are those of the kind, their words and the digest.

    ``theorems`` lists what may stand, ``rest`` the assumptions before and after those
    of the kind.
    """
    table = _registry()
    _require(c["theorems"] in theorems, f"theorems are not {theorems[0]}")
    records = ["RECORDS.REFUSED"], ["RECORDS.CLIPPED"]
    middle = kind.get("assumptions", [])
    allowed = [
        [*rest["before"], *middle, *rest["after"], *(r if rest["records"] else [])]
        for r in records
    ]
    allowed += [
        [*assumptions, "FIT.SEARCH"] for assumptions in allowed if rest["records"]
    ]
    _require(c["assumptions"] in allowed, f"assumptions are not {allowed[0]}")
    words = table["theorems"] | table["assumptions"]
    version = table["version"]
    while version > 1 and not c["registry"].startswith(f"{version}:"):
        version -= 1
        words |= table["former"][str(version)]
    used = {name: words[name] for name in (*c["theorems"], *c["assumptions"])}
    seal = f"{version}:{_sha256(used)}"
    _require(c["registry"] == seal, "the words behind the identifiers are others")
    _require(isinstance(c["seeded"], bool), "seeded is no bool")
    is_proved = c["calibration"] != "paper" and ("event" not in c or bool(c["event"]))
    is_releasable = kind.get("releasable", True) and not c["seeded"] and is_proved
    _require(c["releasable"] is is_releasable, f"releasable is not {is_releasable}")
    _require(
        c["digest"] == _sha256(c | {"digest": ""}), "the digest is that of other fields"
    )


def _registered_kind(name: str, text: str, *, field: str) -> Json:
    """Registry's entry. The text must be a name or call that it allows."""
    kinds = _registry()["kinds"]
    _require(name in kinds, f"kind {name!r} is unknown")
    kind: Json = kinds[name]
    call = CALL.fullmatch(text)
    if not kind["by"]:
        is_name = LABEL.fullmatch(text) is not None or call is not None
        _require(is_name, f"{field} {text!r} is no name")
    elif text not in kind["by"] or name.startswith("draw/"):
        is_allowed = call is not None and call[1] in kind["by"]
        _require(is_allowed, f"{field} {text!r} is unknown to {name!r}")
        options = re.findall(r"([a-z0-9_]+)=", text)
        is_allowed = name not in OPTIONS or set(options) <= set(OPTIONS[name].split())
        _require(is_allowed, f"{field} {text!r} has unknown options")
    return kind


def _common_assumptions(kind: Json) -> list[str]:
    """List what all mechanisms take for granted, except what the kind proves."""
    proved = {"ARITHMETIC": "counted", "TIME": "timed"}
    return [name for name in COMMON if not kind.get(proved.get(name, ""), False)]


def _budget(c: Json, *, pure: bool = False) -> tuple[float, float, str]:
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
    """Decide left <= right, with as many bits as that takes."""
    bits = FIRST_BITS
    while bits <= MAX_BITS:
        ctx.prec = bits
        left, right = sides()
        line = name, left.str(6, radius=False), right.str(6, radius=False)
        if left <= right:
            return line
        if left > right:
            _fail(f"{name} is false, {line[1]} > {line[2]}")
        bits *= 2
    _fail(f"{name} is not decided with {MAX_BITS} bits")


def _check_stated(name: str, stated: float, sides: Callable[[], Ball]) -> None:
    """Numbers that are stated for the reader agree with what follows from the facts."""
    slack = AGREEMENT
    _prove_at_most(
        f"{name} as stated", lambda: (arb(stated), sides() * (1 + arb(slack)))
    )
    _prove_at_most(
        f"{name} as stated", lambda: (sides() * (1 - arb(slack)), arb(stated))
    )


# Sensitivities: own tables.


def _power(base: Ball, exponent: Ball) -> Ball:
    return (exponent * base.log()).exp()


def _norm(entries: list[Ball], inverse: Ball) -> Ball:
    """l_p norm of entries >= 0, ``inverse`` = 1/p."""
    largest = arb(0)
    for entry in entries:
        largest = largest.max(entry)
    if inverse == 0 or not largest > 0:
        return largest
    total = sum((_power(x / largest, 1 / inverse) for x in entries if x > 0), arb(0))
    return largest * _power(total, inverse)


def _conversion(size: int, have: Ball, want: Ball) -> Ball:
    """Largest l_want norm over l_have norm, both exponents as 1/p."""
    return _power(arb(size), (want - have).max(arb(0)))


def _domain_norm(facts: Json) -> Ball:
    """Largest norm on the domain, in the norm dual to that of the rows."""
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
    """Bound of a row, with the intercept's 1."""
    row = _bound(facts["row_bound"], "row_bound")
    if not facts["intercept"]:
        return row
    return _norm([row, arb(1)], _exponent(facts["row_norm"]))


def _slope_bound(facts: Json) -> Ball:
    """Largest slope of the loss on the domain, for every possible record."""
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
    """Lipschitz constant of one record's loss in the l_p (Schatten-p) norm."""
    size = facts["dim"]
    if facts["domain"]["name"] == "schatten_ball":
        size = min(facts["domain"]["shape"])
    ratio = _conversion(size, _exponent(facts["row_norm"]), 1 - _exponent(p))
    return _slope_bound(facts) * _row_bound(facts) * ratio


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    is_number = value is None or isinstance(value, float | int)
    return is_number or value in ("inf", "-inf")


def _check_form(content: Json, fields_of: dict[str, str], title: str) -> None:
    """Check that nothing but the known fields is there, and no words in them."""
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
            is_inner or _is_plain(content[field]), f"{title}'s {field} is no number"
        )
    for inner in (*content.get("events", ()), *filter(None, [content.get("event")])):
        _check_form(inner, fields_of, title)


def _check_point(value: object, dim: int, title: str) -> None:
    is_point = isinstance(value, list) and len(value) == dim
    _require(is_point, f"{title} is no point of {dim} numbers")
    for x in value if isinstance(value, list) else []:
        _require(type(x) in (float, int) and math.isfinite(x), f"{x!r} in {title}")


def _box_ends(box: Json, dim: int) -> list[tuple[float, float]]:
    """Return the ends along each coordinate, or along one where all are the same."""
    ends = [box[name] for name in ("lower", "upper")]
    points = [[float(x) for x in (e if isinstance(e, list) else [e])] for e in ends]
    count = max(map(len, points))
    is_point = all(len(point) in (1, dim) for point in points)
    _require(is_point and 0 < count, "a bound of the box is no point")
    return list(
        zip(*(p if len(p) == count else p * count for p in points), strict=True)
    )


def _check_domain(domain: Json, dim: int) -> None:
    _check_form(domain, DOMAINS, "domain")
    if "radius" in domain:
        _require(bool(_bound(domain["radius"], "radius") > 0), "the radius is 0")
        _exponent(domain["p"])
    if "shape" in domain:
        sides = domain["shape"]
        is_shape = isinstance(sides, list) and len(sides) == 2
        is_shape = is_shape and all(type(n) is int and n > 0 for n in sides)
        is_shape = is_shape and math.prod(sides) == dim
        _require(is_shape, "the shape is not that of a matrix of dim entries")
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
    """Check that K is the unit ball of a norm. A polytope only holds 0 inside."""
    _check_domain(body, dim)
    is_known = body["name"] not in ("whole_space", "simplex")
    is_about_zero = is_known and all(x == 0 for x in body.get("center") or [])
    if body["name"] == "box":
        is_about_zero = all(low == -high for low, high in _box_ends(body, dim))
    if body["name"] == "polytope":
        is_about_zero = "A_eq" not in body and min(body["b"]) > 0
    _require(is_about_zero, "K is no body about 0")


def _check_facts(facts: Json) -> None:
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
        _require(is_count and value >= 1, f"{name} is no count")
    _require(isinstance(facts["intercept"], bool), "intercept is no bool")
    is_matrix = facts["domain"]["name"] == "schatten_ball"
    _require(not (is_matrix and facts["intercept"]), "matrices have no intercept")


def _check_regularizer(c: Json) -> None:
    """R must be 1-strongly convex in the norm of the sensitivity."""
    r, domain = c["regularizer"], c["facts"]["domain"]
    if r["name"] == "entropy":  # Pinsker's inequality
        fits = set(r) == {"name"} and domain["name"] == "simplex" and c["p"] == 1.0
        _require(fits, "entropy is strongly convex in l1 on the simplex only")
        return
    is_matrix = domain["name"] == "schatten_ball"
    names = {"name", "p", "center", "variant"} | ({"shape"} if is_matrix else set())
    _require(set(r) == names, "the regularizer is malformed")
    _require(r["name"] == ("schatten_squared" if is_matrix else "squared_norm"), "r")
    _require(not is_matrix or r["shape"] == domain["shape"], "r has another shape")
    _require(r["p"] == c["p"] and r["center"] is None, "r is that of another norm")
    is_printed = c["calibration"] == "paper" and c["p"] == 1.0
    variant = "printed" if is_printed else "optimized"
    _require(r["variant"] == variant, f"r is not {variant}")


# Certificates of draws.


def _gaussian_delta(epsilon: float, gdp: Ball) -> Ball:
    """Delta of two unit Gaussians at distance gdp, with which it increases."""
    if not gdp > 0:
        return arb(0)
    z, root = arb(epsilon) / gdp - gdp / 2, arb(2).sqrt()
    shifted = arb(epsilon).exp() * ((z + gdp) / root).erfc()
    return ((z / root).erfc() - shifted) / 2


def _risk_theorems(c: Json) -> list[list[str]]:
    is_sure, has_ridge = c["confidence"] is not None, c["strong_convexity"] > 0.0
    if not is_sure:
        stability = ["RISK.STABILITY"] if c["risk"] == "population" else []
        return [["RISK.MEAN", *stability]]
    if c["risk"] == "population":
        first = "RISK.ENERGY" if has_ridge else "RISK.MEAN"
        return [[first, "RISK.STABILITY", "RISK.LIPSCHITZ"]]
    either = [] if has_ridge else [["RISK.MEAN", "RISK.LIPSCHITZ"]]
    return [["RISK.ENERGY"], *either]


def _prove_draw(c: Json) -> Lines:
    """Prove a `Certificate`."""
    _require(set(c) == DRAW_FIELDS, "the certificate has other fields")
    facts, (epsilon, delta, relation) = c["facts"], _budget(c)
    _check_facts(facts)
    sampler, share = c["sampler"], c["sampler_share"]
    name, text = "draw", "draw"
    if sampler is not None:
        name, text = f"draw/{sampler.split('(')[0].lower()}", sampler
    kind = _registered_kind(name, text, field="sampler")
    loss, kinks = facts["loss"], {"hinge", "absolute", "quantile", "record_gradient"}
    has_kinks = loss["name"] in kinks or loss.get("upper_curvature") == "inf"
    _require(name != "draw/localized" or not has_kinks, "the loss cannot be localized")
    _require(c["risk"] in ("population", "empirical"), "the risk is unknown")
    _require(c["calibration"] in ("exact", "closed_form", "paper"), "calibration")
    is_paper, ridge = c["calibration"] == "paper", c["strong_convexity"]
    _float(share, "sampler_share", zero=True)
    _float(ridge, "strong_convexity", zero=True)
    _require(share < 1.0, "sampler_share >= 1")
    number = 3 + (c["risk"] == "population") + 2 * (ridge > 0.0)
    choice = f"CHOICE.{number}" + ".PAPER" * is_paper
    curve = f"CURVE.{c['calibration'].upper()}"
    sampler_error = ["NEAR"] if share > 0.0 else []
    theorems = [
        ["COMPARISON", curve, choice, *risk, *sampler_error, *kind.get("theorems", [])]
        for risk in _risk_theorems(c)
    ]
    limit = c["max_work"]
    _require(limit is None or _float(limit, "max_work") >= 1.0, "max_work < 1")
    before = [
        "LOSS.DECLARED",
        *_common_assumptions(kind),
        *(["RIDGE"] if ridge > 0.0 else []),
    ]
    after = ["DRAW.WORK"] if limit is not None else []
    is_draw = sampler is not None
    after += [n for n in ["DRAW.DEADLINE"] if is_draw and n in c["assumptions"]]
    rest = {"before": before, "after": after, "records": is_draw}
    _check_identifiers(c, kind, theorems, rest)
    _check_regularizer(c)
    numbers = {
        name: _float(c[name], name)
        for name in ("lipschitz", "diff_lipschitz", "k", "mu", "gdp", "delta_exact")
    }
    may_be_exact = kind.get("exact", False) or sampler is None
    gamma = _float(c["gamma"], "gamma", zero=may_be_exact)
    _require((gamma > 0.0) == (share > 0.0), "gamma and sampler_share disagree")
    proved = _float(c["epsilon_proved"], "epsilon_proved", zero=is_paper)
    _require(is_paper or proved == epsilon, "epsilon_proved is not the budget's")
    if ridge > 0.0:
        _require(c["mu"] == ridge, "mu is not the ridge's strength")
    else:
        _require(facts["domain"]["name"] != "whole_space", "the domain is unbounded")
    n = facts["num_records"]
    loses = ridge > 0.0 and relation == "zero_out"
    shift = SHIFTS[relation]
    _check_stated("lipschitz", numbers["lipschitz"], lambda: _lipschitz(facts, c["p"]))
    _check_stated(
        "diff_lipschitz",
        numbers["diff_lipschitz"],
        lambda: shift * _lipschitz(facts, c["p"]),
    )

    def distance() -> tuple[Ball, Ball]:
        curvature_kept = 1 - arb(1) / n if loses else arb(1)
        ratio = arb(numbers["k"]) / (arb(numbers["mu"]) * curvature_kept)
        distance = shift * _lipschitz(facts, c["p"]) / n * ratio.sqrt()
        return distance, arb(numbers["gdp"])

    def spent() -> tuple[Ball, Ball]:
        total = arb(numbers["delta_exact"]) + (1 + arb(proved).exp()) * arb(gamma)
        return total, arb(delta)

    return [
        _prove_at_most("(G_Delta/n)*sqrt(k/mu)<=gdp", distance),
        _prove_at_most(
            "delta(epsilon;gdp)<=delta_0",
            lambda: (
                _gaussian_delta(proved, arb(numbers["gdp"])),
                arb(numbers["delta_exact"]),
            ),
        ),
        _prove_at_most("delta_0+(1+e^epsilon)*gamma<=delta", spent),
        *(_prove_constant_time(c, gamma) if kind.get("timed", False) else []),
    ]


# Draws in constant time: samplers/proximal/constant_time.py has the proof.


def _prove_constant_time(c: Json, gamma: float) -> Lines:
    """Prove that the plan's steps and passes suffice, on every data set."""
    parts = [x.split("=") for x in c["sampler"][:-1].split(", ")]
    _require([len(x) for x in parts] == [2] * 4, "the plan is malformed")
    h, steps, moves, work = (value for _, value in parts)
    size, (t, j, b) = _float(float(h), "step_size"), map(int, (steps, moves, work))
    stated = f"step_size={size!r}, num_steps={t}, num_gradients={j}, work={b}"
    _require(c["sampler"] == f"ConstantTime({stated})", "the plan is malformed")
    is_free = c["max_work"] is None and "DRAW.DEADLINE" not in c["assumptions"]
    _require(is_free, "a plan has no max_work and no deadline")
    tries = b - 1 - t * j
    _require(min(t, j) >= 1 and tries >= t, "the plan has too few passes")
    _require(b < 2**31, "the plan has too many passes")
    facts, dim, domain = c["facts"], c["facts"]["dim"], c["facts"]["domain"]
    is_ball = domain["name"] == "ball" and domain["p"] == 2.0
    _require(is_ball or domain["name"] == "whole_space", "no plan for the domain")
    _require(c["p"] == 2.0, "p is not 2")
    bends = {"logistic": 0.25, "huber": 1.0, "squared": 1.0, "smoothed_hinge": None}
    _require(facts["loss"]["name"] in bends, "no plan for the loss")

    def sizes() -> tuple[Ball, ...]:
        """H, k mu, k L b^2 and k G."""
        bend = bends[facts["loss"]["name"]]
        bend = (
            1 / _bound(facts["loss"]["width"], "width") if bend is None else arb(bend)
        )
        half, k = arb(0.5), arb(c["k"])
        row = _row_bound(facts) * _conversion(dim, _exponent(facts["row_norm"]), half)
        slope = k * _lipschitz(facts, 2.0)
        return arb(size), k * arb(c["mu"]), k * bend * row**2, slope

    def distance() -> tuple[Ball, Ball]:
        step, ridge, _, slope = sizes()
        start = slope / ridge.sqrt() + arb(dim).sqrt()
        if is_ball:
            start = start.min(ridge.sqrt() * _bound(domain["radius"], "radius"))
        left = start / (2 * step.sqrt()) * (-(t - 1) * (1 + step).log()).exp()
        return left, 9 * arb(gamma) / 10

    def bottom() -> tuple[Ball, Ball]:
        step, ridge, trace, slope = sizes()
        a = ridge * (1 + step) / step
        s, distance = trace / a, 2 * slope / a.sqrt()
        q = s / (s + 2)
        reach = a.sqrt() * _bound(domain["radius"], "radius") if is_ball else None
        first = distance if reach is None else distance.min(q * reach)
        error = (1 + s) * q ** (j - 1) * first
        if reach is None:
            p = (-arb(dim) / 2 * (1 + s / dim).log() - error**2 * s / (2 + 2 * s)).exp()
        else:
            p = _ball_acceptance(s, reach, error, dim)
        share = arb(t - 1) / tries
        _require(bool(p > share), "more tries are accepted than p says")
        rate = (1 - share) * ((1 - share) / (1 - p)).log()
        rate += share * (share / p).log() if t > 1 else 0
        return (-tries * rate).exp(), arb(gamma) / 10

    return [
        _prove_at_most("TV(num_steps)<=0.9*gamma", distance),
        _prove_at_most("P(nothing released)<=0.1*gamma", bottom),
    ]


def _ball_acceptance(s: Ball, reach: Ball, error: Ball, dim: int) -> Ball:
    """Least acceptance on a ball of radius ``reach``: parts 3 and 4 of the proof."""
    edge, fourth = arb(2) / 5, arb(dim) ** 2 - 1
    _require(bool(reach >= 3), "the ball is too small for the step")
    phi = (-edge / arb(2).sqrt()).erfc() / 2
    lost = (dim - 1) / (2 * reach) + fourth / (2 * reach**3)
    inside = phi - 2 * lost / 5 - (-((reach - edge) ** 2) / 2).exp() / 2
    _require(bool(inside > 0), "the ball is too small for the dimension")
    spread = 1 + fourth / (10 * edge * reach**2 * inside)
    inner = inside * (-s * (spread.sqrt() + error) ** 2 / 2).exp()
    first, second = (dim - 1) / (2 * (reach - edge)), fourth / (4 * (reach - edge) ** 2)
    density = (-(edge**2) / 2).exp() / (2 * arb.pi()).sqrt()
    paid = (edge + density / phi) * first + second / 2
    spread = (1 + 8 * first / 5 + second).max(reach / (reach - edge))
    out = (-((reach / 2 - edge) ** 2) / 2).exp()
    out += fourth / (4 * reach**3) * (reach / 4 + (reach / (reach - edge)) ** 2)
    if dim > 1:
        ratio = reach * (reach - edge) / (2 * (dim - 1))
        _require(bool(ratio > 1), "the ball is too small for the dimension")
        out += (-(dim - 1) * (ratio - 1 - ratio.log()) / 2).exp()
    rate = ((edge**2 + 4).sqrt() - edge) / 2
    whole = rate * (-(rate**2) / 2 - edge * rate).exp() * (2 * arb.pi()).sqrt() * phi
    accepted = (-paid - s * (spread.sqrt() + error) ** 2 / 2).exp()
    return inner.min(whole * (accepted - out))


# Certificates of events.


def _event_delta(event: Json, epsilon: float) -> Ball:
    """Upper bound of an event's delta at epsilon."""
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
        # Randomized response that fails with this probability (Kairouz et al. 2015).
        excess = 1 - (arb(epsilon) - arb(event_epsilon)).exp()
        return fails + (1 - fails) * excess / (1 + (-arb(event_epsilon)).exp())
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


def _near_delta(event: Json, epsilon: float) -> Ball:
    """Least delta_0(e) + (1 + exp(e)) distance over e <= epsilon that is found.

    Every e gives a bound at epsilon, so the search for it need not be exact.
    """
    distance = _float(event["total_variation"], "distance", zero=True)

    def bound(e: float) -> Ball:
        return _event_delta(event["event"], e) + (1 + arb(e).exp()) * arb(distance)

    low, high, golden = 0.0, epsilon, (math.sqrt(5.0) - 1.0) / 2.0
    is_simple = event["event"]["name"] in ("gaussian", "pure", "approximate")
    for _ in range(60 if is_simple else 0):  # searches in searches would not end
        left, right = high - golden * (high - low), low + golden * (high - low)
        if bound(left).mid() <= bound(right).mid():
            high = right
        else:
            low = left
    return bound(epsilon).min(bound(low))


def _concentrated_delta(rho: float, epsilon: float) -> Ball:
    """Canonne, Kamath and Steinke (2020), Proposition 7, at a good order.

    Every order gives a bound, so the search for it need not be exact.
    """
    if rho == 0.0:
        return arb(0)

    def log_delta(t: float) -> float:
        a = 1.0 + math.exp(t)
        tail = (a - 1.0) * math.log1p(-1.0 / a) - math.log(a)
        return (a - 1.0) * (a * rho - epsilon) + tail

    low, high, golden = -40.0, 40.0, (math.sqrt(5.0) - 1.0) / 2.0
    for _ in range(200):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if log_delta(left) <= log_delta(right):
            high = right
        else:
            low = left
    a = 1 + arb(math.exp(0.5 * (low + high)))
    tail = (a - 1) * (1 - 1 / a).log() - a.log()
    return ((a - 1) * (a * arb(rho) - arb(epsilon)) + tail).exp()


def _noise_level(kind: str, inputs: Json) -> Ball:
    """Gdp or epsilon that noise on a query has, from exactly these inputs."""

    def take(*names: str) -> list[Any]:
        _require(
            set(inputs) == {*names, "grid"}, f"the inputs are not {', '.join(names)}"
        )
        for name in {"sensitivity", "stddev", "sigma", "scale"} & set(names):
            value = inputs[name]
            is_whole = isinstance(value, int) and not isinstance(value, bool)
            _float(float(value) if is_whole else value, name)
        for name in {"dim", "rows", "columns"} & set(names):
            value = inputs[name]
            is_count = isinstance(value, int) and not isinstance(value, bool)
            _require(is_count and value >= 1, f"{name} is no count")
        return [inputs[name] for name in names]

    def rounds(is_exact: bool, scale: Any) -> None:
        _require(
            kind == base + ("" if is_exact else "/idealized"), "the kind is another"
        )
        grid = _float(inputs["grid"], "grid")
        public_grid = math.ldexp(1.0, math.frexp(float(scale))[1] - 11)
        _require(grid == public_grid or not is_exact, "the grid is another one")

    def words(exponent: Any) -> str:
        if exponent == "inf":
            return "1"
        return "inf" if exponent == 1.0 else f"{exponent / (exponent - 1.0):g}"

    base = kind.removesuffix("/idealized")
    if base == "noise/gaussian":
        sensitivity, norm, stddev = take("sensitivity", "norm", "stddev")
        _require(norm == "l2", "the norm is not l2")
        rounds(True, stddev)
        return arb(sensitivity) / arb(stddev)
    if base in ("noise/laplace", "noise/discrete_laplace"):
        sensitivity, norm, scale = take("sensitivity", "norm", "scale")
        _require(norm == "l1", "the norm is not l1")
        if base == "noise/laplace":
            rounds(True, scale)
        else:
            _require(kind == base and inputs["grid"] == 1.0, "the grid is not 1")
            _require(isinstance(sensitivity, int), "the sensitivity is no integer")
        return arb(sensitivity) / arb(scale)
    if base == "noise/k_norm":
        dim, sensitivity, body, scale = take("dim", "sensitivity", "K", "scale")
        form = _parse_json(body)
        _check_body(form, dim)
        radius = _float(form.get("radius", 1.0), "radius")
        rounds((form["name"], form.get("p")) == ("ball", 1.0), scale * radius)
        return arb(sensitivity) / arb(scale)
    if base == "noise/generalized_gaussian":
        s, size, p, r, norm, sigma = take(
            "sensitivity", "dim", "p", "r", "norm", "sigma"
        )
        _require(norm == f"l_{words(p)}", "the norm is another one")
    else:
        s, rows, columns, p, r, norm, sigma = take(
            "sensitivity", "rows", "columns", "p", "r", "norm", "sigma"
        )
        size = min(rows, columns)
        _require(norm == f"Schatten-{words(p)}", "the norm is another one")
    rounds(r == 2.0 or size == 1, sigma)
    _require(isinstance(r, float | int) and 2 <= r < math.inf, "r is not from [2, inf)")
    ratio = _conversion(size, 1 - _exponent(p), _exponent(r))
    return (arb(r) - 1).sqrt() * arb(s) * ratio / arb(sigma)


def _prove_steps(c: Json, inputs: Json) -> tuple[str, str, str]:
    """Prove that the noise of steps on all records has the event."""
    facts, (bounds, noise) = c["facts"], STEPS[c["kind"]]
    names = [name for name in bounds if name in inputs]
    _require(len(names) == 1, f"the inputs do not bound gradients by one of {bounds}")
    bound = _float(inputs[names[0]], names[0])
    stddev = _float(inputs.get(noise), noise)
    called = re.search(r"[(, ]num_steps=([0-9]+)[,)]", c["mechanism"])
    counts = {int(called[1])} if called else set()
    counts |= {inputs["num_steps"]} if "num_steps" in inputs else set()
    _require(len(counts) == 1, "the number of steps is not stated once")
    (steps,) = counts
    _require(type(steps) is int and steps >= 1, "num_steps is no count")
    clip = re.search(r"[(, ](?:clip|threshold)=([0-9.e+-]+)[,)]", c["mechanism"])
    if clip is None or float(clip[1]) != bound:
        _check_stated(names[0], bound, lambda: _lipschitz(facts, 2.0))
    shift = SHIFTS[c["budget"]["relation"]]

    def sides() -> tuple[Ball, Ball]:
        sensitivity = shift * arb(bound) * arb(steps).sqrt() / facts["num_records"]
        return sensitivity / arb(stddev), arb(c["event"]["gdp"])

    return _prove_at_most("event of the noise<=event", sides)


def _inputs(pairs: list[list[Any]]) -> Json:
    for name, value in pairs:
        is_word = isinstance(value, str) and WORD.fullmatch(value) is not None
        is_body = name == "K" and isinstance(value, str)
        is_plain = value is None or isinstance(value, float | int)
        _require(
            is_word or is_body or is_plain, f"the input {name!r} is no number or word"
        )
        _require(NAME.fullmatch(name) is not None, f"{name!r} is no name")
    inputs = dict(pairs)
    _require(len(inputs) == len(pairs), "an input is repeated")
    return inputs


def _prove_event(c: Json) -> Lines:
    """Prove an `EventCertificate`."""
    _require(set(c) == EVENT_FIELDS, "the certificate has other fields")
    epsilon, delta, _ = _budget(c, pure=True)
    kind = _registered_kind(c["kind"], c["mechanism"], field="mechanism")
    inputs, event, facts = _inputs(c["inputs"]), c["event"], c["facts"]
    _require(c["calibration"] in ("exact", "paper"), "calibration")
    if event is not None:
        _check_form(event, EVENTS, "event")
    name = "" if event is None else event["name"]
    _require(name in kind["events"], f"{c['kind']!r} is no {name} event")
    if event is None:
        _require(c["calibration"] == "paper", "nothing is proved without an event")
        _require(c["epsilon_proved"] == "inf", "no epsilon is proved")
    after = []
    has_none = c["kind"] == "declared" or c["kind"].startswith("noise/")
    _require(
        has_none == (facts is None), "facts are those of a fit, and of nothing else"
    )
    if facts is not None:
        _check_facts(facts)
        loss = facts["loss"]["name"]
        if loss == "record_gradient":
            output_theorems = ("CLIPPED.CONVEX", "MOVES.", "OBJECTIVE")
            is_output = any(
                name.startswith(output_theorems) for name in kind.get("theorems", [])
            )
            is_output = is_output or kind.get("trusts", False)
            _require(not is_output, "the proof needs a loss of the margin")
        trusts = kind.get("trusts", False) and loss == "custom"
        is_own = loss in ("custom", "record_gradient")
        after = [*(["LOSS.DECLARED"] if trusts else []), "FIT.WORK"]
        after += ["LOSS.OWN"] if is_own else []
    theorems = kind.get("theorems", [])
    rest = {
        "before": _common_assumptions(kind),
        "after": after,
        "records": facts is not None,
    }
    _check_identifiers(c, kind, [theorems, [*theorems, "RENYI.POISSON"]], rest)
    if event is None:
        return []
    if c["epsilon_proved"] == "inf":
        _require(c["calibration"] == "paper", "no epsilon is proved")
        return []
    proved = _float(c["epsilon_proved"], "epsilon_proved", zero=True)
    if c["calibration"] == "exact":
        _require(proved <= epsilon * (1.0 + 1e-9), "epsilon_proved exceeds the budget")
    lines = [
        _prove_at_most(
            "delta(epsilon;event)<=delta",
            lambda: (_event_delta(event, proved), arb(delta)),
        )
    ]
    if c["kind"] in STEPS:
        lines.append(_prove_steps(c, inputs))
    if c["kind"].startswith("noise/"):
        spent = event["gdp" if name == "gaussian" else "epsilon"]
        lines.append(
            _prove_at_most(
                "event of the inputs<=event",
                lambda: (_noise_level(c["kind"], inputs), arb(spent)),
            )
        )
    return lines


def main(arguments: list[str]) -> int:
    """Print what is proved of a file; 0 if all of it is."""
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
