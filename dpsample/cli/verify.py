"""Commands ``dpsample verify`` and ``certificate``, about an answer in a file."""

import json
import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dpsample as dps
from dpsample.answers.answer import Fit, Release, parse_answer
from dpsample.answers.statistic import Statistic, parse_statistic
from dpsample.cli import screen
from dpsample.cli.exit_codes import FAILED
from dpsample.core import check, files
from dpsample.privacy import Certificate, EventCertificate, VerificationReport
from dpsample.privacy.certificates.overview import state_of
from dpsample.privacy.certificates.page import checked_publisher
from dpsample.tables import entries

AnyCertificate = Certificate | EventCertificate
AnyAnswer = Release | Fit | Statistic | AnyCertificate
# Values of the key "format" of a file, which decide how it is read.
ANSWERS = (Release.FORMAT, Fit.FORMAT, Statistic.FORMAT)
CERTIFICATES: dict[str, type[AnyCertificate]] = {
    name: kind
    for kind in (Certificate, EventCertificate)
    for name in (kind.FORMAT, *kind.FORMER_FORMATS)
}


def run(file: Path, checker: str = "standard") -> int:
    """Print warnings, checks and state. Return 0 if everything agrees, otherwise 1.

    The checker "standard" recomputes the certificate as it was computed. "ball" does so
    in ball arithmetic, where every number has a proved error bound.
    """

    def report(answer: AnyAnswer) -> str:
        verification = verify_answer(answer, checker)
        return f"{verification}\n{describe_state(certificate_of(answer), verification)}"

    check.one_of(("standard", "ball"), checker=checker)
    text = report_on(file, report)
    if text is None:
        return FAILED
    screen.console().print(text)
    return 0


def show(
    file: Path,
    html: Path | None,
    forms: Mapping[str, bool],
    *,
    publisher: Path | None = None,
    overwrite: bool = False,
) -> int:
    """Print a certificate or write its page. Return 1 if it does not verify.

    Without ``html`` the first screen is printed, or one of the ``forms`` "details" and
    "json". The file of the ``publisher`` has statements for the page.
    """
    options = [f"--{name}" for name, is_chosen in forms.items() if is_chosen]
    options += ["--html"] * (html is not None)
    if len(options) > 1:
        check.fail("the certificate", "shown in one form", " ".join(options))
    if publisher is not None and html is None:
        check.fail("--publisher", "given with --html", "without it")
    stated = None if publisher is None else _read_publisher(publisher)
    if html is not None:
        screen.check_outputs(file, publisher, html=html, overwrite=overwrite)

    def document(answer: AnyAnswer) -> str:
        # The page of an answer verifies it, which may take long, so it is not done
        # twice.
        if html is None or not isinstance(answer, Release | Fit | Statistic):
            verify_answer(answer)
        if html is not None:
            return answer.to_html(publisher=stated)
        certificate = certificate_of(answer)
        if "--json" in options:
            return certificate.to_json()
        return certificate.details() if options else str(certificate)

    text = report_on(file, document)
    if text is None:
        return FAILED
    if html is not None:
        files.write(html, text.encode())
        text = f"wrote {html}"
    screen.console().print(text)
    return 0


def _read_publisher(path: Path) -> dict[str, str]:
    """Read the statements of the publisher from a TOML file."""
    check.path("--publisher", path, exists=True)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # TOML that is malformed, or not UTF-8
        check.fail("--publisher", "a TOML file", str(path), str(error))
    return checked_publisher(content)


def report_on(file: Path, report: Callable[[AnyAnswer], str]) -> str | None:
    """Return a text about the content of a file.

    If it does not verify, show the reason and return None.
    """
    if str(file) != entries.STDIN and (not os.path.exists(file) or file.is_dir()):
        check.fail("file", "an existing file", str(file))
    # Read once, because a pipe cannot be read again.
    written = entries.read_content(file)
    kind = format_of(written, file)
    try:
        return report(read(written, kind, str(file)))
    # A file may hold anything, so every error on its content means "not verified".
    except Exception as error:
        # Ctrl-C may appear as another error, which says nothing about the file.
        if screen.is_interrupt(error):
            raise
        name = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        # The message may have line breaks, but scripts read one line.
        screen.console().print(" ".join(f"NOT verified: {name}{error}".split()))
        return None


def certificate_of(answer: AnyAnswer) -> AnyCertificate:
    """Return the certificate of an answer, or the given one."""
    if isinstance(answer, Statistic):
        return answer.certificate
    if isinstance(answer, Release | Fit):
        # Answers from files have a certificate.
        assert answer.certificate is not None
        return answer.certificate
    return answer


def format_of(written: bytes, file: Path) -> str:
    """Return the format of the content of a file, which must be a known one."""
    try:
        # Editors may write a byte order mark, which this codec skips.
        content = json.loads(written.decode("utf-8-sig"))
    except (ValueError, RecursionError):  # brackets without end
        content = None
    kind = content.get("format") if isinstance(content, dict) else None
    if not isinstance(kind, str) or kind not in (*ANSWERS, *CERTIFICATES):
        remedy = "Release.save, Fit.save and Certificate.to_json write them."
        check.fail("file", "the JSON of a release or a certificate", str(file), remedy)
    return kind


def read(written: bytes, kind: str, source: str) -> AnyAnswer:
    """Return the answer or certificate that a file holds, by its format."""
    if kind == Statistic.FORMAT:
        return parse_statistic(written, source)
    if kind in ANSWERS:
        return parse_answer(written, source)
    # It is parsed again, strictly: a repeated key or unusual digits could be read in
    # two ways.
    return CERTIFICATES[kind].from_json(written.decode("utf-8-sig"))


def verify_answer(answer: AnyAnswer, checker: Any = "standard") -> VerificationReport:
    """Return the report on an answer or certificate."""
    if isinstance(answer, Release | Fit | Statistic):
        return answer.verify(checker=checker)
    return dps.verify(answer, checker=checker)


def describe_state(certificate: AnyCertificate, report: VerificationReport) -> str:
    """Say whether the answer may be published, as far as this report shows it."""
    # The ball checker leaves some statements unchecked, so it alone gives no verdict.
    if certificate.releasable and report.unchecked:
        return "No verdict on publication: verify without --checker ball for the rest."
    if certificate.releasable and report.warnings:
        return "May be published in form only: read the warnings above."
    if certificate.releasable:
        return "May be published, if what is not checked here was as stated."
    return state_of(certificate).text
