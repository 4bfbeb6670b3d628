"""``python -m clockhands`` is the command line."""

import sys

from clockhands.cli import main

sys.exit(main())
