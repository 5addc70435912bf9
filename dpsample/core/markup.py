"""Markup: HTML elements whose text and attributes are escaped.

Pages about certificates and the HTML forms of objects in notebooks are made of these.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


class Html(str):
    """A piece of markup. Strings of any other type are escaped."""

    __slots__ = ()


def escape_hidden(text: str) -> str:
    r"""Return a text in which invisible characters are replaced by escapes.

    Names come from files. A character that reverses the direction of writing, for
    example, could show a reader another text than a program reads.

    Examples
    --------
    >>> escape_hidden("a" + chr(0x202E) + "b")
    'a\\u202eb'
    """
    # Joiners belong to the spelling in several scripts, and pages themselves have
    # spaces that do not break.
    return "".join(
        c
        if c.isprintable() or c in "\n\xa0\u200c\u200d"
        else c.encode("unicode_escape").decode()
        for c in text
    )


def tag(name: str, *content: str, **attributes: object) -> Html:
    """Return one HTML element. Attributes and content that is not markup are escaped.

    An underscore in the name of an attribute stands for a hyphen, and one at its end is
    left out, because ``class`` is a keyword of Python.

    Examples
    --------
    >>> tag("td", "<script>", class_="number")
    '<td class="number">&lt;script&gt;</td>'
    """
    inner = "".join(
        part if isinstance(part, Html) else html.escape(escape_hidden(part))
        for part in content
    )
    rendered = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
    )
    return Html(f"<{name}{rendered}>{inner}</{name}>")


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """Return a table whose first column has names and whose others have numbers."""
    top = [tag("th", head[0], scope="col")]
    top += [tag("th", cell, scope="col", class_="number") for cell in head[1:]]
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(tag("td", cell, class_="number") for cell in row[1:]),
        )
        for row in rows
    ]
    return tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *top)),
        tag("tbody", *body),
    )


def describe(title: str, rows: Iterable[tuple[str, object]], *parts: Html) -> Html:
    """Return the HTML form of an object, with a title and names with their values.

    Examples
    --------
    >>> described = describe("Box", [("sides", "<2>")])
    >>> "&lt;2&gt;" in described, "<2>" in described
    (True, False)
    """
    body = [
        tag(
            "tr",
            tag("th", name, scope="row", style="text-align:left"),
            tag("td", shorten(str(value)), style="text-align:left"),
        )
        for name, value in rows
    ]
    caption = tag("caption", title, style="text-align:left;font-weight:bold")
    return tag("div", tag("table", caption, tag("tbody", *body)), *parts)


def shorten(text: str) -> str:
    """Return a text, or the beginning of a very long one and its length."""
    longest = 300
    if len(text) <= longest:
        return text
    return f"{text[:longest]}… ({len(text)} characters)"
