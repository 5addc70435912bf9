"""``dpsample verify`` and ``certificate``: what a file claims, and recomputed."""

import json
from pathlib import Path
from typing import Any

import dpsample as dps
from dpsample.cli import FAILED, screen
from dpsample.core import check, files
from dpsample.core.spec import Json
from dpsample.privacy import Certificate, EventCertificate
from dpsample.verbs.results import Fit, Release, load_answer

AnyCertificate = Certificate | EventCertificate
ANSWERS = (Release.FORMAT, Fit.FORMAT)
CERTIFICATES: dict[str, type[AnyCertificate]] = {
    kind.FORMAT: kind for kind in (Certificate, EventCertificate)
}


def run(file: Path, checker: str = "standard") -> int:
    """Print statement, checks and verdict; 0 if everything agrees, else 1."""
    found = verified(file, checker)
    if found is None:
        return FAILED
    answer, lines = found
    screen.console().print("\n".join(lines))
    screen.console().print(state(certificate_of(answer)))
    return 0


def show(file: Path, html: Path | None) -> int:
    """Print the certificate, or write a page for everybody; 1 if it does not verify."""
    if html is not None:
        screen.check_outputs(file, html=html)
    found = verified(file)
    if found is None:
        return FAILED
    answer = found[0]
    if html is None:
        screen.console().print(str(certificate_of(answer)))
    else:
        files.write(html, answer.to_html().encode())
        screen.console().print(f"wrote {html}")
    return 0


def verified(
    file: Path, checker: str = "standard"
) -> tuple[Release | Fit | AnyCertificate, list[str]] | None:
    """Content of a file, and what was checked; None after saying what does not hold."""
    content = parsed(file)
    check.one_of(("standard", "ball"), checker=checker)
    try:
        return checked(file, content, checker)
    # A file may hold anything: whatever fails on its content does not verify it.
    except Exception as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        screen.console().print(" ".join(f"NOT verified: {kind}{error}".split()))
        return None


def certificate_of(answer: Release | Fit | AnyCertificate) -> AnyCertificate:
    """Return the certificate of an answer, or the given one."""
    if isinstance(answer, Release | Fit):
        assert answer.certificate is not None  # it was read from a file
        return answer.certificate
    return answer


def parsed(file: Path) -> Json:
    """Content of a file of a known format; any other is an error of the user."""
    if not file.is_file():
        check.fail("file", "an existing file", str(file))
    try:
        content = json.loads(file.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError):  # brackets without end
        content = None
    kind = content.get("format") if isinstance(content, dict) else None
    if not isinstance(kind, str) or kind not in (*ANSWERS, *CERTIFICATES):
        remedy = "Release.save, Fit.save and Certificate.to_json write them."
        check.fail("file", "the JSON of a release or a certificate", str(file), remedy)
    return content  # type: ignore[no-any-return]


def checked(
    file: Path, content: Json, checker: Any
) -> tuple[Release | Fit | AnyCertificate, list[str]]:
    """Release or certificate, and what was checked, one a line."""
    if content["format"] not in ANSWERS:
        # Read again: a second key of a name, or odd digits, could be read in two ways.
        kind = CERTIFICATES[content["format"]]
        certificate = kind.from_json(file.read_text(encoding="utf-8-sig"))
        return certificate, str(dps.verify(certificate, checker=checker)).splitlines()
    answer = load_answer(file)
    lines = str(answer.verify(checker=checker)).splitlines()
    where = " in the domain" if isinstance(answer, Release) else ""
    return answer, [*lines, f"theta: {answer.theta.size}{where}"]


def state(certificate: AnyCertificate) -> str:
    """Whether the answer may be given to others."""
    if certificate.releasable:
        return "Releasable."
    if certificate.seeded:
        return "NOT releasable: the random bits are seeded."
    if not certificate.is_proved:
        return "NOT releasable: the printed constants are not a proof."
    return "NOT releasable: it describes a mechanism, not a draw."
