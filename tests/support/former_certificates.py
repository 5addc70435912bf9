"""Certificates of the format before today's, in which a mechanism is a text."""

import hashlib
import json
from typing import Any

from dpsample.privacy import Certificate, EventCertificate
from dpsample.privacy.certificates.former_calls import read_mechanism

KINDS = {
    name: kind
    for kind in (Certificate, EventCertificate)
    for name in (kind.FORMAT, *kind.FORMER_FORMATS)
}


def call_text(value: Any) -> str:
    """What Python's ``repr`` writes of a mechanism or a value in JSON."""
    if isinstance(value, dict) and set(value) == {"type", "parameters"}:
        options = value["parameters"].items()
        listed = ", ".join(f"{name}={call_text(item)}" for name, item in options)
        return f"{value['type']}({listed})"
    if isinstance(value, list):
        comma = "," if len(value) == 1 else ""
        return f"({', '.join(map(call_text, value))}{comma})"
    return value if value in ("inf", "-inf") else repr(value)


def spec_of(text: str) -> Any:
    """The JSON of a mechanism whose call is ``text``."""
    return read_mechanism(text).to_dict()


def resealed(content: dict[str, Any]) -> dict[str, Any]:
    """Content with the digest that fits."""
    text = json.dumps(content | {"digest": ""}, sort_keys=True)
    return content | {"digest": hashlib.sha256(text.encode()).hexdigest()}


def as_former(text: str) -> str:
    """The certificate of JSON in the former format, with a digest that fits."""
    content = json.loads(text)
    kind = KINDS[content["format"]]
    changes = {"format": kind.FORMER_FORMATS[0]}
    if isinstance(content[kind.MECHANISM], dict):
        changes[kind.MECHANISM] = call_text(content[kind.MECHANISM])
    return json.dumps(resealed(content | changes))
