"""Certification: the certificate of a minimization, from its recipe."""

from dataclasses import replace

from dpsample.core import check
from dpsample.optimizers.loop.optimizer import (
    Calibration,
    Optimizer,
    Recipe,
    check_any_loss,
)
from dpsample.privacy import Budget, EventCertificate
from dpsample.privacy.certificates.mechanism_spec import MechanismSpec
from dpsample.privacy.certificates.registry import registry
from dpsample.problem.facts import PublicFacts


def certify(
    optimizer: Optimizer,
    recipe: Recipe,
    facts: PublicFacts,
    budget: Budget,
    calibration: Calibration,
    *,
    clip_rows: bool,
) -> EventCertificate:
    """Return the certificate of an unseeded run.

    Raises a ValueError if the calibration is exact and nothing is proved.
    """
    if not facts.loss.has_margin:
        check_any_loss(recipe, optimizer, is_private=True)
    if recipe.event is not None:
        recipe.check_private(facts)
    if calibration == "exact" and recipe.event is None:
        (why,) = registry().words(registry().kind(recipe.kind).assumptions[-1:])
        remedy = f"Why: {why.rstrip('.')}. Use calibration='paper' for studies."
        check.fail("optimizer", "one with a privacy proof", optimizer, remedy)
    if recipe.kind.startswith("objective/pure"):
        budget = replace(budget, delta=0.0)  # the proof spends none of it
    # An optimizer of the user has no kind in the registry, and describes itself.
    is_ours = bool(registry().kind(recipe.kind).by)
    return EventCertificate.of(
        mechanism=MechanismSpec.of(optimizer) if is_ours else repr(optimizer),
        budget=budget,
        event=recipe.event,
        kind=recipe.kind,
        facts=facts,
        clip_rows=clip_rows,
        inputs=recipe.inputs,
        calibration=calibration,
    )
