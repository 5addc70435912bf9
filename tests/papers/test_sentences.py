"""No sentence judges a paper without naming its entry of the registry."""

import ast
import io
import re
import tokenize
from pathlib import Path

from dpsample.papers import verdicts as papers

ROOT = Path(__file__).parents[2]
PAPER = re.compile(
    r"\b(Bassily|Gopi|Su, Zhao|Su et al|Xie et al|Xu et al|2303\.18047|1908\.09970"
    r"|2207\.08347|SS-2022-0282|[Tt]he papers?|[Pp]ublished|[Pp]rinted"
    r"|in print|as stated)\b"
)
JUDGMENT = re.compile(
    r"\b([Rr]efut\w*|wrong\w*|false|fails?|incorrect\w*|mistakes?|errs?|erroneous"
    r"|misprint\w*|lacks|leaves? out|forgets?|too small|not private|reversed"
    r"|contradict\w*|counterexample\w*|do(es)? not (hold|fit|cover|follow))\b"
)
KNOWN = (
    *(code for entry in papers.errata() for code in (entry.id, *entry.also)),
    *(cause.id for cause in papers.causes()),
    "errata.md",
    "causes.md",
)


def sources():
    """Yield the files whose sentences are read, except the generated pages."""
    generated = {"papers.md", "errata.md", "causes.md"}
    pages = ("*.md", "docs/**/*.md", "studies/**/*.md", "benchmarks/*.md")
    for pattern in pages:
        yield from (p for p in ROOT.glob(pattern) if p.name not in generated)
    programs = ("dpsample/**/*.py", "studies/*.py", "notebooks/*.py", "benchmarks/*.py")
    for pattern in programs:
        yield from (p for p in ROOT.glob(pattern) if p.parent.name != "papers")


def texts(path):
    """Yield the text of a page, or the strings and blocks of comments of a program."""
    source = path.read_text("utf-8")
    if path.suffix == ".md":
        source = re.sub(r"```.*?```", "", source, flags=re.DOTALL)
        # Tables of results have verdicts on measurements, by their rules.
        yield re.sub(r"^\|.*$", "", source, flags=re.MULTILINE)
        return
    # Most programs need not be parsed. Quotes and # may stand between two words.
    words = re.sub(r"[\s\"'#\\]+", " ", source)
    if not (PAPER.search(words) and JUDGMENT.search(words)):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    lines = [""]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            lines.append(token.string.lstrip("# "))
        elif token.type not in (tokenize.NL, tokenize.NEWLINE):
            lines.append("\n\n")
    yield from " ".join(lines).split("\n\n")


def judged(text):
    """Yield sentences that judge a paper and name no erratum, cause or page of them."""
    if not (PAPER.search(text) and JUDGMENT.search(text)):
        return
    for paragraph in re.split(r"\n\s*\n|\n(?=[-*|] )", text):
        words = " ".join(paragraph.split())
        if any(name in words for name in KNOWN):
            continue
        for sentence in re.split(r"(?<=[.!?])\s+", words):
            if PAPER.search(sentence) and JUDGMENT.search(sentence):
                yield sentence


def test_no_sentence_judges_a_paper_on_its_own():
    found = [
        f"{path.relative_to(ROOT)}: {sentence}"
        for path in sources()
        for text in texts(path)
        for sentence in judged(text)
    ]
    assert not found, "\n".join(found)


def test_a_judgment_on_its_own_is_found_and_one_with_its_code_is_not():
    assert list(judged("A fact.\n\nXu et al. claim it. The published noise is wrong."))
    assert not list(judged("The published noise is wrong (gradient-E20)."))
    assert not list(judged("The paper has it. The test fails without it."))
