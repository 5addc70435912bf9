"""The grammar of messages about malformed arguments."""

import re

GRAMMAR = re.compile(
    r"^(?P<name>[A-Za-z_]+[A-Za-z0-9_\[\] <=]*) must be .+, got .+\.( .+\.)?$"
)
