"""`python -m orrery_trace`."""

import sys

from orrery_trace.cli import main

if __name__ == "__main__":
    sys.exit(main())
