"""``python -m kvbench``: the same as ``kvbench``."""

import sys

from kvbench.cli.main import main

sys.exit(main())
