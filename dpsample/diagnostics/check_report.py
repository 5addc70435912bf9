"""Check report: findings about draws, each with evidence and what to try."""

import textwrap
from dataclasses import dataclass

WIDTH = 84
CAN = (
    "This can show that draws contradict one another or the target. It cannot show "
    "that no part of the target was missed, and says nothing about privacy: no "
    "diagnostic enters a certificate."
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing to know about draws.

    Attributes
    ----------
    name : str
        What it is, in a few words.
    evidence : str
        What was seen, with numbers.
    remedy : str
        What to try.
    is_problem : bool, default True
        False for what is worth knowing and no reason to doubt the draws.

    Examples
    --------
    >>> print(Finding(name="stuck walk", evidence="Chain 2 never moved.",
    ...               remedy="Use a smaller step_size."))
    PROBLEM: stuck walk
      seen: Chain 2 never moved.
      try: Use a smaller step_size.
    """

    name: str
    evidence: str
    remedy: str
    is_problem: bool = True

    def __str__(self) -> str:
        """Three paragraphs."""
        head = "PROBLEM" if self.is_problem else "note"
        body = (f"seen: {self.evidence}", f"try: {self.remedy}")
        return "\n".join([f"{head}: {self.name}", *map(_wrapped, body)])


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """All findings about draws.

    Attributes
    ----------
    findings : tuple of Finding
        Problems first.
    looked_at : tuple of str
        What was checked.
    skipped : tuple of str
        What could not be checked, and why.
    false_alarm : float
        Bound of the probability that statistical tests flag a correct run, up to the
        accuracy of their approximations.

    Examples
    --------
    >>> report = CheckReport(findings=(), looked_at=("effective size",), skipped=(),
    ...                      false_alarm=3e-4)
    >>> report.ok, report.problems
    (True, ())
    """

    findings: tuple[Finding, ...]
    looked_at: tuple[str, ...]
    skipped: tuple[str, ...]
    false_alarm: float

    @property
    def problems(self) -> tuple[Finding, ...]:
        """Findings that make the draws doubtful."""
        return tuple(f for f in self.findings if f.is_problem)

    @property
    def ok(self) -> bool:
        """Whether no problem was found, which is not a proof that there is none."""
        return not self.problems

    def __repr__(self) -> str:
        """Show findings, what was looked at, and what that can show."""
        count = len(self.problems)
        verdict = f"{count} problem{'s'[: count > 1]}" if count else "no problem found"
        lines = [f"CheckReport: {verdict}", *map(str, self.findings)]
        lines.append(f"looked at: {', '.join(self.looked_at)}.")
        lines.extend(f"not looked at: {words}" for words in self.skipped)
        lines.append(
            f"A correct run is flagged with probability about {self.false_alarm:g}. "
            f"{CAN}"
        )
        return "\n".join(
            line if "\n" in line else textwrap.fill(line, WIDTH) for line in lines
        )


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="    ")
