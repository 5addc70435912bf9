"""Ledger of all releases from the same records, which adds up their privacy losses.

An entry is a certificate, or the privacy event of a mechanism without one. The total is
the smaller of two bounds. One composes the events of all entries and computes epsilon
of the result (`dpsample.privacy.epsilon_of`). The other adds up the pairs (epsilon,
delta) that the entries promise, which is basic composition.

``gdp`` is the parameter of Gaussian differential privacy. It is the distance of two
unit Gaussians that are at least as easy to distinguish as the outputs on two
neighboring data sets.
"""

from __future__ import annotations

import functools
import json
import math
import os
import threading
import warnings
from typing import NamedTuple, Self

from dpsample.core import check
from dpsample.core.spec import Json
from dpsample.privacy.accounting import events
from dpsample.privacy.accounting.accounting import (
    basic_sums,
    delta_of,
    epsilon_of,
    sum_pairs,
)
from dpsample.privacy.accounting.events import (
    ApproximateEvent,
    BoundedRangeEvent,
    ComposedEvent,
    Event,
    GaussianEvent,
    PureEvent,
)
from dpsample.privacy.accounting.normal_form import normal_parts
from dpsample.privacy.budget import Budget, Sum
from dpsample.privacy.certificates.certificate import Certificate
from dpsample.privacy.certificates.event_certificate import EventCertificate
from dpsample.privacy.certificates.json_form import load_json, parse, round_up
from dpsample.privacy.curves.gaussian import bisect, gaussian_epsilon, gdp_from_budget
from dpsample.problem.facts import RELATIONS

Item = Certificate | EventCertificate | Event
# Format of the JSON form.
FORMAT = "dpsample ledger 1"
# Relative width at which the search for the remaining gdp stops.
TOLERANCE = 1e-6
# A smaller gdp or epsilon is reported as 0, because such a release reveals nothing.
MIN_PRIVACY_LOSS = 1e-9
# All ledgers share one lock, because copies of a ledger could not share a lock of its
# own. It is held while entries are replaced, never while something is computed.
_LOCK = threading.Lock()


class Entry(NamedTuple):
    """One release: its label, and its certificate or event.

    Attributes
    ----------
    label : str
        Name of the release in the ledger.
    item : Certificate, EventCertificate or Event
        Proof of the release, or a description of its mechanism.
    """

    label: str
    item: Item

    @property
    def event(self) -> Event | None:
        """Privacy event of the release; None if nothing is proved."""
        return self.item if isinstance(self.item, Event) else self.item.event

    @property
    def relation(self) -> str | None:
        """Neighboring relation of a certificate; None for an event."""
        return None if isinstance(self.item, Event) else self.item.budget.relation

    @property
    def is_declared(self) -> bool:
        """Whether the author of a certificate states its event without a proof."""
        return isinstance(self.item, EventCertificate) and (
            self.item.kind == "declared"
        )

    @property
    def title(self) -> str:
        """Label or description, on one short line without control characters."""
        text = check.escape_controls(self.label or self.what)
        return text if len(text) <= 60 else text[:57] + "..."

    @property
    def what(self) -> str:
        """Description of the entry for a table."""
        if isinstance(self.item, EventCertificate):
            return str(self.item.mechanism)
        if isinstance(self.item, Certificate):
            return f"exponential mechanism, {self.item.sampler or 'no sampler yet'}"
        return self.item.name + " event"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons why the entry is not a guarantee."""
        item = self.item
        if isinstance(item, Event):
            return ()
        reasons = {
            "seeded: the seed determines the noise": item.seeded,
            "not releasable: no sampler is named": (
                isinstance(item, Certificate) and item.sampler is None
            ),
            "not releasable: published constants, with the epsilon that they prove": (
                item.event is not None and not item.is_proved
            ),
            "unproved: epsilon is infinite": item.event is None,
            "declared: its event is its author's word": (
                self.is_declared and item.event is not None
            ),
        }
        return tuple(words for words, holds in reasons.items() if holds)


class Remaining(NamedTuple):
    """Privacy loss that one more release may have, zero if the budget is used up.

    Attributes
    ----------
    gdp : float
        Largest gdp of a further release that keeps the whole ledger inside the budget.
        It is 0 if the budget is pure, because no Gaussian release has delta = 0.
    epsilon : float
        Epsilon of that release alone, at the budget's delta. It is 0 if the release is
        so private that the budget's delta alone covers it. If the budget is pure, it is
        the epsilon of one more pure release.
    """

    gdp: float
    epsilon: float


class Ledger:
    """All releases from the same records, and their total privacy loss.

    Entries compose in sequence. Later analyses may depend on earlier answers if their
    budgets were fixed beforehand. Fully adaptive composition is not covered: budgets,
    and the decision to stop, must not depend on the answers.

    Threads may share a ledger. Other processes get copies, and a warning when they
    spend. Use a `LedgerFile` for them.

    The total is the smaller of the bound of `dpsample.privacy.delta_of` and the sum of
    the pairs (epsilon, delta) that the certificates promise (basic composition). Sums
    are computed exactly, by the rule of `dpsample.privacy.budget`.

    Parameters
    ----------
    relation : {"replace_one", "zero_out"}
        Neighboring relation of every entry.
    budget : Budget, optional
        Total budget of all entries, under the same relation.

    Raises
    ------
    ValueError
        If the relation is unknown or the budget is for another one.

    Guarantee
    ---------
    If each entry's mechanism has the event that it states, all answers together are
    (``epsilon(delta)``, delta)-DP under the relation.

    Examples
    --------
    >>> ledger = Ledger(budget=Budget(epsilon=1.0, delta=1e-6))
    >>> ledger.add(GaussianEvent(0.1), label="mean")
    >>> ledger.add(GaussianEvent(0.1), label="slopes")
    >>> print(f"{ledger.epsilon():.3f} {ledger.remaining().gdp:.3f}")
    0.575 0.190
    """

    def __init__(
        self, relation: str = "replace_one", budget: Budget | None = None
    ) -> None:
        check.one_of(RELATIONS, relation=relation)
        check.instance((Budget, type(None)), budget=budget)
        if budget is not None and budget.relation != relation:
            remedy = "Make the budget under the ledger's relation."
            check.fail("budget.relation", repr(relation), repr(budget.relation), remedy)
        self.relation = relation
        self.budget = budget
        # The list is replaced, never changed. So a reader that takes it once sees a
        # consistent state without a lock.
        self._entries: list[Entry] = []
        # Copies in other processes keep this number, by which `spend` recognizes them.
        self._process = os.getpid()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Entries in the order in which they were added."""
        return tuple(self._entries)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons why the total is not a guarantee, by entry."""
        return tuple(
            f"{number}. {entry.title}: {words}"
            for number, entry in enumerate(self._entries, 1)
            for words in entry.warnings
        )

    @property
    def event(self) -> Event | None:
        """Composition of all entries; None if one of them is unproved."""
        # The list is read once, because another thread may replace it.
        entries = self._entries
        proved = tuple(entry.event for entry in entries if entry.event is not None)
        if len(proved) < len(entries):
            return None
        return ComposedEvent(proved) if proved else GaussianEvent(0.0)

    def add(self, item: Item, label: str = "") -> None:
        """Record one release, even if it should not have been made.

        A release that is not releasable or not proved is recorded as well, and
        `warnings` names it. An unproved entry makes epsilon infinite. A certificate
        whose event is declared is included with that event.

        Parameters
        ----------
        item : Certificate, EventCertificate or Event
            An event has no relation: its numbers must hold under the ledger's.
        label : str
            Name in the table.

        Raises
        ------
        ValueError
            If ``item`` is something else, or a certificate under another relation or
            with the digest of another one.
        """
        check.instance((Certificate, EventCertificate, Event), item=item)
        check.instance(str, label=label)
        if not isinstance(item, Event) and item.digest != item.computed_digest():
            remedy = "The certificate was changed since it was written."
            check.fail("digest", item.computed_digest(), item.digest, remedy)
        entry = Entry(label, item)
        if entry.relation not in (None, self.relation):
            remedy = "Keep one ledger for each relation." + (
                " A replacement is two zeroings: group_event(certificate.event, 2) "
                "may be added, unless it holds random samples."
            ) * (self.relation == "replace_one")
            condition = f"under {self.relation!r} like the ledger"
            check.fail("item", condition, repr(entry.relation), remedy)
        with _LOCK:
            self._entries = [*self._entries, entry]

    def __sklearn_clone__(self) -> Self:
        """Return the same ledger, so that clones of an estimator share it."""
        return self

    def spend(self, item: Item, label: str = "") -> None:
        """Record one release that is about to be made, if the budget allows it.

        Parameters
        ----------
        item, label
            As for `add`.

        Raises
        ------
        ValueError
            As `add`, and if the total would exceed the budget. Nothing is recorded
            then. An unproved entry exceeds every budget.
        """
        if os.getpid() != self._process:
            message = (
                "This ledger is a copy from another process, which does not see "
                "releases that are entered here. Use a LedgerFile for a budget that "
                "workers share."
            )
            warnings.warn(message, UserWarning, stacklevel=check.user_stack_level())
        after, total = Ledger(self.relation, self.budget), self.budget
        while True:
            before = after._entries = self._entries
            after.add(item, label)
            # "not <=" is also true for NaN, so that an undefined total is rejected.
            if total is not None and not after.delta() <= total.delta:
                condition = f"one with room for this release within {total}"
                spent = _digits_above(after.epsilon(), total.epsilon)
                got = f"a total of epsilon = {spent} at that delta"
                check.fail("ledger", condition, got, "See ledger.remaining().")
            with _LOCK:
                if self._entries is before:
                    self._entries = after._entries
                    return
            # Another thread has spent meanwhile. Compare its entries with the budget.

    def epsilon(self, delta: float | None = None) -> float:
        """Return epsilon of all entries together.

        Parameters
        ----------
        delta : float, optional
            Probability, >= 0 and < 1. By default the delta of the ledger's budget.

        Returns
        -------
        float
            An upper bound, which is infinite if an entry is unproved.

        Raises
        ------
        ValueError
            If ``delta`` is not inside [0, 1), or there is no budget to take it from.
        """
        if delta is None:
            delta = self._resolve_budget(None).delta
        check.half_open(0.0, 1.0, delta=delta)
        if self.event is None:
            return math.inf
        proved = epsilon_of(self.event, delta=delta, relation=self.relation)
        stated = self._stated_sums()
        if stated is not None and stated[1].is_within(delta):
            proved = min(proved, stated[0].least())
        return proved

    def delta(self, epsilon: float | None = None) -> float:
        """Return delta of all entries together.

        Parameters
        ----------
        epsilon : float, optional
            Privacy loss, >= 0. By default the epsilon of the ledger's budget.

        Returns
        -------
        float
            An upper bound; 1 if an entry is unproved.

        Raises
        ------
        ValueError
            If ``epsilon`` is out of its range, or missing without a budget.
        """
        if epsilon is None:
            epsilon = self._resolve_budget(None).epsilon
        check.non_negative(epsilon=epsilon)
        if self.event is None:
            return 1.0
        proved = delta_of(self.event, epsilon=epsilon, relation=self.relation)
        stated = self._stated_sums()
        if stated is not None and stated[0].is_within(epsilon):
            proved = min(proved, stated[1].least())
        return proved

    def remaining(self, budget: Budget | None = None) -> Remaining:
        """Return the largest further Gaussian release that the budget allows.

        Parameters
        ----------
        budget : Budget, optional
            Budget in place of the ledger's own, under the same relation.

        Returns
        -------
        Remaining
            Its gdp, and its own epsilon at the budget's delta, both rounded down:
            ``Budget(epsilon=remaining.epsilon, delta=budget.delta)`` calibrates it,
            unless that epsilon is 0.

        Raises
        ------
        ValueError
            If there is no budget or its relation is another one.
        """
        total = self._resolve_budget(budget)
        if self.event is None:
            return Remaining(0.0, 0.0)
        find = _largest_pure if total.is_pure else _largest_release
        return find(self.event, total)

    def to_json(self) -> str:
        """Return the ledger as JSON, certificates included."""
        entries = [
            {"label": label, _key_of(item): item.to_dict()}
            for label, item in self._entries
        ]
        content = {
            "format": FORMAT,
            "relation": self.relation,
            "budget": None if self.budget is None else vars(self.budget),
            "entries": entries,
        }
        return json.dumps(content, indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Read a ledger of `to_json`. `dpsample.verify` recomputes its certificates.

        Parameters
        ----------
        text : str
            JSON of one ledger.

        Returns
        -------
        Ledger
            With the same entries.

        Raises
        ------
        ValueError
            If the text is not a ledger or an entry is not valid.
        """
        content = load_json(text, FORMAT)
        if set(content) != {"format", "relation", "budget", "entries"}:
            check.fail("text", "a ledger with exactly the known fields", [*content])
        budget = (
            None if content["budget"] is None else parse("budget", content["budget"])
        )
        ledger = cls(content["relation"], budget)
        check.instance(list, entries=content["entries"])
        for entry in map(_entry_from_dict, content["entries"]):
            ledger.add(entry.item, entry.label)
        return ledger

    def __repr__(self) -> str:
        """Return a table of entries, the total, the remaining budget and warnings."""
        rows = [("", "release", "epsilon alone", "state")] + [
            (str(number), entry.title, self._alone(entry), _state_of(entry))
            for number, entry in enumerate(self._entries, 1)
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) for cell, width in zip(row, widths, strict=True)
            )
            for row in rows
        ]
        head = f"Ledger under {self.relation}, {len(self._entries)} releases"
        words = [f"Warning: {warning}" for warning in self.warnings]
        return "\n".join(
            [head, *(line.rstrip() for line in lines), *self.totals(), *words]
        )

    def _alone(self, entry: Entry) -> str:
        """Return the epsilon of one entry at the budget's delta, as text."""
        if entry.event is None:
            return _format_epsilon(math.inf)
        if self.budget is None:
            return "-"
        delta = self.budget.delta
        return _format_epsilon(
            epsilon_of(entry.event, delta=delta, relation=self.relation)
        )

    def totals(self) -> list[str]:
        """Return lines on the total and on the remaining budget.

        Returns
        -------
        list of str
            The last lines of the table.

        Examples
        --------
        >>> ledger = Ledger(budget=Budget(epsilon=1.0, delta=0.0))
        >>> ledger.spend(PureEvent(0.3))
        >>> ledger.totals()[1]
        'Remaining: one pure release of epsilon = 0.7'
        """
        budget = self.budget
        if budget is None:
            return ["No budget: ledger.epsilon(delta) is the total."]
        spent = f"epsilon = {_format_epsilon(self.epsilon())} of {budget.epsilon:g}"
        rest = _describe_remaining(self.remaining(), budget)
        return [f"Total: {spent} at delta = {budget.delta:g}", f"Remaining: {rest}"]

    def _stated_sums(self) -> tuple[Sum, Sum] | None:
        """Add up the promised (epsilon, delta); None if an entry promises none."""
        return sum_pairs(_promise(entry, self.relation) for entry in self._entries)

    def _resolve_budget(self, budget: Budget | None) -> Budget:
        """Return the given budget or the ledger's, which must exist and fit."""
        resolved = self.budget if budget is None else budget
        if not isinstance(resolved, Budget):
            check.fail("budget", "a Budget, of the ledger or of the call", resolved)
        if resolved.relation != self.relation:
            condition = f"{self.relation!r} like the ledger's"
            check.fail("budget.relation", condition, repr(resolved.relation))
        return resolved


def _largest_release(event: Event, budget: Budget) -> Remaining:
    """Return the largest Gaussian release that is safe after an event.

    The gdp is found by bisection. Both numbers are rounded down.
    """
    # The further event is put next to the others, as in `Ledger.spend`, and not around
    # their composition: nested sums differ in their last digit.
    parts = event.events if isinstance(event, ComposedEvent) else (event,)

    def is_safe(gdp: float) -> bool:
        composed = ComposedEvent((*parts, GaussianEvent(gdp)))
        delta = delta_of(composed, epsilon=budget.epsilon, relation=budget.relation)
        return delta <= budget.delta

    try:
        safe, unsafe = MIN_PRIVACY_LOSS, gdp_from_budget(budget.epsilon, budget.delta)
    except ValueError:  # a budget that is too small for any noise
        return Remaining(0.0, 0.0)
    if is_safe(unsafe):
        return Remaining(unsafe, budget.epsilon)
    if unsafe <= safe or not is_safe(safe):
        return Remaining(0.0, 0.0)
    safe = bisect(is_safe, safe=safe, unsafe=unsafe, width=TOLERANCE)
    # A release that is calibrated to this epsilon has this gdp, because each gdp has
    # one epsilon at the budget's delta. The factor covers the rounding errors of that.
    return Remaining(safe, gaussian_epsilon(budget.delta, safe) * (1.0 - 1e-9))


def _largest_pure(event: Event, budget: Budget) -> Remaining:
    """Return the largest pure release that is safe after an event, rounded down."""
    relation = budget.relation
    sums = basic_sums(normal_parts(event, relation))
    if sums is not None and sums[1].is_within(0.0):  # all parts are pure as well
        return Remaining(0.0, sums[0].room(budget.epsilon))
    parts = event.events if isinstance(event, ComposedEvent) else (event,)

    def is_safe(epsilon: float) -> bool:
        extended = ComposedEvent((*parts, PureEvent(epsilon)))
        return delta_of(extended, epsilon=budget.epsilon, relation=relation) == 0.0

    if not is_safe(MIN_PRIVACY_LOSS):
        return Remaining(0.0, 0.0)
    unsafe = budget.epsilon
    return Remaining(
        0.0, bisect(is_safe, safe=MIN_PRIVACY_LOSS, unsafe=unsafe, width=TOLERANCE)
    )


def _promise(entry: Entry, relation: str) -> tuple[float, float] | None:
    """Return epsilon and delta that an entry states and its event proves."""
    item = entry.item
    if isinstance(item, PureEvent):
        return item.epsilon, 0.0
    if isinstance(item, BoundedRangeEvent):
        return item.range, 0.0
    if isinstance(item, ApproximateEvent):
        return item.epsilon, item.delta
    if isinstance(item, Event) or item.event is None:
        return None
    budget = item.budget
    # The budget comes first: its digits are the user's, so that sums of budgets are
    # exact.
    stated = (budget.epsilon, item.epsilon_proved)
    return _first_proved(item.event, stated, budget.delta, relation)


@functools.lru_cache(maxsize=1024)
def _first_proved(
    event: Event, epsilons: tuple[float, ...], delta: float, relation: str
) -> tuple[float, float] | None:
    """Return the first epsilon that the event proves at delta, with delta."""
    for epsilon in filter(math.isfinite, epsilons):
        if delta_of(event, epsilon=epsilon, relation=relation) <= delta:
            return epsilon, delta
    return None


def _state_of(entry: Entry) -> str:
    """Return a word for the table: whether the entry is a guarantee."""
    if entry.relation is None:
        return "as declared"
    if entry.is_declared and len(entry.warnings) == 1:
        return "declared"
    return "NOT a guarantee" if entry.warnings else "proved"


def _describe_remaining(rest: Remaining, budget: Budget) -> str:
    """Return a sentence on the remaining budget."""
    if rest == (0.0, 0.0):
        return "nothing."
    if budget.is_pure:
        return f"one pure release of epsilon = {rest.epsilon:.4g}"
    if rest.epsilon == 0.0:
        return f"no epsilon, and delta for one release of gdp = {rest.gdp:.4g}"
    return f"one release of gdp = {rest.gdp:.4g} (epsilon = {rest.epsilon:.4g})"


def _digits_above(value: float, limit: float) -> str:
    """Return a value with enough digits to show that it is above a limit."""
    if not math.isfinite(value):
        return "infinity"
    texts = (f"{value:.{digits}g}" for digits in range(4, 17))
    return next((text for text in texts if float(text) > limit), repr(value))


def _format_epsilon(epsilon: float) -> str:
    """Return an epsilon as text, rounded up."""
    if not math.isfinite(epsilon):
        return "infinite"
    return round_up(epsilon) if epsilon > 0.0 else "0"


def _key_of(item: Item) -> str:
    """Return the key of an item in the JSON form of its entry."""
    return "event" if isinstance(item, Event) else "certificate"


def _entry_from_dict(fields: Json) -> Entry:
    """Rebuild one entry of the JSON form."""
    check.instance(dict, entry=fields)
    kinds = set(fields) - {"label"}
    if "label" not in fields or kinds not in ({"event"}, {"certificate"}):
        condition = "a label with an event or a certificate"
        check.fail("entry", condition, check.describe(fields))
    if kinds == {"event"}:
        return Entry(fields["label"], events.from_dict(fields["event"]))
    content = fields["certificate"]
    check.instance(dict, certificate=content)
    formats = {
        name: kind
        for kind in (Certificate, EventCertificate)
        for name in (kind.FORMAT, *kind.FORMER_FORMATS)
    }
    check.one_of(tuple(formats), format=content.get("format"))
    return Entry(fields["label"], formats[content["format"]].from_dict(content))
