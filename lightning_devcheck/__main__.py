"""``python -m lightning_devcheck``."""

import sys

from lightning_devcheck._cli import main

if __name__ == "__main__":
    sys.exit(main())
