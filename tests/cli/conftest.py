"""Fixtures of commands."""

from tests.support.study_environment import environment as environment
from tests.support.terminal_commands import folder as folder
