"""`python -m kerasbert` does what the command `kerasbert` does."""

import sys

from kerasbert.cli import main

if __name__ == "__main__":
    sys.exit(main())
