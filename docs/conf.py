"""How these pages are built: offline, and a warning is an error (``scripts/docs``)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import focus_core

project = "FOCUS"
version = release = focus_core.__version__
copyright = ""
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "command_reference",
    "contracts",
    "mathml",
    "public_names",
]
exclude_patterns = ["_build"]
nitpicky = True
nitpick_ignore_regex = [
    ("py:class", r"focus_core\..*\.(_\w+|T)"),  # private classes and type variables
    ("py:.*", r"focus_core\.plugins\.(manager\.Plugins|specs\.Spec)|Broken"),  # not public
    ("py:.*", r"focus_core\.(agent\.agent\.Spoken|collect\.collection\.Rules)"),  # nor are these
    # Outside FOCUS: named in signatures, documented elsewhere, and no inventory is downloaded.
    (
        r"py:.*",
        r"(NDArray|np|numpy|collections|typing|types|pathlib|pluggy|attrs|array|concurrent|contextlib)\b.*",
    ),
    (
        r"py:.*",
        r"(None|True|False|optional|ValueError|TypeError|RuntimeError|OSError|LookupError|"
        r"TimeoutError|Exception|BaseException|FileNotFoundError|T|Path|Any|Callable|Sequence|"
        r"Mapping|Counter|StopReason|RunStatus)",
    ),
]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_numpy_docstring = False
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries = False

html_theme = "furo"
html_title = "FOCUS"
html_static_path = ["_static"]
html_css_files = ["focus.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
COLOURED = ("color-brand-primary", "color-brand-content", "color-api-name", "color-api-pre-name")
html_theme_options = {
    "light_css_variables": dict.fromkeys(COLOURED, "#0b6e5f"),
    "dark_css_variables": dict.fromkeys(COLOURED, "#5cc8b4"),
}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
