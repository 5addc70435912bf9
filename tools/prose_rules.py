"""The rules of `prose_lint`: words, names and patterns to avoid, and what to write.

Strict rules have a star: new and rewritten files must not break them.

Rules of prose, for Markdown, reStructuredText, docstrings, comments, messages and the
strings of TOML registries:

    house-word            a word that only this project uses in this sense: HOUSE_WORDS
    but-except *          "but" in the sense of "except"
    what-noun             a clause with "what" or "who" instead of a noun
    causal-for *          "for" in the sense of "because"
    is-no                 "is no ..." instead of a verb with "not"
    pronoun-chain         "that of", "those of": the reader must look back
    animate-thing         a thing that asks, wants, knows, pays or forgets
    of-opening *          a sentence that begins with "Of" or "Else", or uses ", else"
    semicolon             two sentences joined by a semicolon
    colon-glue            a colon instead of a verb or a conjunction
    decimal *             a decimal without its leading zero
    digit-space           a space that separates thousands
    long-sentence         a sentence of more than MAX_SENTENCE_WORDS words

Rules of code:

    fragment-docstring *  a function's docstring that begins with Whether, Why or What
    fragment-comment *    a comment that begins with of, for which, beside or whose
    empty-name *          a variable or parameter named for nothing: EMPTY_NAMES
    house-name            a name with a word that only this project uses in this sense
    bare-participle *     a function named by a participle or a preposition
    class-word *          a class named by a word of the house: CLASS_WORDS
    tuple-constants *     several constants in one line: A, B = 0.8, 0.4
    flag-in-array *       a flag or counter in an array: control[IS_DONE] = 1.0
    numbered-scratch *    scratch memory by number: state.scratch[4]
    module-constant       a name of capitals in a module; a default, a field of a record
                          or a commented literal often reads better
    domain-isinstance     a test of a domain's class, outside the folder domains
    nested-ternary        two conditional expressions in one statement
    long-function         more than MAX_FUNCTION_LINES lines without the docstring
    many-positional       more than MAX_POSITIONAL positional parameters, except kernels
    long-file             more than MAX_FILE_LINES lines without comments
    few-comments          a long file with hardly any lines of comments
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_SENTENCE_WORDS = 35
# Sentences above this length are reported as a share, not one by one.
LONG_SENTENCE_WORDS = 30
MAX_FUNCTION_LINES = 60
MAX_POSITIONAL = 5
MAX_FILE_LINES = 600
# Files with this many lines of code need this share of lines that are only a comment.
COMMENTED_FILE_LINES = 150
MIN_COMMENT_SHARE = 0.02
# Strings with fewer words are keys and labels, not sentences.
MIN_MESSAGE_WORDS = 5

VALUE_DECORATORS = {"property", "cached_property", "lazy_property"}
KERNEL_DECORATORS = {"kernel", "njit", "jit", "register_jitable"}

# Words that the documentation of other packages hardly ever uses, and the usual term.
HOUSE_WORDS = {
    r"(?<!power )(?<!by )laws?(?! of large)": "distribution",
    r"kink(?:s|ed)?": "non-differentiable point, non-smooth loss",
    r"walls?(?![- ]?(?:clock|time))": "boundary, facet",
    r"beside": "next to, in addition to, compared with",
    r"tells?(?! (?:you|us|the user))|told": "report, show, release, say which",
    r"refus(?:es?|ed|ing|als?)": "reject, raise an error, not supported",
    r"(?:not|is|are) counted": "(not) included in (epsilon, delta)",
    r"pa(?:y|ys|id) for": "is included in, is worth its cost",
    r"printed": "published, as in the paper",
    r"tries(?! to)": "attempts, proposals, trials",
    r"dear(?:er|est)?": "expensive",
    r"anew|afresh": "again",
    r"mend(?:s|ed|ing)?": "fix",
    r"likeliest": "most likely",
    r"nobody|somebody|anybody|whoever": "say who acts: the user, the caller",
    r"thereof|hereby|therein|whereof": "of it",
    r"nor": "and not, in a new sentence",
    r"at times": "sometimes",
    r"in the mean": "on average",
    r"curator": "data holder",
    r"rungs?|ladders?": "step of the decision, fallback",
    r"in words": "as text",
    r"belongs? into": "belongs to",
    r"lays? open|lies? in the way": "say what happens",
    r"so many|so much|so far as": "the number itself",
    r"by and by|in turn that|as it were": "leave it out",
}
EMPTY_NAMES = set(
    "found given made told asked wanted known kept chosen taken shown moved held each "
    "some both more most least far near here there place own thing what room anew "
    "following again".split()
)
HOUSE_NAME_WORDS = set(
    "law laws kink kinks kinked wall walls told tell tells tries dear anew beside "
    "refuse refuses refused somebody nobody".split()
)
# Participles without the ending -ed, and prepositions.
PARTICIPLES = set(
    "made found shown drawn taken given left held kept told built sent met bent lost "
    "known seen heard worth flat everywhere beyond above below within around over into "
    "off of at on".split()
)
# Verbs that end in -ed, and the usual name of a decorator's inner function.
NOT_PARTICIPLES = {"embed", "proceed", "wrapped"}
CLASS_WORDS = {"Room", "Place", "Words", "Say", "Home", "Pieces", "Lost", "Half"}

DOMAIN_CLASSES = {"Ball", "Box", "Polytope", "SchattenBall", "Simplex", "WholeSpace"}

THINGS = (
    "noise|steps?|ball|records?|walls?|domain|data|budget|energy|kinks?|trials?|fits?|"
    "draws?|chains?|samplers?|losses|loss|method|rule|descent|ridge|certificate|audit|"
    "formula|bound|metric|kernel|function|test|proof|matrix|plan|window|file|table"
)
ANIMATE_VERBS = (
    "asks?|wants?|forgets?|pays?|knows?|thinks?|tells?|told|learns?|judges?|believes?|"
    "remembers?|hopes?|dares?|minds?"
)
DETERMINERS = "this|these|that|the|an?|no|each|every|its|such|some|both"
# Verbs after which a clause with "what" or "who" stands for a thing.
CLAUSE_VERBS = (
    "is|are|was|has|have|may|can|must|would|does|do|needs?|makes?|leaves?|takes?|"
    "gives?|holds?|says?|costs?|allows?|follows?|remains?|lies|stands"
)


class Rule(NamedTuple):
    """What to write instead; for prose also the pattern of a sentence to correct."""

    remedy: str
    pattern: str = ""
    is_strict: bool = False


RULES = {
    "house-word": Rule("the field's term", rf"(?i)\b(?:{'|'.join(HOUSE_WORDS)})\b"),
    "but-except": Rule(
        "except, apart from, except with probability",
        r"\b[Bb]ut for (?!all\b)|"
        r"\bbut (?:with|at|by) (?:a |its |the )?(?:probab|most|least)|"
        # "All but one" and "nothing but" are plain English.
        r"\b(?:[Aa]ll|[Ee]very|[Nn]o) \w+ but "
        r"(?!also|not|it|they|this|is|are|can|may|only|the same)",
        is_strict=True,
    ),
    "what-noun": Rule(
        "the noun: 'what rounding leaves' is 'the rounding error'",
        r"^(?:What|Whatever|Who|Whoever|Whom) (?!is |are |does |do |if |about )[^?]*$|"
        r"(?:[,;:(]| of| by| and| to| than| with| for| from| in| on) "
        r"(?:what|whatever|who) (?!is \w+ \?)(?:[\w`]+ ){0,6}"
        rf"(?:{CLAUSE_VERBS})\b",
    ),
    "causal-for": Rule(
        "because, since; or a new sentence",
        r", for (?:it|they|there|otherwise|then|not|if|what)\b|"
        rf", for (?:{DETERMINERS}) (?:[\w`]+ )?"
        r"(?:is|are|was|were|has|have|may|can|would|must|does|do|will|needs?|costs?)\b",
        is_strict=True,
    ),
    "is-no": Rule(
        "is not a ...",
        r"(?<![Tt]here )\b(?:is|are|was|were|be) no "
        r"(?!longer|more\b|less|worse|other|one|such|\w+er\b)\w+",
    ),
    "pronoun-chain": Rule(
        "repeat the noun",
        r"\b(?:that|the one) (?:of|from)\b|"
        r"\b(?:those|the ones) (?:of|from|where|with|by|in)\b(?! (?:which|whom))",
    ),
    "animate-thing": Rule(
        "requires, depends on, is included in; or say who acts",
        rf"\b(?:{THINGS}) (?:itself |that )?(?:{ANIMATE_VERBS})\b",
    ),
    "of-opening": Rule(
        "subject, verb, object; 'otherwise'",
        r"^(?:Of(?! course| note)|Beside|Whose|Else|Nor|Thereof|As many|Anew) |"
        # In a definition by cases, "1 for ..., else -x" is usual.
        r"[,;:] else (?:it|they|there|none|nothing|what|this|that|the|an?|no|each)\b",
        is_strict=True,
    ),
    "semicolon": Rule("two sentences", r";(?= [a-z])"),
    "colon-glue": Rule(
        "because, so, that is; or a new sentence",
        r"[a-z`]: (?=[a-z])(?!https?|[a-z]+=|[a-z]+\()",
    ),
    "decimal": Rule("0.05", r"(?<![\w.\d$)\]`'/-])\.\d+\b", is_strict=True),
    "digit-space": Rule("20,000", r"(?<![\d.])\d{1,3} \d{3}\b(?! ?[-x×]\s?\d)"),
    "long-sentence": Rule("one idea a sentence"),
    "fragment-docstring": Rule("Return whether ...; Return why ...", is_strict=True),
    "fragment-comment": Rule("name it: '# number of leaps'", is_strict=True),
    "empty-name": Rule("a noun, or max_..., num_kept, is_held", is_strict=True),
    "house-name": Rule("the field's term, see house-word"),
    "bare-participle": Rule("a verb phrase: shorten_rows", is_strict=True),
    "class-word": Rule("a noun of the field: Localization", is_strict=True),
    "tuple-constants": Rule("one per line with unit and reason", is_strict=True),
    "flag-in-array": Rule("a record: trajectory.is_done = True", is_strict=True),
    "numbered-scratch": Rule("named rows: state.scratch[GRADIENT]", is_strict=True),
    "module-constant": Rule("a default, a field of a record, a commented literal"),
    "domain-isinstance": Rule("a property or a method of the domain"),
    "nested-ternary": Rule("if statements"),
    "long-function": Rule("split it"),
    "many-positional": Rule("keyword-only parameters, or an object"),
    "long-file": Rule("one idea a file"),
    "few-comments": Rule("reasons at the three places where a reader would stop"),
}
PATTERNS = {name: re.compile(r.pattern) for name, r in RULES.items() if r.pattern}
FRAGMENT_DOCSTRING = re.compile(r"\s*(?:Whether|Why|What|How|Where|Of|As)\b")
FRAGMENT_COMMENT = re.compile(
    r"(?:[Oo]f|[Bb]eside|[Ww]hose|for which|of which|as many|[Ff]or those)\b"
)
FLAG_INDEX = re.compile(r"(?:IS|HAS|NUM|DONE|STAGE)(?:_|$)")
SCRATCH_NAMES = {"scratch", "work", "room"}
