"""``dpsample certificate``: what a certificate says, for experts or for everybody."""

from pathlib import Path

from dpsample.cli import FAILED, screen
from dpsample.cli.verify import certificate_of, verified
from dpsample.core import files


def run(file: Path, html: Path | None) -> int:
    """Print the certificate, or write the page; 1 if it does not verify."""
    if html is not None:
        files.check_output("html", html)
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
