"""``python -m lightning_devcheck``."""

import sys

from lightning_devcheck._cli import main

sys.exit(main())
