"""Certificate of any mechanism that an event describes, with its public inputs."""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dpsample.core import check
from dpsample.privacy.accounting import events
from dpsample.privacy.accounting.accounting import epsilon_of, theorems_used
from dpsample.privacy.accounting.events import Event
from dpsample.privacy.budget import Budget
from dpsample.privacy.certificates.sealed import (
    COMMON_ASSUMPTIONS,
    IDEALIZED,
    Sealed,
    parse,
    yes_unless,
)

Input = str | float | bool | None
EventCalibration = Literal["exact", "paper"]
# What discretized losses may cost a calibration that stopped at the budget.
SLACK = 1e-9


@dataclass(frozen=True, kw_only=True)
class EventCertificate(Sealed):
    """Public inputs, event and theorems behind one differentially private answer.

    It holds nothing that depends on the records: it can be published with the answer.

    Attributes
    ----------
    mechanism : str
        What was run, in words.
    budget : Budget
        What was asked for.
    calibration : {"exact", "paper"}
        "paper" reproduces a printed noise and promises nothing.
    inputs : tuple of (str, value)
        Public numbers and words that the noise was computed from.
    event : Event or None
        What the mechanism does to privacy under the budget's relation; None if
        nothing is proved.
    epsilon_proved : float
        Epsilon that the event proves at the budget's delta; infinity without one.
    theorems, assumptions : tuple of str
        What the event rests on, and what it takes for granted.
    seeded : bool
        Whether a seed, which somebody may know, made the random bits.
    digest : str
        SHA-256 of all other fields: finds slips, not forgery, for it is no signature.

    Examples
    --------
    >>> from dpsample.privacy.accounting.events import GaussianEvent
    >>> made = EventCertificate.of(
    ...     mechanism="Gaussian noise on a mean",
    ...     budget=Budget(epsilon=1.0, delta=1e-6),
    ...     event=GaussianEvent(0.2367),
    ...     inputs={"sensitivity": 0.02, "stddev": 0.0845},
    ... )
    >>> made.releasable, EventCertificate.from_json(made.to_json()) == made
    (True, True)
    """

    FORMAT: ClassVar[str] = "dpsample event certificate 1"

    mechanism: str
    budget: Budget
    calibration: EventCalibration
    inputs: tuple[tuple[str, Input], ...]
    event: Event | None
    epsilon_proved: float
    theorems: tuple[str, ...]
    assumptions: tuple[str, ...]
    seeded: bool
    digest: str = ""

    def __post_init__(self) -> None:
        """Check the fields and seal the content."""
        _check_word(mechanism=self.mechanism)
        check.instance(Budget, budget=self.budget)
        check.one_of(("exact", "paper"), calibration=self.calibration)
        object.__setattr__(self, "inputs", _plain_inputs(self.inputs))
        check.instance((Event, type(None)), event=self.event)
        check.at_least(0.0, epsilon_proved=self.epsilon_proved)
        for name in ("theorems", "assumptions"):
            value = getattr(self, name)
            check.instance((tuple, list), **{name: value})
            for index, item in enumerate(value):
                _check_word(**{f"{name}[{index}]": item})
            object.__setattr__(self, name, tuple(value))
        check.instance(bool, seeded=self.seeded)
        self.seal()

    @classmethod
    def of(
        cls,
        *,
        mechanism: str,
        budget: Budget,
        event: Event | None,
        inputs: Mapping[str, Input] | tuple[tuple[str, Input], ...] = (),
        theorems: tuple[str, ...] = (),
        assumptions: tuple[str, ...] = (),
        calibration: EventCalibration = "exact",
        seeded: bool = False,
    ) -> EventCertificate:
        """Certificate of what ``event`` proves at the budget's delta.

        Parameters
        ----------
        mechanism, budget, event, seeded
            As in the class; the event's numbers hold under the budget's relation.
        inputs : mapping of str to number or word
            Public inputs of the calibration, in the order in which they are shown.
        theorems, assumptions : tuple of str
            What the event rests on, to which accounting may add; what every release
            takes for granted comes first.
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
        epsilon, accounted = _accounted(event, budget)
        if calibration == "exact" and not epsilon <= budget.epsilon * (1.0 + SLACK):
            condition = f"such that epsilon <= {budget.epsilon!r} is proved"
            remedy = "Add noise, or record it with calibration='paper'."
            check.fail("event", condition, f"epsilon = {epsilon!r}", remedy)
        check.instance((tuple, list), theorems=theorems)
        return cls(
            mechanism=mechanism,
            budget=budget,
            calibration=calibration,
            inputs=tuple(inputs.items()) if isinstance(inputs, Mapping) else inputs,
            event=event,
            epsilon_proved=epsilon,
            theorems=(*theorems, *accounted),
            assumptions=(*COMMON_ASSUMPTIONS, *assumptions),
            seeded=seeded,
        )

    @property
    def is_proved(self) -> bool:
        """Whether the budget's epsilon is implied by a theorem."""
        return self.calibration == "exact" and self.event is not None

    @property
    def releasable(self) -> bool:
        """Whether the bits are not seeded and the budget's epsilon is proved."""
        return self.is_proved and not self.seeded and not self.is_idealized

    @property
    def is_idealized(self) -> bool:
        """Whether the proof is one for real arithmetic only."""
        return IDEALIZED in self.assumptions

    @property
    def statement(self) -> str:
        """The guarantee, in words."""
        if not math.isfinite(self.epsilon_proved):
            delta = self.budget.delta
            return f"No epsilon is proved at delta = {delta!r}: {self.mechanism}."
        return self._guarantee(f"one release of {self.mechanism}")

    @staticmethod
    def parse_field(name: str, value: Any) -> Any:
        """Turn the JSON value of one field into the field's type."""
        if name == "mechanism":
            return value
        if name == "event":
            return None if value is None else events.from_dict(value)
        if name == "inputs":
            return _parse_inputs(value)
        return parse(name, value)

    def __repr__(self) -> str:
        """Return the statement and the inputs."""
        state = "releasable" if self.releasable else "NOT releasable"
        inputs = "".join(f" {name}={value!r}," for name, value in self.inputs)
        return f"EventCertificate({self.statement}{inputs} {self.event!r}; {state})"

    def _rows(self) -> list[tuple[str, str]]:
        """Name and value of every line of the certificate."""
        obstacles = {
            "the random bits are seeded": self.seeded,
            "the printed constants are not proved": self.calibration == "paper",
            "no privacy is proved": self.event is None,
            "idealized numerics": self.is_idealized,
        }
        return [
            ("guarantee", self.statement),
            ("releasable", yes_unless(obstacles)),
            ("mechanism", self.mechanism),
            ("event", "none" if self.event is None else repr(self.event)),
            ("inputs", "\n".join(f"{name} = {value!r}" for name, value in self.inputs)),
            ("theorems", "\n".join(self.theorems)),
            ("assumptions", "\n".join(self.assumptions)),
        ]


@functools.lru_cache(maxsize=256)  # accounting takes longer than many fits
def _accounted(event: Event | None, budget: Budget) -> tuple[float, tuple[str, ...]]:
    """Epsilon that is proved, and the theorems of accounting behind it."""
    epsilon = proved(event, budget)
    return epsilon, theorems_used(event, epsilon=epsilon, relation=budget.relation)


def proved(event: Event | None, budget: Budget) -> float:
    """Epsilon that the event proves at the budget's delta; infinity without one."""
    if event is None:
        return math.inf
    return epsilon_of(event, delta=budget.delta, relation=budget.relation)


def _check_word(**values: object) -> None:
    """Each value is a nonempty string."""
    for name, value in values.items():
        if not (isinstance(value, str) and value):
            check.fail(name, "a nonempty str", check.shown(value))


def _plain_inputs(inputs: Any) -> tuple[tuple[str, Input], ...]:
    """Return the pairs of names and values, the values as plain Python objects."""
    check.instance((tuple, list), inputs=inputs)
    pairs = []
    for index, pair in enumerate(inputs):
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            check.fail(f"inputs[{index}]", "a name and a value", check.shown(pair))
        _check_word(**{f"inputs[{index}][0]": pair[0]})
        pairs.append((pair[0], _plain_value(*pair)))
    if len({name for name, _ in pairs}) < len(pairs):
        check.fail("inputs", "a list of different names", check.shown(inputs))
    return tuple(pairs)


def _parse_inputs(value: Any) -> Any:
    """Undo what JSON did to infinity; `_plain_inputs` checks the rest."""
    check.instance(list, inputs=value)
    return [
        [pair[0], math.inf] if isinstance(pair, list) and pair[1:] == ["inf"] else pair
        for pair in value
    ]


def _plain_value(name: str, value: object) -> Input:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) and float(value) > -math.inf:
        return float(value)
    # JSON has no infinity: that word stands for it.
    if isinstance(value, str) and value != "inf":
        return value
    check.fail(f"inputs.{name}", "a number or a word", check.shown(value))
