"""HTML that tests read, and names that a page must not obey."""

from html.parser import HTMLParser

HOSTILE = (
    "<script>alert(1)</script>",
    '"onload="alert(1)',
    "'><img src=//evil.example/x>",
    "\u05e9\u05dc\u05d5\u05dd \u202e\u2066 abc\u2069",
    "</bdi></table>&amp;",
    "\x00\x1b[31m\ud800",
    "x" * 10_000,
)


class Page(HTMLParser):
    """Elements, identifiers, headings and text; nesting is checked as it is read."""

    def __init__(self, source):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], {}
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert len(dict(attrs)) == len(attrs)
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.text.setdefault(self.open[-1], []).append(data)

    def of(self, name):
        return [value for _, key, value in self.attributes if key == name]
