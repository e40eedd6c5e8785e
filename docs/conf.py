"""The documentation site: ``sphinx-build -W -b html docs docs/_build``."""

import sys
from pathlib import Path

# the pages describe this checkout, not what is installed
sys.path.insert(0, str(Path(__file__).parents[1]))

from lightning_devcheck import __version__

project = "lightning-devcheck"
author = "the lightning-devcheck maintainers"
copyright = f"2026, {author}"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"lightning-devcheck {version}"

# GitHub and the site take the same links: page.md#heading
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
# attributes of the frozen records are in the table of the class already
napoleon_use_ivar = True
# `name` in a docstring is code
default_role = "code"
