"""Fixtures of studies."""

from tests.support.study_environment import environment as environment
