"""Sphinx configuration; ``make docs`` builds the site and needs no network."""

from __future__ import annotations

import sys
from pathlib import Path

import dpb_gym

sys.path.insert(0, str(Path(__file__).with_name("_ext")))

project = "dpb-gym"
author = "The dpb-gym developers"
copyright = f"2026, {author}"
version = release = dpb_gym.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "dpb_site",
]
exclude_patterns = ["_build", "_ext"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
smartquotes = False

default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_type_aliases = {"Array": "numpy.ndarray", "FloatArray": "numpy.ndarray"}
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
# Objects that are public in two modules make short names ambiguous.
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_title = f"dpb-gym {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("versions.js", {"defer": "defer"})]
html_copy_source = False
html_show_sourcelink = False
