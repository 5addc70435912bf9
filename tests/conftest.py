"""Settings of the whole suite: reproducible examples, no time limits per example."""

import signal

import pytest
from hypothesis import settings

# Derandomized: a red test must be red again. Compilation makes any deadline flaky.
settings.register_profile("suite", derandomize=True, deadline=None, database=None)
settings.load_profile("suite")


@pytest.fixture
def hears_interrupts():
    """Ctrl-C raises, also where a shell started the tests with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
