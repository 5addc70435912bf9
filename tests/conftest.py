"""Settings of the whole suite: reproducible examples, no time limits per example."""

from hypothesis import settings

# Derandomized: a red test must be red again. Compilation makes any deadline flaky.
settings.register_profile("suite", derandomize=True, deadline=None, database=None)
settings.load_profile("suite")
