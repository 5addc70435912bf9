"""Registry of the theorems, assumptions and kinds that certificates may name.

Certificates hold identifiers. Their sentences are rendered from `registry.toml` and
bound by their SHA-256. The kind of a certificate (which mechanism was run, and how)
determines the identifiers that it must list. None may be missing, added, repeated or
moved.

A kind may be composed: "tuned/A+B" is tuning over candidates of the kinds A and B, and
"intervals/A" are confidence intervals about a fit of the kind A.
"""

import dataclasses
import functools
import hashlib
import json
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from dpsample.core import check
from dpsample.losses import BUILT_IN, Custom
from dpsample.privacy.certificates.former_calls import LABEL
from dpsample.privacy.certificates.mechanism_spec import MechanismSpec, Value
from dpsample.problem.facts import PublicFacts

# Assumptions of all kinds, unless a kind proves one of them.
COMMON = ("ARITHMETIC", "BITS", "PUBLIC", "TIME", "COMPOSITION", "UNIT")
# Prefixes of composed kinds.
TUNED = "tuned/"
INTERVALS = "intervals/"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of certificate. `registry.toml` explains the fields at length."""

    by: tuple[str, ...]  # types of mechanisms, empty if any name will do
    events: tuple[str, ...] = ()  # types of privacy events, "" for none
    theorems: tuple[str, ...] = ()
    fallback: tuple[str, ...] = ()  # theorems that only another path needs
    assumptions: tuple[str, ...] = ()
    exact: bool = False  # whether the sampler has no error in total variation
    trusts: bool = False  # whether declarations about a user's loss are relied on
    counted: bool = False  # whether the proof includes rounding errors
    timed: bool = False  # whether the running time is part of the proof
    releasable: bool = True

    @property
    def common(self) -> tuple[str, ...]:
        """Assumptions of all mechanisms, without those that this kind proves."""
        proved = ("ARITHMETIC",) * self.counted + ("TIME",) * self.timed
        return tuple(name for name in COMMON if name not in proved)


@dataclass(frozen=True, kw_only=True)
class Registry:
    """Sentences by identifier, and kinds by name.

    ``confirm``, ``excluded`` and ``settled`` explain assumptions to readers who are not
    experts. They are not binding, and neither are the words in ``screen``. ``since``
    has the first version of identifiers that were added later. ``former`` has, by
    version, the sentences whose wording was improved in the next version. ``types`` has
    the parameters of each type of mechanism, in order. A parameter with a question mark
    may be missing.
    """

    version: int
    theorems: dict[str, str]
    assumptions: dict[str, str]
    since: dict[str, int]
    confirm: dict[str, str]
    excluded: dict[str, str]
    settled: dict[str, str]
    screen: dict[str, dict[str, str]]
    former: dict[str, dict[str, str]]
    types: dict[str, tuple[str, ...]]
    kinds: dict[str, Kind]

    def words(
        self,
        identifiers: tuple[str, ...],
        *,
        field: str = "identifiers",
        version: int | None = None,
    ) -> tuple[str, ...]:
        """Return the sentences of identifiers, in today's or an earlier version.

        A ValueError names the first identifier that is unknown or repeated.
        """
        sentences = self._sentences(self.version if version is None else version)
        for index, identifier in enumerate(identifiers):
            # Identifiers come from JSON, so they may be of any type.
            is_known = isinstance(identifier, str) and identifier in sentences
            if not is_known or identifier in identifiers[:index]:
                condition = "one of the registry's, listed once"
                check.fail(f"{field}[{index}]", condition, check.describe(identifier))
        return tuple(sentences[identifier] for identifier in identifiers)

    def seal(self, identifiers: tuple[str, ...], version: int | None = None) -> str:
        """Return the version and the SHA-256 of the sentences of a certificate."""
        version = self.version if version is None else version
        words = self.words(identifiers, version=version)
        text = json.dumps(dict(zip(identifiers, words, strict=True)), sort_keys=True)
        return f"{version}:{hashlib.sha256(text.encode()).hexdigest()}"

    def select_version(
        self, identifiers: tuple[str, ...], version: int | None
    ) -> tuple[str, ...]:
        """Return the identifiers that certificates of a version list. None is today's.

        Examples
        --------
        >>> registry().select_version(("BITS", "UNIT"), 3)
        ('BITS',)
        """
        last = self.version if version is None else version
        return tuple(name for name in identifiers if self.since.get(name, 1) <= last)

    def version_of(self, seal: object) -> int:
        """Return the version that a seal names; today's if it names an unknown one."""
        # A seal is "version:digest".
        text = seal.partition(":")[0] if isinstance(seal, str) else ""
        return int(text) if text in self.former else self.version

    def _sentences(self, version: int) -> dict[str, str]:
        """Return all sentences of a version, undoing later changes of the wording."""
        sentences = self.theorems | self.assumptions
        for later in range(self.version - 1, version - 1, -1):
            sentences |= self.former[str(later)]
        return sentences

    def kind(self, name: object) -> Kind:
        """Return the kind of a name, which must be known."""
        if isinstance(name, str) and name.startswith(TUNED):
            return self._tuned_kind(name.removeprefix(TUNED).split("+"))
        if isinstance(name, str) and name.startswith(INTERVALS):
            return self._intervals_kind(name.removeprefix(INTERVALS))
        if not (isinstance(name, str) and name in self.kinds):
            check.fail("kind", "one of the registry's", check.describe(name))
        return self.kinds[name]

    def _tuned_kind(self, names: list[str]) -> Kind:
        """Return the kind of tuning, which rests on all that its candidates rest on."""
        is_plain = not any(name.startswith((TUNED, INTERVALS)) for name in names)
        if names != sorted(set(names)) or not is_plain:
            check.fail(
                "kind", "of different candidates in order", check.describe(names)
            )
        inner = [self.kind(name) for name in names]
        if not all(kind.by and kind.events and kind.releasable for kind in inner):
            check.fail("kind", "of candidates that may be released", names)
        theorems = [name for kind in inner for name in kind.theorems]
        assumptions = [name for kind in inner for name in kind.assumptions]
        return Kind(
            by=("Tuned",),
            events=("best_of",),
            theorems=("TUNING.PROFILE", "TUNING.SCORE", *dict.fromkeys(theorems)),
            assumptions=("TUNING.SECRET", "TUNING.DRAWS", *dict.fromkeys(assumptions)),
            trusts=any(kind.trusts for kind in inner),
            counted=all(kind.counted for kind in inner),
        )

    def _intervals_kind(self, base: str) -> Kind:
        """Return the kind of intervals about the fit of another kind."""
        if base.startswith((TUNED, INTERVALS)):
            check.fail("kind", "of intervals about a fit", check.describe(base))
        inner = self.kind(base)
        bases = ("ObjectivePerturbation", "NoisyGD", "AdaSSP")
        is_base = bool(set(inner.by) & set(bases)) and "pure" not in inner.events
        if not (is_base and inner.events and inner.releasable):
            check.fail("kind", f"of intervals about {' or '.join(bases)}", base)
        squares = ("INTERVALS.SQUARES",) if "AdaSSP" in inner.by else ()
        # Intervals compose the curves instead of adding up epsilons.
        instead = {"OBJECTIVE.PARTS": "OBJECTIVE.COMPOSED"}
        # It is listed once, before the assumptions of the fit.
        also = (name for name in inner.assumptions if name != "NOISE.ROUNDED")
        return Kind(
            by=("Sandwich",),
            events=("composed",),
            theorems=(
                "INTERVALS.MATRIX",
                *squares,
                *(instead.get(name, name) for name in inner.theorems),
            ),
            assumptions=("INTERVALS.LAW", "NOISE.ROUNDED", *also),
            trusts=inner.trusts,
            counted=inner.counted,
        )


@functools.cache
def registry() -> Registry:
    """Read the registry, once.

    Examples
    --------
    >>> registry().words(("BITS",))
    ('The random bits are ideal.',)
    """
    file = resources.files("dpsample.privacy.certificates") / "registry.toml"
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    kinds = {name: _kind(fields) for name, fields in content.pop("kinds").items()}
    types = {name: tuple(listed) for name, listed in content.pop("types").items()}
    # Losses are parts of mechanisms, and describe their own parameters.
    for loss in BUILT_IN.values():
        fields = dataclasses.fields(loss)
        types[loss.__name__] = tuple(field.name for field in fields if field.init)
    return Registry(**content, types=types, kinds=kinds)


def _kind(fields: dict[str, Any]) -> Kind:
    """Return the kind of an entry of the file, whose lists become tuples."""
    lists = {name: tuple(v) for name, v in fields.items() if isinstance(v, list)}
    return Kind(**fields | lists)


def check_mechanism(kind: str, mechanism: object, *, field: str) -> None:
    """Raise a ValueError unless a sampler or mechanism is one of its kind's.

    Free text is rejected, because it could claim anything. Only noise on a query has a
    registered name in the place of a spec.

    Examples
    --------
    >>> proximal = MechanismSpec("Proximal", (("oracle", "metric"),))
    >>> check_mechanism("draw/proximal", proximal, field="sampler")
    """
    allowed = registry().kind(kind).by
    is_spec = isinstance(mechanism, MechanismSpec)
    name = mechanism.type if isinstance(mechanism, MechanismSpec) else mechanism
    if not allowed:
        is_label = isinstance(mechanism, str) and LABEL.fullmatch(mechanism)
        if not (is_spec or is_label):
            condition = "a name of at most 60 letters, digits, spaces and _.-"
            check.fail(field, condition, check.describe(mechanism))
    elif name not in allowed or is_spec != (name in registry().types):
        condition = f"made by {' or '.join(allowed)}, as {kind!r} is"
        check.fail(field, condition, check.describe(mechanism))


def check_parameters(mechanism: Value, *, field: str) -> None:
    """Raise a ValueError unless specs have the parameters of their types, in order.

    Examples
    --------
    >>> spec = MechanismSpec("ClippedGD", (("clip", 0.5),))
    >>> check_parameters(spec, field="mechanism")
    Traceback (most recent call last):
    ValueError: mechanism.num_steps must be stated for ClippedGD, got no value.
    """
    if isinstance(mechanism, tuple):
        for index, item in enumerate(mechanism):
            check_parameters(item, field=f"{field}[{index}]")
    if not isinstance(mechanism, MechanismSpec):
        return
    kind, types = mechanism.type, registry().types
    if kind not in types:
        check.fail(f"{field}.type", "one of the registry's", check.describe(kind))
    parameter_names = [name.removesuffix("?") for name in types[kind]]
    stated = [name for name, _ in mechanism.parameters]
    for name in stated:
        if name not in parameter_names:
            names = ", ".join(parameter_names) or "none"
            condition = f"a parameter of {kind}, which has {names}"
            check.fail(f"{field}.{name}", condition, "another name")
    for name in types[kind]:
        if not name.endswith("?") and name not in stated:
            check.fail(f"{field}.{name}", f"stated for {kind}", "no value")
    if stated != [name for name in parameter_names if name in stated]:
        condition = f"with parameters in the order {', '.join(parameter_names)}"
        check.fail(field, condition, ", ".join(stated))
    for name, value in mechanism.parameters:
        check_parameters(value, field=f"{field}.{name}")


def problem_assumptions(
    kind: str, facts: PublicFacts, *, clip_rows: bool
) -> tuple[str, ...]:
    """Return the assumptions of a kind about the loss and the records of a problem."""
    assumptions = []
    is_draw = kind.startswith("draw")
    if is_draw or (registry().kind(kind).trusts and isinstance(facts.loss, Custom)):
        assumptions.append("LOSS.DECLARED")
    if not is_draw:
        assumptions.append("FIT.WORK")
        if not (facts.loss.is_cached and facts.loss.is_ours):
            assumptions.append("LOSS.OWN")
    assumptions.append("RECORDS.CLIPPED" if clip_rows else "RECORDS.REFUSED")
    return tuple(assumptions)
