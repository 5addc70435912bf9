"""Published noise formulas of five papers, with their claimed and true epsilon.

Each formula of a paper is evaluated at one or more settings. `claims` returns the
table, and `dpsample claims` prints it. `verdicts` has the errata of the papers, and a
verdict on each of their numbered items. `bound` returns a published bound as a function
of the paper's symbols.
"""

from collections.abc import Callable, Iterator

from dpsample.core import check
from dpsample.core.public import dir_of
from dpsample.papers import bassily, clipping_instance, gopi, su, xie, xu
from dpsample.papers.claim import PAPERS, Case, Claim
from dpsample.papers.verdicts import bound, bounds

__all__ = [
    "PAPERS",
    "Claim",
    "bound",
    "bounds",
    "claims",
    "clipping_instance",
]
__dir__ = dir_of(__all__)

_SOURCES: dict[str, Callable[[], Iterator[Case]]] = {
    "bassily": bassily.cases,
    "gopi": gopi.cases,
    "su": su.cases,
    "xie": xie.cases,
    "xu": xu.cases,
}


def claims(
    paper: str | None = None, *, progress: Callable[[int, int], None] | None = None
) -> tuple[Claim, ...]:
    """Compute the claimed and the true epsilon of every published noise formula.

    Parameters
    ----------
    paper : str, optional
        Key of `PAPERS`. All papers by default, which takes about a minute.
    progress : callable, optional
        Called with the number of rows done and their total.

    Returns
    -------
    tuple of Claim
        In the order of the papers.

    Raises
    ------
    ValueError
        If ``paper`` is not a key.

    Guarantee
    ---------
    Each `Claim.true_epsilon` is exact, an upper bound, or attained by the named pair,
    as its ``meaning`` says.

    Examples
    --------
    >>> rows = claims("gopi")
    >>> print(f"{rows[0].epsilon:g} is really {rows[0].true_epsilon:.2f}")
    1 is really 1.57
    """
    if paper is not None:
        check.one_of(tuple(PAPERS), paper=paper)
    keys = PAPERS if paper is None else (paper,)
    cases = [case for key in keys for case in _SOURCES[key]()]
    rows = []
    for done, case in enumerate(cases):
        if progress is not None:
            progress(done, len(cases))
        rows.append(case.claim())
    if progress is not None:
        progress(len(cases), len(cases))
    return tuple(rows)
