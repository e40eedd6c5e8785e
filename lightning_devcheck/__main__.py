"""``python -m lightning_devcheck``."""

import sys

from lightning_devcheck._run.cli import main

sys.exit(main())
