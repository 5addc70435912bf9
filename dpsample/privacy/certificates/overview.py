"""Overview of a certificate for readers who are not experts, on one screen.

`overview` collects what the screen says, and `as_text` writes it for a terminal. The
page shows the same sentences. Each follows from the fields of the certificate. What a
data holder must confirm, and what (epsilon, delta) does not include, comes from the
assumptions, by the tables ``confirm`` and ``excluded`` of the registry.
"""

from __future__ import annotations

import math
import re
import textwrap
from typing import Literal, NamedTuple

from dpsample.core.public import __version__
from dpsample.domains import Domain
from dpsample.losses import Custom, Linear
from dpsample.privacy.accounting.accounting import LARGEST_EPSILON, epsilon_of
from dpsample.privacy.accounting.attack_risk import (
    REPORTED_RATES,
    AttackRisk,
    percent,
    round_decimal,
)
from dpsample.privacy.accounting.groups import group_event
from dpsample.privacy.certificates.json_form import round_up
from dpsample.privacy.certificates.mechanism_spec import MechanismSpec
from dpsample.privacy.certificates.registry import INTERVALS, TUNED, registry
from dpsample.privacy.certificates.sealed import Sealed
from dpsample.problem.facts import PublicFacts

# Width of the screen in characters.
WIDTH = 80
# Heads of the table of attacks.
COLUMNS = ("false alarms", "true cases found, at most", "by guessing", "evidence")


class State(NamedTuple):
    """Whether an answer may be published."""

    kind: Literal["yes", "weak", "no"]
    text: str


class AttackRow(NamedTuple):
    """Bound of attacks that accept a given share of false alarms, as texts."""

    false_alarms: str
    true_cases: str
    by_guessing: str
    evidence: str  # factor by which an alarm can multiply the odds of a suspicion


class Overview(NamedTuple):
    """Sentences of the first screen, by section."""

    state: State
    records: str  # how many there are
    facts: tuple[tuple[str, str], ...]  # name and text of each line
    attacker: str
    attacks: tuple[AttackRow, ...]
    after_attacks: str
    accuracy: str
    conditions: tuple[str, ...]
    excluded: tuple[str, ...]


def overview(certificate: Sealed) -> Overview:
    """Return what the first screen says about a certificate."""
    facts, risk = certificate._facts_and_risk()
    rows = [
        ("Released", describe_release(certificate)),
        ("From", source(certificate, facts)),
    ]
    rows += _guarantee_rows(certificate, facts, risk)
    conditions, excluded = _conditions(certificate, facts, risk)
    attacker, said = "", ""
    attacks: tuple[AttackRow, ...] = ()
    if risk is not None:
        attacker = registry().screen["attacker"][risk.relation]
        said, attacks = _after_attacks(certificate, risk), _attack_rows(risk)
    return Overview(
        state=state_of(certificate),
        records=_records(_count(certificate, facts)),
        facts=tuple(rows),
        attacker=attacker,
        attacks=attacks,
        after_attacks=said,
        accuracy=certificate._accuracy(),
        conditions=conditions,
        excluded=excluded,
    )


def as_text(certificate: Sealed) -> str:
    """Return the first screen as plain text, at most `WIDTH` characters wide."""
    screen = overview(certificate)
    lines = [_fill(f"WARNING  {words}", 0, 9) for words in certificate.warnings]
    lines += [_title(screen.state), ""]
    lines += [_fill(f"{n:<13}{text}", 2, 15) for n, text in screen.facts]
    if screen.attacks:
        lines += ["", "What an attacker can learn about one record, at most"]
        lines += [_fill(screen.attacker, 2), "", *_table(screen.attacks), ""]
        lines += [_fill(screen.after_attacks, 2)]
    if screen.accuracy:
        lines += ["", "What it costs in accuracy", _fill(screen.accuracy, 2)]
    if screen.conditions:
        lines += ["", "The guarantee holds if the data holder can confirm:"]
        numbered = enumerate(screen.conditions, start=1)
        lines += [_fill(f"{i:>2}. {words}", 2, 6) for i, words in numbered]
    if screen.excluded:
        lines += ["", "Not included in epsilon and delta"]
        lines += [_fill(f"- {words}", 2, 4) for words in screen.excluded]
    digest = certificate.digest
    lines += [
        "",
        "Check the numbers:   dpsample verify FILE",
        "Details and proofs:  dpsample certificate FILE --details",
        f"Digest (SHA-256):    {digest[:32]}",
        f"                     {digest[32:]}",
        f"Shown by dpsample {__version__}.",
    ]
    return "\n".join(lines)


def state_of(certificate: Sealed) -> State:
    """Return whether the answer may be published, from the worst case to the best."""
    # A file with other fields than its digest covers may state anything, so it is
    # tested first.
    if certificate.digest != certificate.computed_digest():
        words = "Not for publication: the certificate was changed since it was written."
        return State("no", words)
    if not certificate.releasable:
        reasons = ", ".join(certificate._obstacles())
        return State("no", f"Not for publication: {reasons}.")
    if certificate.is_unverified:
        words = (
            "Not verified: the numbers are as a file states them. Recompute them "
            "before you rely on them or publish them."
        )
        return State("weak", words)
    if certificate.warnings:
        return State("weak", "May be published in form only, because of the warning.")
    return State("yes", "May be published if every condition below is confirmed.")


def describe_release(certificate: Sealed) -> str:
    """Return what was released, in words."""
    kind, facts = certificate._kind, certificate._facts_and_risk()[0]
    if kind.startswith("stats/"):
        return (
            f"{registry().screen['statistics'][kind.split('/')[1]]}, with random noise"
        )
    if kind.startswith("noise/"):
        name = registry().screen["noises"][kind.split("/")[1]]
        return f"the result of a query, with {name} noise"
    if facts is None:
        return f"the result of {getattr(certificate, certificate.MECHANISM)}"
    of_model = f"{coefficient_count(facts)} of {model(facts)}"
    if kind == "draw":
        return f"nothing yet, but a distribution was calibrated for {of_model}"
    if kind.startswith("draw/"):
        return f"{of_model}, in one random draw"
    if kind.startswith(TUNED):
        return f"{of_model}, the best of a random number of trials"
    mechanism = getattr(certificate, certificate.MECHANISM)
    name = mechanism.type if isinstance(mechanism, MechanismSpec) else str(mechanism)
    if kind.startswith(INTERVALS):
        return f"{of_model}, from one fit with random noise, with intervals"
    return f"{of_model}, from one fit with random noise ({name})"


def coefficient_count(facts: PublicFacts) -> str:
    """Return the number of coefficients, in words."""
    also = ", one of them an intercept," if facts.intercept else ""
    return f"{facts.dim:,} coefficient{'s' * (facts.dim != 1)}{also}"


def model(facts: PublicFacts) -> str:
    """Return the name of the model that the loss belongs to, in words."""
    if isinstance(facts.loss, Custom):
        return "a model with the user's own loss"
    names = registry().screen["models"]
    return names.get(facts.loss.name, f"a model with the {facts.loss.name} loss")


def source(certificate: Sealed, facts: PublicFacts | None) -> str:
    """Return the number and size of the records, in words."""
    if facts is None:
        return _records(_count(certificate, None))
    # The constant 1 of an intercept is not a feature of the records.
    width = facts.dim - facts.intercept
    parts = [f"{width:,} feature{'s' * (width != 1)} each"]
    parts += ["a label" if facts.loss.is_classification else "a response"]
    return f"{_records(facts.num_records)}, {' and '.join(parts)}"


def _count(certificate: Sealed, facts: PublicFacts | None) -> int | None:
    """Return the number of records, or None if the certificate does not state it."""
    if facts is not None:
        return facts.num_records
    count = dict(getattr(certificate, "inputs", ())).get("num_records")
    return count if isinstance(count, int) else None


def _records(count: int | None) -> str:
    """Return a number of records, in words. None stands for an unknown one."""
    if count is None:
        return "records whose number is not stated"
    return f"{count:,} record{'s' * (count != 1)}"


def limits(facts: PublicFacts, *, has_label: bool) -> str:
    """Return the declared limits of a record, in words, perhaps with its label."""
    # Rounded up, because a smaller limit would be another one.
    bound, p = round_up(facts.row_bound), facts.row_norm
    if facts.is_matrix:
        size = f"features of Schatten-{p:g} norm at most {bound}"
    elif p == 2.0:
        size = f"features of Euclidean length at most {bound}"
    elif p == 1.0:
        size = f"features whose absolute values add up to at most {bound}"
    elif math.isinf(p):
        size = f"features between -{bound} and {bound}"
    else:
        size = f"features of l{p:g} norm at most {bound}"
    parts = [size]
    # Without a bound `Problem` accepts responses up to 1 for a linear loss.
    largest = facts.response_bound
    if largest is None and isinstance(facts.loss, Linear):
        largest = 1.0
    if facts.loss.is_classification:
        parts += ["a label -1 or 1"] * has_label
    elif largest is not None and math.isfinite(largest):
        parts.append(f"a response between -{round_up(largest)} and {round_up(largest)}")
    if facts.offset_bound > 0.0:
        offset = round_up(facts.offset_bound)
        parts.append(f"an offset between -{offset} and {offset}")
    return " and ".join(parts)


def domain_name(domain: Domain) -> str:
    """Return a domain in words."""
    name = domain.name.replace("_", " ")
    radius, p = getattr(domain, "radius", None), getattr(domain, "p", 2.0)
    if radius is None:
        return f"the {name}"
    size = "" if p == 2.0 else f"l{p:g} "
    return f"the {size}{name} of radius {radius:g}"


def shorten_number(value: float) -> str:
    """Return the shortest decimal of a number, without a zero before its exponent.

    Examples
    --------
    >>> shorten_number(1e-6), shorten_number(0.25)
    ('1e-6', '0.25')
    """
    return re.sub(r"e([+-])0+", r"e\1", f"{value!r}".removesuffix(".0"))


def _guarantee_rows(
    certificate: Sealed, facts: PublicFacts | None, risk: AttackRisk | None
) -> list[tuple[str, str]]:
    """Return the lines about the guarantee and what it protects."""
    epsilon, delta = certificate.epsilon_proved, certificate.budget.delta
    if risk is None or not epsilon < LARGEST_EPSILON:
        return [("Guarantee", "none is proved at this delta")]
    size, small = round_up(epsilon), shorten_number(delta)
    guarantee = (
        f"(epsilon, delta)-differential privacy, epsilon = {size}, delta = {small}"
    )
    if delta == 0.0:
        guarantee = f"epsilon-differential privacy (pure), epsilon = {size}"
    if not certificate.is_proved:
        guarantee += ", and not the smaller epsilon that the budget asks for"
    count = _count(certificate, facts)
    records = "records" if count is None else f"{count:,} records"
    change = registry().screen["otherwise"][certificate.budget.relation]
    change = change.format(records=records)
    protects = registry().screen["protects"][certificate.level]
    # Both rounded up, so that the sentence stays true.
    factor = round_decimal(math.exp(epsilon), digits=3, up=True)
    plus = f", plus a probability of at most {small}" if delta > 0.0 else ""
    meaning = (
        f"{change}, no result would have been more than {float(factor):g} times as "
        f"likely{plus}"
    )
    return [("Guarantee", guarantee), ("Meaning", meaning), ("Protects", protects)]


def _attack_rows(risk: AttackRisk) -> tuple[AttackRow, ...]:
    """Return the table of bounds, each rounded up."""
    rows = []
    for rate in REPORTED_RATES:
        true_rate = float(risk.true_positive_rate(rate))
        evidence = float(percent(true_rate / rate, up=True)) / 100
        guess = f"{100 * rate:g}%"
        true_cases = f"{percent(true_rate, up=True)}%"
        rows.append(AttackRow(guess, true_cases, guess, f"× {evidence:.4g}"))
    return tuple(rows)


def _after_attacks(certificate: Sealed, risk: AttackRisk) -> str:
    """Return the sentences below the table of attacks."""
    wrong = percent(risk.bayes_risk(), up=False)
    question = "both candidates are equally likely"
    if risk.relation == "zero_out":
        question = "both answers are equally likely"
    text = (
        "The evidence of an alarm is the largest factor by which it multiplies the "
        "odds of a suspicion. "
        f"If {question}, the attacker is wrong at least {wrong}% of the time "
        "(guessing: 50%)."
    )
    # At delta > 0 the factor has no bound for rare alarms.
    if certificate.budget.is_pure and certificate.epsilon_proved < LARGEST_EPSILON:
        factor = round_decimal(math.exp(certificate.epsilon_proved), digits=3, up=True)
        text += f" No evidence is ever stronger than × {float(factor):g}."
    else:
        text += " Rarer alarms can be stronger evidence."
    return text


def _conditions(
    certificate: Sealed, facts: PublicFacts | None, risk: AttackRisk | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the conditions to confirm, and what is not included."""
    # What was added to the list later is true of earlier certificates as well.
    names = {*certificate.assumptions, *registry().since}
    has_own_loss = facts is not None and isinstance(facts.loss, Custom)
    if not has_own_loss:
        # For losses of this package these follow from the limits of the records.
        names -= {"LOSS.DECLARED", "GRADIENTS", "MARGIN.SMOOTH", "MARGIN.BOUNDS"}
    values = {
        "released": _answer_name(certificate, facts),
        "limits": "",
        "label": "",
        "own": ", or through the user's own loss" if has_own_loss else "",
        "group": _group(certificate, risk),
    }
    if facts is not None:
        is_clipped = "RECORDS.CLIPPED" in names
        values["limits"] = limits(facts, has_label=not is_clipped)
        values["label"] = " with a label -1 or 1" * facts.loss.is_classification
    tables = registry().confirm, registry().excluded
    conditions, excluded = (
        tuple(dict.fromkeys(t[n].format(**values) for n in t if n in names))
        for t in tables
    )
    return conditions, excluded


def _answer_name(certificate: Sealed, facts: PublicFacts | None) -> str:
    """Return a noun for the numbers that are published."""
    if facts is not None:
        is_with_bars = certificate._kind.startswith(INTERVALS)
        return "coefficients, their intervals" if is_with_bars else "coefficients"
    return "statistic" if certificate._kind.startswith("stats/") else "result"


def _group(certificate: Sealed, risk: AttackRisk | None) -> str:
    """Return epsilon of two records, if there is a formula for it."""
    delta = certificate.budget.delta
    if risk is None or not certificate.epsilon_proved < LARGEST_EPSILON:
        return ""
    try:
        event = group_event(risk.event, 2)
        epsilon = epsilon_of(event, delta=delta, relation=risk.relation)
    except ValueError:  # no formula, or none at this delta
        return ""
    if not epsilon < LARGEST_EPSILON:
        return ""
    return f", with epsilon = {round_up(epsilon)} for two records at the same delta"


def _fill(text: str, indent: int, hanging: int | None = None) -> str:
    """Wrap a text, with an indent of its first line and of the others."""
    return textwrap.fill(
        text,
        width=WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent if hanging is None else hanging),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _title(state: State) -> str:
    """Return the title line with the state, on two lines if it is long."""
    title = "PRIVACY CERTIFICATE"
    if len(title) + len(state.text) + 2 <= WIDTH:
        return f"{title}{state.text:>{WIDTH - len(title)}}"
    return f"{title}\n{_fill(state.text, 2)}"


def _table(rows: tuple[AttackRow, ...]) -> list[str]:
    """Return the table of attacks as lines of text."""
    widths = [
        max(len(name), *(len(row[j]) for row in rows)) for j, name in enumerate(COLUMNS)
    ]
    return [
        "    " + "   ".join(f"{cell:>{w}}" for cell, w in zip(row, widths, strict=True))
        for row in (COLUMNS, *rows)
    ]
