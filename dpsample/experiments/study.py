"""Studies and metrics: frozen data and pure functions, written in ``studies/NAME.py``.

A study is a grid of *cells*. A cell is one choice of the parameters, and is measured in
*replicates* with different random numbers. A *metric* is a number that each replicate
returns. A *reference* is a bound or a value with which its mean is compared.

A cell is identified by the canonical JSON of its parameters. The seed of a replicate
depends on the study, the cell and the number of the replicate only. So neither the
order of the grid nor the backend changes any number.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np

from dpsample.core import check

Params = Mapping[str, Any]
# A number, a function of the cell, or the name of another metric of the same cell.
Reference = float | str | Callable[[Params], float]
Kind = Literal["mean", "rate", "exact"]
# Default of the relative tolerance for rounding, when numbers are compared.
ROUNDING = 1e-9
Grid = Params | Sequence[Params]


@dataclass(frozen=True)
class Metric:
    """One number that a cell measures, and its references in theory.

    Attributes
    ----------
    name : str
        Key in what the cell returns.
    label : str
        Title on axes and in tables. By default the name.
    kind : {"mean", "rate", "exact"}
        "mean": random numbers, whose mean has a Student interval. "rate": values 0 and
        1, with the exact binomial interval. "exact": a computed number, which is the
        same in every replicate.
    bound, lower, expected : float, str or callable, optional
        Upper bound, lower bound and exact value that theory proves for the mean. Each
        is a number, a function of the cell's parameters, or the name of another metric.
    printed : float, str or callable, optional
        Upper bound that a paper states without a proof. A mean above it is beyond
        print. Infinity where the paper states none.
    baseline : float, str or callable, optional
        Value of the best answer that reads no record, such as theta = 0. An upper bound
        that is not below it is vacuous.
    tolerance : float
        Relative allowance for rounding when numbers are compared. The report shows it.
    """

    name: str
    _: KW_ONLY
    label: str = ""
    kind: Kind = "mean"
    bound: Reference | None = None
    lower: Reference | None = None
    expected: Reference | None = None
    printed: Reference | None = None
    baseline: Reference | None = None
    tolerance: float = ROUNDING

    def __post_init__(self) -> None:
        """Validate the text fields and the numbers."""
        check.instance(str, name=self.name, label=self.label)
        check.non_negative(tolerance=self.tolerance)
        check.one_of(("mean", "rate", "exact"), kind=self.kind)
        for name in ("bound", "lower", "expected", "printed", "baseline"):
            value = getattr(self, name)
            if not (value is None or isinstance(value, str) or callable(value)):
                remedy = "Or name a metric, or pass a function of the parameters."
                check.at_least(-math.inf, **{name: value}, remedy=remedy)

    @property
    def title(self) -> str:
        """Title on axes and in tables."""
        return self.label or self.name

    @property
    def references(self) -> dict[str, Reference]:
        """References by the names that the report uses."""
        every = {
            "upper bound": self.bound,
            "lower bound": self.lower,
            "expected": self.expected,
            "printed bound": self.printed,
        }
        return {word: value for word, value in every.items() if value is not None}

    @property
    def stated(self) -> dict[str, Reference]:
        """References, and the baseline if there is one."""
        baseline = {} if self.baseline is None else {"baseline": self.baseline}
        return self.references | baseline


@dataclass(frozen=True, kw_only=True)
class Inapplicable:
    """Cells in which a bound does not apply, declared before the run.

    Attributes
    ----------
    when : callable
        Function of the cell's parameters: whether a condition of the theorem fails.
    reason : str
        The condition, as text.
    metrics : tuple of str
        Metrics that are not compared with a reference there. By default all metrics.
    """

    when: Callable[[Params], bool]
    reason: str
    metrics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Validate the fields that do not depend on the cells."""
        if not callable(self.when):
            check.fail(
                "when", "a function of the parameters", check.describe(self.when)
            )
        check.instance(str, reason=self.reason)
        check.members(str, metrics=self.metrics)

    def concerns(self, metric: str, params: Params) -> bool:
        """Return whether the metric's references do not apply in this cell."""
        check.instance(str, metric=metric)
        check.instance(Mapping, params=params)
        return (not self.metrics or metric in self.metrics) and bool(self.when(params))


def names(value: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return one name or several names as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Means against one parameter, with bounds, and bands from the replicates.

    Attributes
    ----------
    x : str
        Parameter on the horizontal axis.
    y : str or tuple of str
        Metric, or metrics, on the vertical axis.
    lines, panels : str or tuple of str
        Parameters with one line, and one panel, for each value. Every other parameter
        has one value, in the grid or in ``where``.
    where : mapping
        Values of parameters: only these cells are drawn.
    bound : bool
        Draw bounds and expected values too.
    log_log : bool
        Logarithmic axes.
    dots : bool
        Draw one row for each value of ``x``, sorted by its mean, in place of lines.
        ``lines`` then gives the colors, and there is one panel.
    level : float, optional
        Value of the metric with which all others are compared. It has a gray line.
    y_limits : tuple of float, optional
        Ends of the axis of the metric, which is then linear.
    title, x_label, y_label : str
        Texts. By default the titles of the study and of the metric.
    """

    x: str
    y: str | tuple[str, ...]
    lines: str | tuple[str, ...] = ()
    panels: str | tuple[str, ...] = ()
    where: Mapping[str, Any] = field(default_factory=dict)
    bound: bool = True
    log_log: bool = True
    dots: bool = False
    level: float | None = None
    y_limits: tuple[float, float] | None = None
    title: str = ""
    x_label: str = ""
    y_label: str = ""

    def __post_init__(self) -> None:
        """Validate the text fields. `Study` checks the names."""
        texts = {"x": self.x, "title": self.title}
        check.instance(str, **texts, x_label=self.x_label, y_label=self.y_label)
        check.instance(bool, bound=self.bound, log_log=self.log_log, dots=self.dots)
        check.instance(Mapping, where=self.where)
        for name in ("y", "lines", "panels"):
            value = getattr(self, name)
            check.members(str, **{name: (value,) if isinstance(value, str) else value})
        if self.y_limits is not None:
            low, high = check.array("y_limits", self.y_limits, shape=(2,))
            if not -math.inf < low < high < math.inf:
                got = check.describe(self.y_limits)
                check.fail("y_limits", "two finite numbers, the lower one first", got)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics on the vertical axis."""
        return names(self.y)


@dataclass(frozen=True, kw_only=True)
class Slope:
    """Exponent of a power law: slope of log mean against log parameter.

    Attributes
    ----------
    x, y : str
        Parameter and metric. There is one fit for each choice of the others.
    expected : float or callable
        The theorem's exponent, or a function of the parameters that are fixed.
    theorem : str
        Where it is proved.
    is_exact : bool
        Whether the theorem gives the rate itself, not only an upper bound of it.
    where : mapping
        Values of parameters: only these cells are fitted.
    tolerance : float
        Allowance for the effect of lower-order terms on the exponent. A fit within it
        agrees, however narrow its interval is, and the report says so.
    note : str
        Explanation of a difference, which the report shows next to the fit.
    """

    x: str
    y: str
    expected: float | Callable[[Params], float]
    theorem: str
    is_exact: bool = False
    where: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 0.0
    note: str = ""

    def __post_init__(self) -> None:
        """Validate the text fields and the number. `Study` checks the names."""
        check.instance(str, x=self.x, y=self.y, theorem=self.theorem, note=self.note)
        check.instance(bool, is_exact=self.is_exact)
        check.instance(Mapping, where=self.where)
        check.non_negative(tolerance=self.tolerance)
        if not callable(self.expected):
            check.open_interval(-math.inf, math.inf, expected=self.expected)


def fixed_of(slope: Slope, params: Params) -> Params | None:
    """Return the other parameters of a cell; None if it does not belong to a fit."""
    others = dict(params)
    x = others.pop(slope.x, None)
    is_selected = all(params.get(n) == v for n, v in slope.where.items())
    # Only positive finite numbers have a place on a logarithmic axis.
    has_log = isinstance(x, int | float) and 0.0 < x < math.inf
    return others if is_selected and has_log else None


def exponent_of(slope: Slope, fixed: Params) -> float:
    """Return the exponent of the theorem for fixed parameters."""
    if not callable(slope.expected):
        return float(slope.expected)
    value = float(slope.expected(fixed))
    if math.isnan(value):
        where = f"slope of {slope.y} in {slope.x} at {key_of(fixed)}"
        check.fail(where, "a number", "nan")
    return value


# A power law is fitted to at least this number of points.
MIN_FIT_POINTS = 2


class Cell(NamedTuple):
    """One choice of the parameters, and its key in the store."""

    params: dict[str, Any]
    key: str


def expand(grid: Grid) -> tuple[Cell, ...]:
    """Return all combinations of each mapping, in the order written."""
    parts = (grid,) if isinstance(grid, Mapping) else grid
    check.members(Mapping, grid=parts)
    cells = tuple(cell for part in parts for cell in _combinations(part))
    if not cells:
        check.fail("grid", "a mapping with at least one cell", grid)
    keys = [cell.key for cell in cells]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        check.fail("grid", "without repeated cells", f"{twice} twice")
    return cells


def _combinations(part: Params) -> Iterator[Cell]:
    """Yield a cell for each combination of the values of parameters."""
    check.instance(Mapping, grid=part)
    axes = [
        value if isinstance(value, list | tuple | np.ndarray) else (value,)
        for value in part.values()
    ]
    for values in product(*axes):
        params = {n: _plain(n, v) for n, v in zip(part, values, strict=True)}
        yield Cell(params, key_of(params))


def _plain(name: str, value: object) -> object:
    """Return a value as JSON keeps it. Numbers of NumPy become those of Python."""
    value = value.item() if isinstance(value, np.generic) else value
    is_plain = value is None or isinstance(value, bool | int | float | str)
    if not is_plain or (isinstance(value, float) and math.isnan(value)):
        check.fail(f"parameter {name}", "a number, a word, a bool or None", value)
    return value


def key_of(params: Params) -> str:
    """Return the key of a cell, the canonical JSON of its parameters."""
    return json.dumps(dict(sorted(params.items())))


def seeds_of(
    study: str,
    params: Params,
    replicates: Sequence[int],
    *,
    root: int = 0,
    paired: Sequence[str] = (),
) -> list[np.random.SeedSequence]:
    """Return the seeds of replicates.

    The seed of replicate i is the i-th child of the cell's seed sequence. That is a
    child of the root, whose spawn key is a digest of the study's name and the cell's
    key.
    """
    identity = {name: value for name, value in params.items() if name not in paired}
    digest = hashlib.sha256(f"{study}\n{key_of(identity)}".encode()).digest()
    # Parameters in `paired` do not enter the digest, so cells that differ only in them
    # share their seeds. Four words of 32 bits make collisions impossible in practice.
    words = np.frombuffer(digest[:16], dtype="<u4").tolist()
    return [np.random.SeedSequence(root, spawn_key=(*words, i)) for i in replicates]


@dataclass(frozen=True, kw_only=True)
class Study:
    """A question, the cells in which it is asked, and what one replicate measures.

    Attributes
    ----------
    name : str
        That of its file.
    title, question : str
        Heading of the report, and what it asks.
    answer : str or callable
        Result of a full run as text, written after it. ``answer(mean)`` returns a text
        with numbers in it: ``mean(metric, **params)`` is the mean in the cell with
        these parameters, NaN without replicates.
    grid : mapping or sequence of mappings
        Parameters and their values, of which all combinations are cells. A sequence of
        mappings is a union. A value that is not a list or tuple stands for itself.
    quick : mapping or sequence of mappings, optional
        Cells of a quick run. By default the grid.
    replicates, quick_replicates : int or callable
        Number of replicates in each cell, or a function of its parameters.
    cell : callable, optional
        ``cell(params, seed)`` computes one replicate, a mapping from metrics to
        numbers. Its only source of randomness is the `numpy.random.SeedSequence`. It
        leaves out a metric that has no meaning in a cell.
    batch : callable, optional
        ``batch(params, seeds)``, in place of ``cell``, computes many replicates at
        once. It returns a mapping from metrics to arrays, whose entry i may depend on
        ``seeds[i]`` only.
    block : int, optional
        Number of replicates of one task. By default 1 for ``cell`` and all for
        ``batch``. It cannot change a result. If a run is killed, its running tasks are
        lost.
    data : mapping, optional
        Functions without arguments, by name, each called once per process. Then the
        cell is ``cell(params, seed, data)``, with ``data[name]`` what they returned:
        arrays, which may be memory-mapped and are made read-only, or tuples of them.
    metrics : tuple of Metric
        All that a cell may return.
    figures, slopes, inapplicable : tuple
        Figures and fits of the report, and cells in which bounds do not apply.
    paired : tuple of str
        Parameters that the seeds ignore. Cells that differ in these parameters only
        have the same records and noise, so their differences have a smaller variance.
    seed : int
        Root of all seeds.
    confidence : float
        Confidence of intervals and bands.
    """

    name: str
    title: str
    question: str
    grid: Grid
    metrics: tuple[Metric, ...]
    replicates: int | Callable[[Params], int]
    cell: Callable[..., Mapping[str, float]] | None = None
    batch: Callable[..., Mapping[str, Any]] | None = None
    block: int | None = None
    quick: Grid | None = None
    quick_replicates: int | Callable[[Params], int] | None = None
    data: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()
    slopes: tuple[Slope, ...] = ()
    inapplicable: tuple[Inapplicable, ...] = ()
    paired: tuple[str, ...] = ()
    seed: int = 0
    confidence: float = 0.95
    answer: str | Callable[[Callable[..., float]], str] = ""

    def __post_init__(self) -> None:
        """Check the fields, and that all names refer to something."""
        for text in (self.name, self.title, self.question):
            check.instance(str, name=text)
        if not callable(self.answer):
            check.instance(str, answer=self.answer)
        if (self.cell is None) == (self.batch is None):
            check.fail("cell", "given, or batch, and not both", repr(self.cell))
        if self.block is not None:
            check.integer(1, block=self.block)
        check.integer(0, maximum=check.MAX_SEED, seed=self.seed)
        check.members(Metric, metrics=self.metrics)
        check.members(Figure, figures=self.figures)
        check.members(Slope, slopes=self.slopes)
        check.members(Inapplicable, inapplicable=self.inapplicable)
        check.members(str, paired=self.paired)
        check.instance(Mapping, data=self.data)
        for name in ("cell", "batch"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                check.fail(name, "a function, or None", check.describe(function))
        check.open_interval(0.0, 1.0, confidence=self.confidence)
        metric_names = [metric.name for metric in self.metrics]
        if not metric_names or len(set(metric_names)) < len(metric_names):
            check.fail(
                "metrics", "a tuple of Metric with distinct names", repr(metric_names)
            )
        for metric in self.metrics:
            named = (r for r in metric.stated.values() if isinstance(r, str))
            _check_known("metric", named, metric_names)
        for entry in self.inapplicable:
            _check_known("metric", entry.metrics, metric_names)
        # Evaluating all cells finds repeated cells and wrong functions before a run.
        for quick in (False, True):
            for cell in self.cells(quick=quick):
                check.integer(1, replicates=self.replicates_of(cell, quick=quick))
        self._check_views(metric_names)

    def _check_views(self, metric_names: list[str]) -> None:
        """Check that figures and slopes name declared parameters and metrics."""
        parameters = {name for cell in self.cells() for name in cell.params}
        _check_known("parameter", self.paired, parameters)
        for figure in self.figures:
            used = (figure.x, *names(figure.lines), *names(figure.panels))
            _check_known("parameter", (*used, *figure.where), parameters)
            _check_known("metric", figure.metrics, metric_names)
            for quick in (False, True):
                self._check_points(figure, {*used, *figure.where}, quick=quick)
        for slope in self.slopes:
            _check_known("parameter", (slope.x, *slope.where), parameters)
            _check_known("metric", (slope.y,), metric_names)

    def _check_points(self, figure: Figure, used: set[str], *, quick: bool) -> None:
        """Check that no two cells of a figure are drawn at one point."""
        seen: dict[str, Params] = {}
        for cell in self.cells(quick=quick):
            params = cell.params
            if all(params.get(name) == value for name, value in figure.where.items()):
                # Cells at one point may differ only in parameters that are drawn.
                point = key_of({name: params[name] for name in params if name in used})
                first = seen.setdefault(point, params)
                free = [n for n in params if first.get(n, params[n]) != params[n]]
                if free:
                    remedy = "Name them in lines, panels or where."
                    figure_name = f"figure of {', '.join(figure.metrics)}"
                    got = f"several {', '.join(free)}"
                    check.fail(figure_name, "of one cell at each point", got, remedy)

    def cells(self, *, quick: bool = False) -> tuple[Cell, ...]:
        """Return the cells of a full or a quick run, in the order of the grid."""
        check.instance(bool, quick=quick)
        return expand(self.quick if quick and self.quick is not None else self.grid)

    def replicates_of(self, cell: Cell, *, quick: bool = False) -> int:
        """Return the number of replicates of a cell."""
        check.instance(Cell, cell=cell)
        check.instance(bool, quick=quick)
        quick_number = self.quick_replicates if quick else None
        number = self.replicates if quick_number is None else quick_number
        return number(cell.params) if callable(number) else number

    def metric(self, name: str) -> Metric:
        """Return the metric of this name."""
        check.one_of([metric.name for metric in self.metrics], name=name)
        return next(metric for metric in self.metrics if metric.name == name)


def _check_known(kind: str, used: Iterable[str], declared: Iterable[str]) -> None:
    """Raise unless all used names are declared."""
    for name in used:
        check.one_of(tuple(declared), **{kind: name})
