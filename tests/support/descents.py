"""One run of a recipe, without the verb around it."""

from dpsample.running.descent import Program


def descend(problem, recipe, rng, **options):
    return Program(problem, recipe).run(rng, **options)
