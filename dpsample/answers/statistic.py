"""Statistics: private counts, sums, means and quantiles with their certificate.

A mechanism releases *totals*, which are whole numbers. The statistic is a public
function of them and of the certificate, so that a file that holds the totals can be
checked to the last digit.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from dpsample.core import check, columns, files
from dpsample.noise.totals import MECHANISMS, GridGroupMeans, TotalsMechanism
from dpsample.privacy import EventCertificate, VerificationReport
from dpsample.privacy.certificates.json_form import load_json
from dpsample.privacy.certificates.mechanism_spec import MechanismSpec
from dpsample.privacy.certificates.page import Answered, document, summary
from dpsample.privacy.certificates.verification_report import Check

Number = int | float


@dataclass(frozen=True, kw_only=True, eq=False)
class Statistic:
    """One private statistic and the certificate of its privacy.

    Attributes
    ----------
    totals : tuple of int
        What the mechanism released: counts, or sums in steps of the certificate's grid.
    certificate : EventCertificate
        The proof's public inputs and numbers.
    names : tuple of str
        Public names of the cells or groups. Empty for a single number.
    digest : str
        SHA-256 of the totals, the names and the certificate.

    Raises
    ------
    ValueError
        If the totals or the names do not fit the certificate.

    Examples
    --------
    >>> import dpsample as dps
    >>> budget = dps.Budget(epsilon=1.0, delta=0.0)
    >>> made = dps.stats.count([True, False, True], budget, seed=1)
    >>> type(made.value), made.releasable
    (<class 'int'>, False)
    """

    FORMAT: ClassVar[str] = "dpsample-statistic-1"

    totals: tuple[int, ...]
    certificate: EventCertificate
    names: tuple[str, ...] = ()
    digest: str = ""

    def __post_init__(self) -> None:
        """Check the totals and seal them."""
        mechanism = mechanism_of(self.certificate)
        mechanism.check_totals(self.totals)
        length = len(mechanism.values(self.totals, self._num_records))
        if len(self.names) != length and not (length == 1 and self.names == ()):
            check.fail("names", f"of length {length}", f"length {len(self.names)}")
        columns.require_distinct("the statistic", self.names)
        if not self.digest:
            object.__setattr__(self, "digest", self.computed_digest())

    @property
    def value(self) -> Number | dict[str, Number]:
        """The private number, or a dictionary of them by name."""
        values = mechanism_of(self.certificate).values(self.totals, self._num_records)
        return dict(zip(self.names, values, strict=True)) if self.names else values[0]

    @property
    def counts(self) -> dict[str, int] | None:
        """Private counts behind the means of groups, by name; None for the others."""
        if not isinstance(mechanism_of(self.certificate), GridGroupMeans):
            return None
        return dict(zip(self.names, self.totals[len(self.names) :], strict=True))

    @property
    def releasable(self) -> bool:
        """Whether the guarantee holds for this value."""
        return self.certificate.releasable

    @property
    def _num_records(self) -> int:
        inputs: dict[str, Any] = dict(self.certificate.inputs)
        count: int = inputs["num_records"]
        return count

    def computed_digest(self) -> str:
        """Return the SHA-256 digest of totals, names and certificate."""
        content = {
            "certificate": self.certificate.digest,
            "names": list(self.names),
            "totals": list(self.totals),
        }
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def verify(
        self, *, checker: Literal["standard", "ball"] = "standard"
    ) -> VerificationReport:
        """Verify the certificate, and that it is the certificate of these totals.

        Parameters
        ----------
        checker : {"standard", "ball"}
            As for `dpsample.verify`.

        Returns
        -------
        VerificationReport
            The checks of `dpsample.verify`.

        Raises
        ------
        ValueError
            If the certificate does not verify, or a part was exchanged.
        """
        from dpsample.verification.verify import verify

        report = verify(self.certificate, checker=checker)
        if self.digest != self.computed_digest():
            remedy = "Totals, names or certificate belong to another statistic."
            check.fail("digest", self.computed_digest(), self.digest, remedy)
        count = len(self.totals)
        line = Check(
            name="totals",
            stated=f"{count} integer{'s' * (count != 1)}",
            recomputed="in their range, sealed with the certificate",
        )
        sealed = Check(
            name="answer digest",
            stated=self.digest,
            recomputed="totals, names and certificate",
        )
        return replace(report, checks=(*report.checks, sealed, line))

    def to_json(self) -> str:
        """Return the statistic and its certificate as JSON, as `save` writes."""
        content = {
            "format": self.FORMAT,
            "value": self.value,
            "names": list(self.names),
            "totals": list(self.totals),
            "certificate": self.certificate.to_dict(),
            "digest": self.computed_digest(),
        }
        return json.dumps(content, indent=1, allow_nan=False)

    def to_html(self, *, publisher: Mapping[str, str] | None = None) -> str:
        """Return a page about the statistic for readers who are not experts.

        Parameters
        ----------
        publisher : mapping of str to str, optional
            Statements of the publisher, as for `Certificate.to_html`.

        Raises
        ------
        ValueError
            If `verify` raises, because the statistic may be from somebody else's file,
            or a statement of the publisher is not allowed.
        """
        self.verify()
        return document(
            self.certificate,
            answer=[Answered(name, float(n)) for name, n in self.named_values()],
            saved=self.to_json(),
            digest=self.digest,
            publisher=publisher,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the statistic and its certificate to a JSON file, whole or not at all.

        Raises
        ------
        ValueError
            If the path is not one.
        """
        files.write(check.path("path", path), self.to_json().encode(), is_private=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Statistic:
        """Read a file that `save` wrote.

        Raises
        ------
        ValueError
            If the file is not one of this kind or has another spelling than `save`
            writes, or if its parts do not belong together.
        """
        check.path("path", path, exists=True)
        return cls._from_bytes(Path(path).read_bytes(), str(path))

    @classmethod
    def _from_bytes(cls, written: bytes, source: str) -> Statistic:
        """Return the statistic in a file's content. Errors call the file ``source``."""
        try:
            content = load_json(written.decode("utf-8-sig"), cls.FORMAT)
        except ValueError as error:
            check.fail("path", "a file written by Statistic.save", source, str(error))
        keys = "format value names totals certificate digest".split()
        if set(content) != set(keys):
            check.fail("path", f"a file of {', '.join(keys)}", [*content])
        check.instance(list, names=content["names"], totals=content["totals"])
        check.members(str, names=content["names"])
        statistic = cls(
            totals=tuple(content["totals"]),
            certificate=EventCertificate.from_dict(content["certificate"]),
            names=tuple(content["names"]),
            digest=str(content["digest"] or "none"),
        )
        for name, value in json.loads(statistic.to_json()).items():
            # As text, because Python compares True, 1 and 1.0 as equal.
            texts = {json.dumps(v) for v in (content[name], value)}
            if len(texts) > 1:
                got = check.describe(content[name])
                check.fail(name, "written as `save` writes it", got)
        return statistic

    def named_values(self) -> list[tuple[str, Number]]:
        """Return the private numbers by name. The name of a single one is its kind."""
        value = self.value
        if isinstance(value, dict):
            return [*value.items()]
        return [(self.certificate.kind.partition("/")[2], value)]

    def _repr_html_(self) -> str:
        """Return values and the short form of the certificate, for notebooks."""
        named = [(name, float(number)) for name, number in self.named_values()]
        return summary(self.certificate, answer=named, title="Statistic")

    def __repr__(self) -> str:
        """Return the value and the certificate's statement."""
        return f"Statistic(value={self.value!r},\n  certificate={self.certificate!r})"


def parse_statistic(written: bytes, source: str) -> Statistic:
    """Read the content of a file of `Statistic.save`, which errors call ``source``."""
    return Statistic._from_bytes(written, source)


def mechanism_of(certificate: EventCertificate) -> TotalsMechanism:
    """Return the mechanism that a certificate of a statistic names.

    Raises
    ------
    ValueError
        If it is not one of a statistic.
    """
    spec, inputs = certificate.mechanism, dict(certificate.inputs)
    kinds = {kind.__name__: kind for kind in MECHANISMS}
    if not isinstance(spec, MechanismSpec) or spec.type not in kinds:
        check.fail("certificate", "that of a statistic", check.describe(str(spec)))
    count: Any = inputs.get("num_records")
    check.integer(1, num_records=count)
    kind, parameters = kinds[spec.type], dict(spec.parameters)
    mechanism: TotalsMechanism = check.build("mechanism", kind, parameters)
    return mechanism
