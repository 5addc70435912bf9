"""Certificate of any mechanism that an event describes, with its public inputs."""

from __future__ import annotations

import functools
import json
import math
import numbers
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dpsample import domains
from dpsample.core import check
from dpsample.privacy.accounting import events
from dpsample.privacy.accounting.accounting import (
    LARGEST_EPSILON,
    epsilon_of,
    theorems_used,
)
from dpsample.privacy.accounting.attack_risk import AttackRisk
from dpsample.privacy.accounting.events import Event
from dpsample.privacy.budget import Budget
from dpsample.privacy.certificates.former_calls import read_mechanism
from dpsample.privacy.certificates.json_form import parse, strict_json
from dpsample.privacy.certificates.mechanism_spec import MechanismSpec
from dpsample.privacy.certificates.page import Published
from dpsample.privacy.certificates.registry import (
    Kind,
    check_mechanism,
    problem_assumptions,
    registry,
)
from dpsample.problem.facts import PublicFacts

Input = str | float | bool | None
EventCalibration = Literal["exact", "paper"]
# Relative excess over the budget's epsilon that is accepted. A calibration that stops
# at the budget may exceed it by this, because losses are composed on a grid.
SLACK = 1e-9
# Names of inputs, and values that are a single word: they cannot hold a sentence, which
# might claim something.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
WORD = re.compile(r"[A-Za-z0-9_.+-]{1,40}")


@dataclass(frozen=True, kw_only=True)
class EventCertificate(Published):
    """Public inputs, event and theorems behind one differentially private answer.

    It holds nothing that depends on the records, so it can be published with the
    answer. An *event* describes the privacy of a mechanism, such as Gaussian noise of
    some gdp, so that accounting can compute epsilon and delta from it.

    Attributes
    ----------
    kind : str
        Kind in the registry; "declared" for a mechanism of your own, which is never
        releasable: that it has the event is your word.
    mechanism : MechanismSpec or str
        Type and parameters of the mechanism that was run, printed as its ``repr``, or
        your own name for it.
    budget : Budget
        Budget for which the noise was calibrated.
    calibration : {"exact", "paper"}
        "paper" reproduces a published noise and promises nothing.
    facts : PublicFacts or None
        Public facts of the problem. None for noise on a query.
    inputs : tuple of (str, value)
        Public numbers and single words that the noise was computed from.
    event : Event or None
        Privacy event of the mechanism under the budget's relation. None if nothing is
        proved.
    epsilon_proved : float
        Epsilon that the event proves at the budget's delta. Infinite without an event.
    theorems, assumptions : tuple of str
        Identifiers of the theorems and assumptions on which the event rests.
    seeded : bool
        Whether a seed, which others may know, made the random numbers.
    digest : str
        SHA-256 of all other fields. It detects accidental changes, but it is not a
        signature and does not detect forgery.

    Examples
    --------
    >>> from dpsample.privacy.accounting.events import GaussianEvent
    >>> made = EventCertificate.of(
    ...     mechanism="Gaussian noise on a mean",  # of your own
    ...     budget=Budget(epsilon=1.0, delta=1e-6),
    ...     event=GaussianEvent(0.2367),
    ...     inputs={"sensitivity": 0.02, "stddev": 0.0845},
    ... )
    >>> made.releasable, EventCertificate.from_json(made.to_json()) == made
    (False, True)
    """

    FORMAT: ClassVar[str] = "dpsample event certificate 3"
    FORMER_FORMATS: ClassVar[tuple[str, ...]] = ("dpsample event certificate 2",)
    MECHANISM: ClassVar[str] = "mechanism"

    kind: str
    mechanism: MechanismSpec | str
    budget: Budget
    calibration: EventCalibration
    facts: PublicFacts | None
    inputs: tuple[tuple[str, Input], ...]
    event: Event | None
    epsilon_proved: float
    theorems: tuple[str, ...]
    assumptions: tuple[str, ...]
    seeded: bool
    digest: str = ""

    def __post_init__(self) -> None:
        """Check the fields and seal the content."""
        check_mechanism(self.kind, self.mechanism, field="mechanism")
        check.instance(Budget, budget=self.budget)
        check.one_of(("exact", "paper"), calibration=self.calibration)
        check.instance((PublicFacts, type(None)), facts=self.facts)
        # Numbers of NumPy become those of Python, so that equal inputs have one digest.
        object.__setattr__(self, "inputs", _plain_inputs(self.inputs))
        check.instance((Event, type(None)), event=self.event)
        name = "" if self.event is None else self.event.name
        if name not in self.registered.events:
            allowed = " or ".join(kind or "none" for kind in self.registered.events)
            check.fail("event", f"{allowed} for {self.kind!r}", name or "none")
        check.at_least(0.0, epsilon_proved=self.epsilon_proved)
        check.instance(bool, seeded=self.seeded)
        self.seal()

    @classmethod
    def of(  # a public name, lint: ok
        cls,
        *,
        mechanism: MechanismSpec | str,
        budget: Budget,
        event: Event | None,
        kind: str = "declared",
        facts: PublicFacts | None = None,
        clip_rows: bool = False,
        inputs: Mapping[str, Input] | tuple[tuple[str, Input], ...] = (),
        calibration: EventCalibration = "exact",
        seeded: bool = False,
    ) -> EventCertificate:
        """Return a certificate of the epsilon that ``event`` proves.

        Parameters
        ----------
        mechanism, budget, event, kind, facts, seeded
            As in the class. The event's numbers hold under the budget's relation. What
            ``repr`` writes of a dataclass counts as its type and parameters.
        clip_rows : bool
            Whether rows above their bound were scaled down, instead of rejected.
        inputs : mapping of str to number or word
            Public inputs of the calibration, in the order in which they are shown.
        calibration : {"exact", "paper"}
            "exact" demands that the event proves the budget's epsilon.

        Returns
        -------
        EventCertificate
            With ``epsilon_proved`` from `dpsample.privacy.epsilon_of`.

        Raises
        ------
        ValueError
            If a field is invalid, or ``calibration`` is "exact" and the event does not
            prove the budget's epsilon.
        """
        check.instance(Budget, budget=budget)
        check.instance((Event, type(None)), event=event)
        # "not <=" also rejects an epsilon of NaN.
        epsilon, accounted = _account(event, budget)
        if calibration == "exact" and not epsilon <= budget.epsilon * (1.0 + SLACK):
            condition = f"such that epsilon <= {budget.epsilon!r} is proved"
            remedy = "Add noise, or record it with calibration='paper'."
            if budget.epsilon > LARGEST_EPSILON:
                condition, remedy = f"<= {LARGEST_EPSILON:g}", "Accounting ends there."
                check.fail("budget.epsilon", condition, budget.epsilon, remedy)
            check.fail("event", condition, f"epsilon = {epsilon!r}", remedy)
        check.instance(bool, clip_rows=clip_rows)
        spec: Any = read_mechanism(mechanism)
        return cls(
            kind=kind,
            mechanism=spec,
            budget=budget,
            calibration=calibration,
            facts=facts,
            inputs=tuple(inputs.items()) if isinstance(inputs, Mapping) else inputs,
            event=event,
            epsilon_proved=epsilon,
            theorems=(*registry().kind(kind).theorems, *accounted),
            assumptions=assumptions_of(kind, facts, clip_rows=clip_rows),
            seeded=seeded,
        )

    @property
    def registered(self) -> Kind:
        """Registered facts about certificates of this kind."""
        return registry().kind(self.kind)

    @property
    def is_proved(self) -> bool:
        """Whether the budget's epsilon is implied by a theorem."""
        return self.calibration == "exact" and self.event is not None

    @property
    def attack_risk(self) -> AttackRisk:
        """Bounds on attacks on one record; ValueError if nothing is proved."""
        if self.event is None:
            check.fail("event", "proved", "none", "Use calibration='exact'.")
        return AttackRisk(event=self.event, relation=self.budget.relation)

    @property
    def statement(self) -> str:
        """Sentence that states the guarantee."""
        if not math.isfinite(self.epsilon_proved):
            delta = self.budget.delta
            return f"No epsilon is proved at delta = {delta!r}: {self.mechanism}."
        return self._guarantee(f"one release of {self.mechanism}")

    @staticmethod
    def parse_field(name: str, value: Any) -> Any:
        """Turn the JSON value of one field into the field's type."""
        if name == "kind":
            return value
        if name == "event":
            return None if value is None else events.from_dict(value)
        if name == "inputs":
            return _parse_inputs(value)
        return parse(name, value)

    def __repr__(self) -> str:
        """Return the statement and the inputs."""
        inputs = "".join(f" {name}={value!r}," for name, value in self.inputs)
        event, state = self.event, self._state()
        return f"EventCertificate({self.statement}{inputs} {event!r}; {state})"

    def _facts_and_risk(self) -> tuple[PublicFacts | None, AttackRisk | None]:
        return self.facts, None if self.event is None else self.attack_risk

    @property
    def _kind(self) -> str:
        return self.kind

    def _obstacles(self) -> tuple[str, ...]:
        obstacles = {
            "the random bits are seeded": self.seeded,
            "the published constants are not proved": self.calibration == "paper",
            "no privacy is proved": self.event is None,
            "its author declares the event": self.kind == "declared",
            "idealized numerics": self.kind.endswith("/idealized"),
        }
        return tuple(words for words, is_there in obstacles.items() if is_there)

    def _rows(self) -> list[tuple[str, str]]:
        """Return name and value of every line of the details."""
        facts_rows = () if self.facts is None else self.facts.rows()
        return [
            ("guarantee", self.statement),
            ("releasable", self._may_be_released()),
            ("mechanism", str(self.mechanism)),
            ("event", "none" if self.event is None else repr(self.event)),
            ("attacks", "" if self.event is None else str(self.attack_risk)),
            *facts_rows,
            ("inputs", "\n".join(f"{name} = {value!r}" for name, value in self.inputs)),
            ("settings", f"calibration = {self.calibration}, {self.budget!r}"),
            *self._foundation(),
        ]


@functools.lru_cache(maxsize=256)  # accounting takes longer than many fits
def _account(event: Event | None, budget: Budget) -> tuple[float, tuple[str, ...]]:
    """Return the proved epsilon, and the theorems of accounting behind it."""
    epsilon = proved_epsilon(event, budget)
    return epsilon, theorems_used(event, epsilon=epsilon, relation=budget.relation)


def proved_epsilon(event: Event | None, budget: Budget) -> float:
    """Return epsilon of an event at the budget's delta, infinity without an event."""
    if event is None:
        return math.inf
    return epsilon_of(event, delta=budget.delta, relation=budget.relation)


def assumptions_of(
    kind: str, facts: PublicFacts | None, *, clip_rows: bool
) -> tuple[str, ...]:
    """Return the identifiers of all assumptions of a mechanism."""
    problem = (
        () if facts is None else problem_assumptions(kind, facts, clip_rows=clip_rows)
    )
    registered = registry().kind(kind)
    return (*registered.common, *registered.assumptions, *problem)


def _plain_inputs(inputs: Any) -> tuple[tuple[str, Input], ...]:
    """Return the pairs of names and values, the values as plain Python objects."""
    check.instance((tuple, list), inputs=inputs)
    pairs = []
    for index, pair in enumerate(inputs):
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            check.fail(f"inputs[{index}]", "a name and a value", check.describe(pair))
        if not (isinstance(pair[0], str) and NAME.fullmatch(pair[0])):
            check.fail(f"inputs[{index}][0]", "a name", check.describe(pair[0]))
        pairs.append((pair[0], _plain_value(*pair)))
    if len({name for name, _ in pairs}) < len(pairs):
        check.fail("inputs", "a list of different names", check.describe(inputs))
    return tuple(pairs)


def _parse_inputs(value: Any) -> Any:
    """Turn the word "inf", which stands for infinity in JSON, into a number.

    `_plain_inputs` checks the rest.
    """
    check.instance(list, inputs=value)
    return [
        [pair[0], math.inf] if isinstance(pair, list) and pair[1:] == ["inf"] else pair
        for pair in value
    ]


def _plain_value(name: str, value: object) -> Input:
    """Return an input as a plain Python object, or raise if it is not allowed."""
    # A bool is an integer in Python, so it is tested first.
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) and float(value) > -math.inf:
        return float(value)
    # The word "inf" is not allowed as an input, because JSON writes infinity so.
    if isinstance(value, str) and value != "inf":
        if WORD.fullmatch(value) or (name == "K" and _is_domain_json(value)):
            return value
    check.fail(f"inputs.{name}", "a number or a word", check.describe(value))


def _is_domain_json(text: str) -> bool:
    """Return whether a text is the JSON of a domain, and nothing else."""
    content = strict_json(text)
    if not isinstance(content, dict):
        return False
    return json.dumps(domains.from_dict(content).to_dict()) == text
