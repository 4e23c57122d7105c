"""``python -m penguin``."""

from __future__ import annotations

import sys

from penguin.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
