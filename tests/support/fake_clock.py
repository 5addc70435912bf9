"""A clock that only the test moves."""

from dpsample.api import release as releases


class FakeClock:
    """Seconds that pass when a release sleeps and, by ``tick``, when it looks."""

    def __init__(self, monkeypatch, tick=0.0):
        self.now, self.tick = 100.0, tick
        monkeypatch.setattr(releases, "time", self)

    def monotonic(self):
        self.now += self.tick
        return self.now

    perf_counter = monotonic

    def sleep(self, seconds):
        assert 0.0 < seconds <= releases.SLEEP_SECONDS  # Ctrl-C is heard in between
        self.now += seconds
