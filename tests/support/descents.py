"""One run of a recipe, without the verb around it."""

import math

from dpsample.core.jit import pointer
from dpsample.domains import PROJECT
from dpsample.optimizers.loop.pieces import FeasibleSet
from dpsample.running.descent import Program


def descend(problem, recipe, rng, **options):
    return Program(problem, recipe).run(rng, **options)


def feasible_set(domain, dim, reach=math.inf):
    """A domain as the kernels of steps read it."""
    project = pointer(domain.project_piece, PROJECT)
    return FeasibleSet(domain.body(dim), project, reach)
