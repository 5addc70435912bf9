"""Answers: the coefficients of a release or a fit, with their certificate.

An answer can be saved, published, signed and verified. Its digest binds the
coefficients to the certificate, so that neither can be exchanged unnoticed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from dpsample.answers.predictions import Predictor, describe_model
from dpsample.core import check, columns, files
from dpsample.core.arrays import Array
from dpsample.core.check import axes
from dpsample.core.spec import Json
from dpsample.privacy import (
    Certificate,
    EventCertificate,
    VerificationReport,
)
from dpsample.privacy.certificates.json_form import load_json
from dpsample.privacy.certificates.page import Answered, document, summary
from dpsample.privacy.certificates.verification_report import Check
from dpsample.problem.facts import PublicFacts
from dpsample.tables import Encoding
from dpsample.targets.grid import PublicGrid

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Maximum number of names at the axis of a plot. With more coefficients, some have one.
MAX_ROWS = 80


def _ed25519() -> Any:
    """Import the library of signatures. An error says how to install it."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise check.missing_library("A signature", "cryptography", "verify") from error
    return ed25519


def _check_length(name: str, value: object, length: int) -> None:
    """Raise unless a key or signature is bytes of this length."""
    if not isinstance(value, bytes) or len(value) != length:
        check.fail(name, f"{length} bytes", check.describe(type(value).__name__))


# `json.dumps` would make an encoder at each call.
_encode_sorted = json.JSONEncoder(sort_keys=True).encode


class Answer(Predictor):
    """Coefficients and their certificate, which can be saved and published."""

    FORMAT: ClassVar[str]

    theta: Array
    feature_names: tuple[str, ...]
    encoding: Encoding | None
    digest: str

    @property
    @abstractmethod
    def _proof(self) -> Certificate | EventCertificate:
        """The certificate. It raises a ValueError if there is none."""

    @classmethod
    @abstractmethod
    def _read(cls, content: Json) -> tuple[Certificate | EventCertificate, Json]:
        """Return the certificate of a file, and the fields that follow from it."""

    def computed_digest(self) -> str:
        """Return the SHA-256 digest of theta, names, encoding and certificate."""
        # Hexadecimal numbers have all bits of the coefficients, and the sorted keys
        # give one text for equal contents.
        content = {
            "certificate": self._proof.digest,
            "encoding": self._encoding_dict(),
            "feature_names": list(self.feature_names),
            "theta": [float(number).hex() for number in self.theta],
        }
        text = _encode_sorted(content)
        return hashlib.sha256(text.encode()).hexdigest()

    def _encoding_dict(self) -> Json | None:
        """Return the encoding as JSON, None if the rows are not from a table."""
        return None if self.encoding is None else self.encoding.to_dict()

    def sign(self, private_key: bytes) -> bytes:
        """Sign the digest by Ed25519 (RFC 8032).

        A signature shows who published an answer, not that it is true.

        Parameters
        ----------
        private_key : bytes
            The 32 bytes of the data holder's private key, such as
            ``secrets.token_bytes(32)``.

        Returns
        -------
        bytes
            The 64 bytes of the signature, for `verify`.

        Raises
        ------
        ValueError
            If the key has another length.
        ImportError
            If cryptography is not installed: ``pip install 'dpsample[verify]'``.
        """
        _check_length("private_key", private_key, 32)
        key = _ed25519().Ed25519PrivateKey.from_private_bytes(private_key)
        return bytes(key.sign(self._message()))

    def _message(self) -> bytes:
        """Return the bytes that are signed."""
        # The format is included, so that a signature of another kind of file is
        # invalid.
        return f"{self.FORMAT} {self.computed_digest()}".encode()

    def verify(
        self,
        *,
        checker: Literal["standard", "ball"] = "standard",
        signature: bytes | None = None,
        public_key: bytes | None = None,
    ) -> VerificationReport:
        """Verify the certificate, and that it is the certificate of this theta.

        Parameters
        ----------
        checker : {"standard", "ball"}
            As for `dpsample.verify`.
        signature, public_key : bytes, optional
            Result of `sign`, and the 32 bytes of the data holder's public key.

        Returns
        -------
        VerificationReport
            The checks of `dpsample.verify`.

        Raises
        ------
        ValueError
            If the certificate does not verify, a part was exchanged or does not follow
            from the others, theta is outside of the domain or, of a release, off its
            public grid, or the signature is not of this key.
        """
        from dpsample.verification.verify import verify

        report = verify(self._proof, checker=checker)
        self._check_binding()
        sealed = Check(
            name="answer digest",
            stated=self.digest,
            recomputed="theta, names, encoding and certificate",
        )
        theta = Check(
            name="theta",
            stated=f"{self.theta.size} number{'s' * (self.theta.size != 1)}",
            recomputed=f"{self._check_theta()}, sealed with the certificate",
        )
        if signature is not None or public_key is not None:
            self._check_signature(signature, public_key)
        return replace(report, checks=(*report.checks, sealed, theta))

    @abstractmethod
    def _check_theta(self) -> str:
        """Reject a theta that the certificate excludes, and say where theta is."""

    def _check_binding(self) -> None:
        """Reject parts of which one does not follow from the others."""
        if self.digest != self.computed_digest():
            remedy = "Theta, names, encoding or certificate belong to another release."
            check.fail("digest", self.computed_digest(), self.digest, remedy)
        facts, encoding = self.public_facts, self.encoding
        width, names = facts.dim - int(facts.intercept), list(self.feature_names)
        if len(names) != facts.dim:
            check.fail(
                "feature_names", f"of length {facts.dim}", f"length {len(names)}"
            )
        if facts.intercept and names[-1] != "intercept":
            check.fail("feature_names", "with 'intercept' at the end", names[-1])
        if encoding is None:
            return
        # An encoding with a smaller bound that it enforces makes rows for which the
        # certificate holds as well. One without a bound is rejected below.
        bound = -math.inf if encoding.row_bound is None else encoding.row_bound
        if list(encoding.feature_names) != names[:width]:
            check.fail("encoding", "one that makes feature_names", "another")
        is_within = encoding.clip and -math.inf < bound <= facts.row_bound
        if encoding.row_norm != facts.row_norm or not (
            bound == facts.row_bound or is_within
        ):
            size = f"{bound:g} in the norm of exponent {encoding.row_norm:g}"
            check.fail("encoding", "one of rows as the certificate has them", size)

    def _check_signature(self, signature: object, public_key: object) -> None:
        """Raise unless a public key made this signature for this release."""
        _check_length("signature", signature, 64)
        _check_length("public_key", public_key, 32)
        key = _ed25519().Ed25519PublicKey.from_public_bytes(public_key)
        try:
            key.verify(signature, self._message())
        except Exception:  # InvalidSignature, which has no text
            condition = "the one that this key made for this release"
            check.fail("signature", condition, "another")

    def to_json(self) -> str:
        """Return the private answer and the certificate as JSON, as `save` writes."""
        content = {
            "format": self.FORMAT,
            "theta": self.theta.tolist(),
            "feature_names": list(self.feature_names),
            "encoding": self._encoding_dict(),
            "certificate": self._proof.to_dict(),
            "digest": self.computed_digest(),
        }
        return json.dumps(content, indent=1, allow_nan=False)

    def to_html(self, *, publisher: Mapping[str, str] | None = None) -> str:
        """Return a page about the answer for readers who are not experts.

        Parameters
        ----------
        publisher : mapping of str to str, optional
            Statements of the publisher, as for `Certificate.to_html`.

        Returns
        -------
        str
            `Certificate.to_html` with the coefficients, their units and their meaning.
            The page contains the file to verify, which is the one that `save` writes.

        Raises
        ------
        ValueError
            If `verify` raises, because the answer may be from somebody else's file, or
            a statement of the publisher is not allowed.
        """
        self.verify()
        units = [""] * self.theta.size
        if self.encoding is not None:
            units[: len(self.encoding.feature_names)] = (
                self.encoding.describe_features()
            )
            if self.public_facts.intercept:
                units[-1] = "always 1"
        pairs = zip(self._name_coefficients(), units, strict=True)
        return document(
            self._proof,
            answer=[Answered(*named, unit) for named, unit in pairs],
            saved=self.to_json(),
            digest=self.digest,
            meaning=describe_model(self.public_facts, self.encoding),
            publisher=publisher,
        )

    def _repr_html_(self) -> str | None:
        """Return coefficients and the short form of the certificate, for notebooks."""
        title = type(self).__name__
        return summary(self._proof, answer=self._name_coefficients(), title=title)

    def _name_coefficients(self) -> list[tuple[str, float]]:
        return list(zip(self.feature_names, self.theta.tolist(), strict=True))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the private answer and the certificate to a JSON file.

        A new file is written first and then renamed to ``path``, so after an error the
        old file is still there.
        """
        files.write(check.path("path", path), self.to_json().encode(), is_private=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file that `save` wrote.

        Raises
        ------
        ValueError
            If the file is not one of this kind or has another spelling than `save`
            writes, or if its theta, names, encoding and certificate do not belong
            together.
        """
        check.path("path", path, exists=True)
        return cls._from_bytes(Path(path).read_bytes(), str(path))

    @classmethod
    def _from_bytes(cls, written: bytes, source: str) -> Self:
        """Return the answer in the content of a file, which errors call ``source``."""
        try:
            content = load_json(written.decode("utf-8-sig"), cls.FORMAT)
        except ValueError as error:
            condition = f"a file written by {cls.__name__}.save"
            check.fail("path", condition, source, str(error))
        keys = set("format theta feature_names encoding certificate digest".split())
        if set(content) != keys:
            check.fail("path", f"a file of {', '.join(sorted(keys))}", [*content])
        certificate, rest = cls._read(content["certificate"])
        facts = certificate.facts
        if facts is None:
            check.fail("certificate", "that of a problem", "that of noise on a query")
        names = content["feature_names"]
        if not (isinstance(names, list) and all(isinstance(n, str) for n in names)):
            check.fail("feature_names", "a list of names", check.describe(names))
        columns.require_distinct("the file", names)
        dim = facts.dim
        if len(names) != dim:
            check.fail("feature_names", f"of length {dim}", f"length {len(names)}")
        theta = check.array("theta", content["theta"], shape=(dim,))
        encoding = None
        if content["encoding"] is not None:
            encoding = Encoding.from_dict(content["encoding"])
        rest |= {"theta": theta, "certificate": certificate, "encoding": encoding}
        digest = str(content["digest"] or "none")
        answer = cls(**rest | {"feature_names": tuple(names), "digest": digest})
        answer._check_binding()
        answer._check_written(content)
        return answer

    def _check_written(self, content: Json) -> None:
        """Raise if `save` would write another text.

        Python compares True, 1 and 1.0 as equal, and so would accept a file that other
        programs read differently.
        """
        for name, value in json.loads(self.to_json()).items():
            stated, written = (
                json.dumps(v, sort_keys=True) for v in (content[name], value)
            )
            if stated != written:
                got = check.describe(content[name])
                check.fail(name, "written as `save` writes it", got)


@dataclass(frozen=True, kw_only=True, eq=False)
class Release(Answer):
    """One differentially private parameter vector and its certificate.

    Attributes
    ----------
    theta : array of shape (dim,)
        The private draw. The intercept, if any, is last.
    certificate : Certificate
        The proof's public inputs and numbers.
    mechanism : ExponentialMechanism or None
        The calibrated mechanism. It is None after `load`.
    feature_names : tuple of str
        Names of the coefficients.
    encoding : Encoding or None
        Public rule that made the rows from a table. With it `predict` takes tables.
    digest : str
        SHA-256 of theta, its names, the encoding and the certificate. It shows that
        none of them is from another release. Against forgery there is `sign`.
    nonprivate_diagnostics : dict or None
        Steps, step size, metric, acceptance and risks. They depend on the records and
        are not private, so they are in no repr, JSON, file, pickle or copy. They are
        None after `load`, unpickling and ``copy``.
    """

    FORMAT: ClassVar[str] = "dpsample-release-3"

    theta: Array
    certificate: Certificate
    feature_names: tuple[str, ...]
    encoding: Encoding | None = None
    digest: str = ""
    mechanism: Any = field(default=None, repr=False)
    nonprivate_diagnostics: dict[str, Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Compute the digest, unless one was given."""
        if not self.digest:
            object.__setattr__(self, "digest", self.computed_digest())

    @property
    def _proof(self) -> Certificate:
        return self.certificate

    @classmethod
    def _read(cls, content: Json) -> tuple[Certificate, Json]:
        return Certificate.from_dict(content), {}

    @property
    def public_facts(self) -> PublicFacts:
        """Public facts of the certificate."""
        return self.certificate.facts

    def _check_theta(self) -> str:
        c = self.certificate
        if not c.facts.domain.contains(self.theta):
            check.fail("theta", "in the domain of the certificate", self.theta)
        grid = PublicGrid.from_facts(c.facts, k=c.k, mu=c.mu)
        if not grid.holds(self.theta):
            condition = f"on the public grid of the certificate, of step {grid.step!r}"
            check.fail("theta", condition, self.theta, "No draw gives this point.")
        return "in the domain, on the public grid"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the coefficients, and lines as long as the privacy noise can be.

        A line reaches two standard deviations of the draw to both sides, at most.
        Strong convexity k mu bounds the variance of each coefficient by 1 / (k mu), a
        public number (Brascamp-Lieb). The line is not a confidence interval, because it
        leaves out the pull of the regularizer and the error of sampling records. See
        `dpsample.intervals` for those. Without a regularizer there are no lines.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        count = self.theta.size
        ax = axes(ax, figsize=(7.0, 0.25 * min(count, MAX_ROWS) + 1.6))
        # With many coefficients every second, third, ... one has a label.
        positions, every = np.arange(count), -(-count // MAX_ROWS)
        convexity = self.certificate.k * self.certificate.mu
        if convexity > 0.0:
            reach = 2.0 / np.sqrt(convexity)
            ends = self.theta - reach, self.theta + reach
            ax.hlines(positions, *ends, color="C0", alpha=0.75, lw=3)
        ax.plot(self.theta, positions, "o", color="C0", ms=5, label="private")
        ax.axvline(0.0, color="0.5", lw=0.8, zorder=0)
        ax.set_yticks(positions[::every], self.feature_names[::every])
        ax.set_ylim(count - 0.5, -0.5)
        label = "coefficient"
        if convexity > 0.0:
            label += "\nline: 2 standard deviations of the privacy noise, at most."
            label += "\nIt is not a confidence interval."
        ax.set_xlabel(label)
        budget = self.certificate.budget
        promise = f"({budget.epsilon:g}, {budget.delta:g})"
        if budget.is_pure:
            promise = f"{budget.epsilon:g}"
        ax.set_title(f"One draw, {promise}-differentially private", fontsize="medium")
        return ax

    def __getstate__(self) -> dict[str, object]:
        """Return the fields for pickles and copies, all of which are private."""
        return self.__dict__ | {"nonprivate_diagnostics": None}

    def __repr__(self) -> str:
        """Return coefficients and the certificate's statement."""
        theta = np.array2string(self.theta, precision=4, threshold=8, edgeitems=3)
        return f"Release(theta={theta},\n  certificate={self.certificate!r})"


def load_answer(path: str | os.PathLike[str]) -> Release | Fit:
    """Read a file of `Release.save` or `Fit.save`. The file says which it is."""
    check.path("path", path, exists=True)
    return parse_answer(Path(path).read_bytes(), str(path))


def parse_answer(written: bytes, source: str) -> Release | Fit:
    """Read the content of a file of `load_answer`, which errors call ``source``."""
    # The format is the first field. Its reader checks it again.
    kind: type[Release | Fit] = Fit if Fit.FORMAT.encode() in written[:100] else Release
    return kind._from_bytes(written, source)


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit(Answer):
    """Parameters found by a gradient-based algorithm, and what is proved of them.

    Attributes
    ----------
    theta : array of shape (dim,)
        The output. The intercept, if any, is last.
    certificate : EventCertificate or None
        The proof's public inputs and numbers. It is None without a budget.
    feature_names : tuple of str
        Names of the coefficients.
    num_gradients : int or None
        Number of gradients of single records that were evaluated. Do not publish it. It
        is random with random batches. It depends on the records if the solver is a
        certified one (`ObjectivePerturbation`, `SVRG`, the localized methods), whose
        number of steps is not fixed.
    encoding : Encoding or None
        Public rule that made the rows from a table. With it `predict` takes tables.
    facts : PublicFacts or None
        Public facts of the problem, which `predict` needs.
    digest : str
        SHA-256 of theta, its names, the encoding and the certificate, as of a
        `Release`. It is empty without a budget.
    trace : dict of str to array
        ``num_gradients`` and ``risk`` on the evaluation data during the run, or empty
        without such data. It is not private. Pickles and copies have neither the trace
        nor ``num_gradients``.
    """

    FORMAT: ClassVar[str] = "dpsample-fit-1"

    theta: Array
    certificate: EventCertificate | None
    feature_names: tuple[str, ...]
    num_gradients: int | None
    encoding: Encoding | None = None
    facts: PublicFacts | None = None
    digest: str = ""
    trace: dict[str, Array] = field(default_factory=dict, repr=False)

    @property
    def _proof(self) -> EventCertificate:
        if self.certificate is None:
            check.fail("certificate", "that of a budget", "None", "Fit with a budget.")
        return self.certificate

    @classmethod
    def _read(cls, content: Json) -> tuple[EventCertificate, Json]:
        certificate = EventCertificate.from_dict(content)
        return certificate, {"num_gradients": None, "facts": certificate.facts}

    def __post_init__(self) -> None:
        """Compute the digest of a private fit, unless one was given."""
        if self.certificate is not None and not self.digest:
            object.__setattr__(self, "digest", self.computed_digest())

    def _check_theta(self) -> str:
        facts = self._proof.facts
        if facts is None:
            check.fail("certificate", "that of a problem", "that of noise on a query")
        if self.public_facts != facts:
            check.fail("facts", "those of the certificate", self.public_facts)
        # A mean of iterates may be outside by its rounding error.
        nearest = facts.domain.project(self.theta)
        if not np.allclose(nearest, self.theta, rtol=1e-9, atol=1e-9):
            check.fail("theta", "in the domain of the certificate", self.theta)
        return "in the domain"

    @property
    def public_facts(self) -> PublicFacts:
        """Public facts of the problem. A fit without them raises a ValueError."""
        if self.facts is None:
            check.fail("facts", "those of the problem", "None", "See dps.minimize.")
        return self.facts

    def _repr_html_(self) -> str | None:
        """Return HTML as `Answer` does. Without a budget None asks for the repr."""
        return None if self.certificate is None else super()._repr_html_()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the risk on the evaluation data against gradient evaluations.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.

        Raises
        ------
        ValueError
            If the fit has no trace.
        """
        if not self.trace:
            remedy = "Pass evaluation=... to minimize."
            check.fail("trace", "recorded", "an empty trace", remedy)
        ax = axes(ax, figsize=(6.0, 4.0))
        ax.plot(self.trace["num_gradients"], self.trace["risk"], marker="o", ms=3)
        ax.set_xlabel("gradients of single records")
        ax.set_ylabel("risk on the evaluation data (not private)")
        return ax

    def __getstate__(self) -> dict[str, object]:
        """Return the fields for pickles and copies, without those not to publish."""
        return self.__dict__ | {"num_gradients": None, "trace": {}}

    def __repr__(self) -> str:
        """Return coefficients and the certificate's statement."""
        theta = np.array2string(self.theta, precision=4, threshold=8, edgeitems=3)
        stated = "no budget, no privacy"
        if self.certificate is not None:
            stated = repr(self.certificate)
        return f"Fit(theta={theta},\n  certificate={stated})"
