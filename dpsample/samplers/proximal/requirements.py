"""Requirements of the proximal sampler's proof, by public facts."""

from dpsample.problem.facts import PublicFacts
from dpsample.problem.storage import IN_MEMORY
from dpsample.regularizers import Regularizer
from dpsample.samplers.errors import NoCertificate
from dpsample.samplers.proximal import metric
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.reduced import facts_obstacle


def no_proximal_proof(target: Gibbs) -> str:
    """Return why the proximal sampler has no proof for a target, or "" if it has one.

    The reason depends on public facts only.
    """
    if not target.problem.storage.is_in_memory:
        return f"Records that are not in memory need a smooth loss. {IN_MEMORY}"
    return no_proximal_proof_in_memory(target.problem.facts, target.regularizer)


def no_proximal_proof_in_memory(facts: PublicFacts, regularizer: Regularizer) -> str:
    """Return why there is no proof for records in memory, or "" if there is one."""
    domain, dim = facts.domain, facts.dim
    if metric.is_flat(domain, dim):
        reason = facts_obstacle(facts, regularizer)
        if reason:
            return f"The {domain.name} has no interior. {reason}"
        if not domain.is_bounded:
            return f"The {domain.name} is unbounded: its draws need a bounded one."
        return ""
    try:
        metric.require_interior(domain, dim, "certified", "")
    except NoCertificate as error:
        return str(error)
    return ""
