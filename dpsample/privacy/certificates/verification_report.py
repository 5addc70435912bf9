"""Verification report: each number of a certificate next to its recomputed value."""

from dataclasses import dataclass, field

from dpsample.core.markup import describe, shorten, table
from dpsample.privacy.certificates.certificate import Certificate
from dpsample.privacy.certificates.event_certificate import EventCertificate

# Facts that no recomputation of a certificate can show.
NOT_SHOWN = (
    "that the program was run as stated, on records within the declared bounds",
    "the random bits and the noise that was drawn",
)


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of a report, with a stated and a recomputed value as text."""

    name: str
    stated: str
    recomputed: str


@dataclass(frozen=True, kw_only=True)
class VerificationReport:
    """Checks that a certificate passed. Printing the report lists them.

    The verdict is "Consistent" and not more, because it means that the stated numbers
    follow from the listed inputs. The last line names the facts that were not checked.

    Attributes
    ----------
    statement : str
        The guarantee that the certificate states.
    checks : tuple of Check
        Name, stated value and recomputed value of each check, as text.
    unchecked : tuple of str
        Parts that the checker did not verify, although a certificate shows them.
    certificate : Certificate or EventCertificate, optional
        The certificate, for its warnings.
    warnings : tuple of str
        Reasons why the stated guarantee protects little. Empty if it does protect.

    Examples
    --------
    >>> import dpsample as dps
    >>> from dpsample.problem.facts import PublicFacts
    >>> facts = PublicFacts(num_records=2000, dim=20, row_bound=1.0, row_norm=2.0,
    ...                     loss=dps.losses.Linear(), domain=dps.domains.Ball(1.0))
    >>> mech = dps.calibrate(facts, dps.Budget(epsilon=1.0, delta=1e-6))
    >>> checks = dps.verify(mech.certificate).checks
    >>> [line.stated for line in checks if line.name == "gdp"]
    ['0.236704']
    """

    statement: str
    checks: tuple[Check, ...]
    unchecked: tuple[str, ...] = ()
    certificate: Certificate | EventCertificate | None = field(
        default=None, repr=False, compare=False
    )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of the certificate, which are computed when they are read."""
        return () if self.certificate is None else self.certificate.warnings

    def __str__(self) -> str:
        """Return the verdict, a line for each check, and the unchecked statements."""
        width = max((len(line.name) for line in self.checks), default=0)
        count = len(self.checks)
        return "\n".join(
            [
                *(f"WARNING: {words}" for words in self.warnings),
                f"Consistent: {count} number{'s' * (count != 1)} recomputed.",
                f"Stated: {self.statement}",
                f"{'number':<{width}}  stated  [recomputed]",
                *(
                    f"{line.name:<{width}}  {line.stated}  [{line.recomputed}]"
                    for line in self.checks
                ),
                f"Not checked: {'; '.join([*self.unchecked, *NOT_SHOWN])}.",
            ]
        )

    def _repr_html_(self) -> str:
        """Return the verdict and the checks as tables, for notebooks."""
        rows = [("WARNING", words) for words in self.warnings]
        rows.append(("stated", self.statement))
        rows.append(("not checked", "; ".join([*self.unchecked, *NOT_SHOWN])))
        count = len(self.checks)
        verdict = f"Consistent: {count} number{'s' * (count != 1)} recomputed"
        lines = [
            (line.name, shorten(line.stated), shorten(line.recomputed))
            for line in self.checks
        ]
        checks = table("Checks", ("number", "stated", "recomputed"), lines)
        return describe(verdict, rows, checks)

    __repr__ = __str__


class CertificateError(RuntimeError):
    """A certificate that this package made does not verify: nothing is released."""
