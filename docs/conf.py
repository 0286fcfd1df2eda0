"""The site: `make docs` writes it to build/docs. Pages are Markdown; the reference comes from docstrings."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]  # site_parts.py; the sources, wherever Dibs is installed from

import dibs  # noqa: E402

project = "Dibs"
release = version = dibs.__version__
author = "the Dibs team"
copyright = "Apache License 2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc", "site_parts"]
exclude_patterns = ["README.md"]
myst_enable_extensions = ["colon_fence", "attrs_inline"]
myst_heading_anchors = 4
nitpicky = False

# The reference: signatures with their types, members in the order of their source.
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
add_module_names = False
python_maximum_signature_line_length = 88
autodoc_mock_imports: list[str] = []

html_theme = "furo"
html_title = "Dibs"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True, "sidebar_hide_name": False}
pygments_style, pygments_dark_style = "friendly", "github-dark"
