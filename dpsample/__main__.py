"""``python -m dpsample``: the commands of ``dpsample``."""

import sys

from dpsample.cli import main

if __name__ == "__main__":
    sys.exit(main())
