"""Exit codes of the commands."""

# The verdict is negative, or a step after a draw failed.
FAILED = 1
USAGE_ERROR = 2
# The code of shells for Ctrl-C: 128 and the number of the signal.
INTERRUPTED = 130
