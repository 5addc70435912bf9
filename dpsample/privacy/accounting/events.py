"""Events, for accounting: the effect of mechanisms on privacy, in a few numbers.

Events of one mechanism come first. Then come events made of other events: in sequence,
on disjoint blocks of records, near to an ideal one, and the best of several. An event
is frozen data and does not name a neighboring relation. Its numbers hold under the
relation of the certificate or ledger that carries it. `accounting.epsilon_of` and
`accounting.delta_of` turn events into (epsilon, delta).

Every event has a ``name`` that identifies its kind in JSON.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from dpsample.core import check, spec
from dpsample.core.spec import Json, Spec
from dpsample.privacy.curves.random_stopping import check_stop


class Event(Spec):
    """Base of all events, which are compared by content and stored as JSON."""

    def __post_init__(self) -> None:
        """Check the fields, which are numbers >= 0 unless an event overrides this."""
        self._store(**vars(self))

    def _store(self, **values: Any) -> None:
        """Check numbers and store them as floats, so that equal events have equal JSON.

        Subnormal numbers are rejected, because products with them lose their digits.
        """
        check.non_negative(**values)
        for name, value in values.items():
            if value != 0.0:
                check.normal(**{name: value})
            object.__setattr__(self, name, float(value))


@dataclass(frozen=True, eq=False)
class GaussianEvent(Event):
    """Privacy curve at most that of two unit Gaussians at distance ``gdp``.

    Dong, Roth and Su (2022), Definition 2.6.

    Parameters
    ----------
    gdp : float
        Distance, finite and >= 0, that is the sensitivity under the relation in force
        over the noise's standard deviation.

    Raises
    ------
    ValueError
        If ``gdp`` is negative, infinite or not a number.

    Examples
    --------
    >>> GaussianEvent(0.5)
    GaussianEvent(gdp=0.5)
    """

    name: ClassVar[str] = "gaussian"
    gdp: float


@dataclass(frozen=True, eq=False, kw_only=True)
class PoissonGaussianEvent(Event):
    """Steps that add Gaussian noise to the sum over a Poisson sample of the records.

    Each step takes every record with probability ``sampling_rate``, independently of
    the others, and releases the sum of vectors of l_2 norm at most C with noise of
    standard deviation ``noise_multiplier`` * C. (A mean divides both by the same
    constant. It must not be the size of the sample, which depends on the records.)

    Parameters
    ----------
    sampling_rate : float
        Probability, > 0 and <= 1.
    noise_multiplier : float
        Standard deviation over the bound C of *one record's* vector, > 0. The number
        means the same under both relations. The accountant includes that replacing a
        record moves a sum by 2 C.
    num_steps : int
        Number of steps, >= 1.

    Raises
    ------
    ValueError
        If a number is out of its range.

    Examples
    --------
    >>> PoissonGaussianEvent(sampling_rate=0.1, noise_multiplier=6.07, num_steps=500)
    PoissonGaussianEvent(sampling_rate=0.1, noise_multiplier=6.07, num_steps=500)
    """

    name: ClassVar[str] = "poisson_gaussian"
    sampling_rate: float
    noise_multiplier: float
    num_steps: int

    def __post_init__(self) -> None:
        """Check the numbers."""
        check.positive(sampling_rate=self.sampling_rate)
        if self.sampling_rate > 1.0:
            check.fail("sampling_rate", "<= 1", self.sampling_rate)
        check.positive(noise_multiplier=self.noise_multiplier)
        check.integer(1, num_steps=self.num_steps)
        # Numbers of steps stay integers in the JSON, and the others become floats.
        rate, noise = self.sampling_rate, self.noise_multiplier
        self._store(sampling_rate=rate, noise_multiplier=noise)
        object.__setattr__(self, "num_steps", int(self.num_steps))


@dataclass(frozen=True, eq=False, kw_only=True)
class AllocatedGaussianEvent(Event):
    """Epochs of Gaussian steps, each record in one step of every epoch, at random.

    In every epoch a record picks one of ``num_steps`` steps, uniformly and
    independently of the others. Each step releases the sum of its records' vectors of
    l_2 norm at most C with noise of standard deviation ``noise_multiplier`` * C, even
    without records. It is divided by a constant if at all. A shuffle is different,
    because its batches have fixed sizes.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation over the bound C of *one record's* vector, > 0.
    num_steps, num_epochs : int
        Steps of an epoch, and epochs, >= 1.

    Raises
    ------
    ValueError
        If a number is out of its range.

    Guarantee
    ---------
    `delta_of` is an upper bound under both relations. It includes the random choice of
    steps only under "zero_out" (proof in `dpsample.privacy.accounting.allocation`).

    Examples
    --------
    >>> from dpsample.privacy import epsilon_of
    >>> epoch = AllocatedGaussianEvent(noise_multiplier=1.0, num_steps=100)
    >>> round(epsilon_of(epoch, delta=1e-6, relation="zero_out"), 3)
    0.858
    """

    name: ClassVar[str] = "allocated_gaussian"
    noise_multiplier: float
    num_steps: int
    num_epochs: int = 1

    def __post_init__(self) -> None:
        """Check the numbers."""
        check.positive(noise_multiplier=self.noise_multiplier)
        check.integer(1, num_steps=self.num_steps, num_epochs=self.num_epochs)
        self._store(noise_multiplier=self.noise_multiplier)
        object.__setattr__(self, "num_steps", int(self.num_steps))
        object.__setattr__(self, "num_epochs", int(self.num_epochs))


@dataclass(frozen=True, eq=False)
class PureEvent(Event):
    """Pure differential privacy: probabilities change by a factor <= e^epsilon.

    Parameters
    ----------
    epsilon : float
        Finite and >= 0.

    Raises
    ------
    ValueError
        If ``epsilon`` is negative, infinite or not a number.

    Examples
    --------
    >>> PureEvent(1)
    PureEvent(epsilon=1.0)
    """

    name: ClassVar[str] = "pure"
    epsilon: float


@dataclass(frozen=True, eq=False)
class BoundedRangeEvent(Event):
    """Log-likelihood ratios of neighbors stay in an interval of length ``range``.

    Exponential mechanisms are of this kind. They are ``range``-DP, and more private
    than that says, because the interval contains 0. `dpsample.privacy.curves.
    bounded_range` has the curve. Post-processing keeps the range, because a ratio of
    sums is a mean of ratios.

    Parameters
    ----------
    range : float
        Finite and >= 0.

    Raises
    ------
    ValueError
        If ``range`` is negative, infinite or not a number.

    Examples
    --------
    >>> from dpsample.privacy import epsilon_of
    >>> event = BoundedRangeEvent(1.0)
    >>> epsilon_of(event, delta=0.0, relation="replace_one")
    1.0
    >>> both = ComposedEvent((event,) * 8)
    >>> f"{epsilon_of(both, delta=1e-6, relation='replace_one'):.2f}"
    '6.83'
    """

    name: ClassVar[str] = "bounded_range"
    range: float


@dataclass(frozen=True, eq=False, kw_only=True)
class TiltEvent(Event):
    """Exact minimizer of the objective of a linear model plus a random linear term.

    The random term is called the tilt. `dpsample.privacy.PerturbedObjective` has the
    curve, which is not Gaussian. It composes with Gaussian events by integration.

    Parameters
    ----------
    log_determinant : float
        log(1 + beta / (2 n lambda)), finite and >= 0, for n records, losses of
        curvature beta and a ridge lambda |theta|^2.
    distance : float
        Shift of the tilt that undoes a change of one record, over the tilt's standard
        deviation, >= 0.

    Raises
    ------
    ValueError
        If a number is negative, infinite or not a number.

    Examples
    --------
    >>> TiltEvent(log_determinant=0.1, distance=0.2)
    TiltEvent(log_determinant=0.1, distance=0.2)
    """

    name: ClassVar[str] = "tilt"
    log_determinant: float
    distance: float


@dataclass(frozen=True, eq=False, kw_only=True)
class ApproximateEvent(Event):
    """(epsilon, delta)-differential privacy, without more knowledge of the curve.

    Parameters
    ----------
    epsilon : float
        Finite and >= 0.
    delta : float
        Probability, >= 0 and < 1.

    Raises
    ------
    ValueError
        If a number is out of its range.

    Examples
    --------
    >>> ApproximateEvent(epsilon=1.0, delta=1e-6)
    ApproximateEvent(epsilon=1.0, delta=1e-06)
    """

    name: ClassVar[str] = "approximate"
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        if self.delta >= 1.0:
            check.fail("delta", "< 1", self.delta)


@dataclass(frozen=True, eq=False)
class ConcentratedEvent(Event):
    """Zero-concentrated privacy: every Renyi divergence of order a is <= rho a.

    Bun and Steinke (2016), Definition 1.1.

    Parameters
    ----------
    rho : float
        Finite and >= 0.

    Raises
    ------
    ValueError
        If ``rho`` is negative, infinite or not a number.

    Examples
    --------
    >>> ConcentratedEvent(0.125)
    ConcentratedEvent(rho=0.125)
    """

    name: ClassVar[str] = "concentrated"
    rho: float


@dataclass(frozen=True, eq=False)
class EventGroup(Event):
    """Base of the events that are made of others."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        """Check that there are events, and keep them as a tuple."""
        events: object = self.events
        if not isinstance(events, tuple | list) or not events:
            check.fail("events", "a nonempty tuple of events", check.describe(events))
        # The name in a message tells which of the events is meant.
        for index, item in enumerate(events):
            check.instance(Event, **{f"events[{index}]": item})
        object.__setattr__(self, "events", tuple(events))


@dataclass(frozen=True, eq=False)
class ComposedEvent(EventGroup):
    """Several events on the same records, all of them released.

    Each mechanism may be chosen in view of earlier answers, as long as its event is
    fixed beforehand. Budgets that are themselves chosen in view of the answers (fully
    adaptive composition, privacy filters) are not covered.

    Parameters
    ----------
    events : tuple of Event
        At least one.

    Raises
    ------
    ValueError
        If ``events`` is empty or holds something else.

    Examples
    --------
    >>> len(ComposedEvent((GaussianEvent(0.3), GaussianEvent(0.4))).events)
    2
    """

    name: ClassVar[str] = "composed"


@dataclass(frozen=True, eq=False)
class ParallelEvent(EventGroup):
    """Events on disjoint blocks of records, of which only the worst one counts.

    Delta is the largest of the blocks' deltas at the same epsilon.

    Which record sits in which block must be fixed by public indices, because neighbors
    then differ in one block. A partition that depends on the records' content (by
    label, by cluster) may put the new record into another block than the old one: under
    "replace_one" two blocks change, and the two events have to be composed.

    Parameters
    ----------
    events : tuple of Event
        One for each block, at least one.

    Raises
    ------
    ValueError
        If ``events`` is empty or holds something else.

    Examples
    --------
    >>> len(ParallelEvent((GaussianEvent(0.3), GaussianEvent(0.4))).events)
    2
    """

    name: ClassVar[str] = "parallel"


@dataclass(frozen=True, eq=False)
class NearEvent(Event):
    """Mechanism that is, on every data set, close to one that satisfies ``event``.

    It adds (1 + e^epsilon) times the total variation t to delta, not t itself, because
    P'(S) <= P(S) + t <= e^epsilon Q(S) + delta + t <= e^epsilon Q'(S) + delta +
    (1 + e^epsilon) t.

    Parameters
    ----------
    event : Event
        Event of the ideal mechanism.
    total_variation : float
        Largest total variation distance to it over all data sets, >= 0 and < 1.

    Raises
    ------
    ValueError
        If ``event`` is not an event or the distance is out of its range.

    Examples
    --------
    >>> NearEvent(GaussianEvent(0.2), 1e-8)
    NearEvent(event=GaussianEvent(gdp=0.2), total_variation=1e-08)
    """

    name: ClassVar[str] = "near"
    event: Event
    total_variation: float

    def __post_init__(self) -> None:
        """Check the parts."""
        check.instance(Event, event=self.event)
        self._store(total_variation=self.total_variation)
        if self.total_variation >= 1.0:
            check.fail("total_variation", "< 1", self.total_variation)


@dataclass(frozen=True, eq=False)
class BestOfEvent(EventGroup):
    """Best outcome, by its private score, of a secret random number K of runs.

    Each run draws one of the candidates by a distribution that does not depend on the
    records, and runs it independently. `dpsample.privacy.curves.random_stopping` has
    the theorem. With other events it composes by adding epsilons and deltas.

    Parameters
    ----------
    events : tuple of Event
        One for each candidate, its score included. The worst of them counts.
    stop : {"logarithmic", "geometric", "poisson"}
        Distribution of the number K of attempts.
    mean_tries : float
        Mean of K, from 1 to 1000.

    Raises
    ------
    ValueError
        If ``events`` is empty or holds something else or a `NearEvent`, or another
        argument is out of its range.

    Examples
    --------
    >>> from dpsample.privacy import BestOfEvent, GaussianEvent, epsilon_of
    >>> one = GaussianEvent(0.2367)
    >>> best = BestOfEvent((one,), stop="logarithmic", mean_tries=10)
    >>> print(f"{epsilon_of(best, delta=1e-6, relation='replace_one'):.3f}")
    1.441
    """

    name: ClassVar[str] = "best_of"
    stop: str = field(kw_only=True)
    mean_tries: float = field(kw_only=True)

    def __post_init__(self) -> None:
        """Check the parts."""
        super().__post_init__()
        check_stop(self.stop, self.mean_tries)
        object.__setattr__(self, "mean_tries", float(self.mean_tries))
        # Accounting reads the ideal parts of a candidate and would miss its distance.
        if any(map(has_near, self.events)):
            check.fail("events", "without a NearEvent", check.describe(self.events))


def has_near(event: Event) -> bool:
    """Return whether an event holds a `NearEvent`."""
    inner = event.events if isinstance(event, EventGroup) else ()
    return isinstance(event, NearEvent) or any(map(has_near, inner))


# Kinds of events that a file can hold, with their names.
KINDS = (
    GaussianEvent,
    PoissonGaussianEvent,
    AllocatedGaussianEvent,
    PureEvent,
    BoundedRangeEvent,
    ApproximateEvent,
    ConcentratedEvent,
    TiltEvent,
    ComposedEvent,
    ParallelEvent,
    NearEvent,
    BestOfEvent,
)

# Maximum depth of nested events in a file. The functions that read and use events are
# recursive, and Python limits the depth of their calls.
MAX_DEPTH = 50


def from_dict(data: Json) -> Event:
    """Rebuild an event from its ``to_dict``.

    Parameters
    ----------
    data : dict
        Name and fields of the event.

    Returns
    -------
    Event
        An event equal to the one described.

    Raises
    ------
    ValueError
        If the name is unknown, a field is missing or unknown, or a value is not valid.

    Examples
    --------
    >>> event = NearEvent(ComposedEvent((GaussianEvent(0.3), PureEvent(0.1))), 1e-9)
    >>> from_dict(event.to_dict()) == event
    True
    """
    return _from_dict(data, MAX_DEPTH)


def _from_dict(data: Json, levels_left: int) -> Event:
    """Rebuild an event that has at most ``levels_left`` levels."""
    check.instance(dict, data=data)
    if levels_left == 0:
        check.fail("data", f"of events nested less than {MAX_DEPTH} deep", "more")
    # Events inside are rebuilt first, because the outer one checks their types.
    inner: dict[str, Any] = {}
    if isinstance(data.get("events"), list):
        inner["events"] = tuple(
            _from_dict(item, levels_left - 1) for item in data["events"]
        )
    if "event" in data:
        inner["event"] = _from_dict(data["event"], levels_left - 1)
    try:
        return spec.from_dict(KINDS, data | inner)
    except TypeError as error:
        check.fail("data", "the complete fields of an event", data, f"({error})")
