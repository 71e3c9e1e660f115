"""The site that `make site` builds: Sphinx, MyST and Furo over the Markdown files of the tree.

Pages link each other by relative paths, so that the same links work in a checkout, on a host of
repositories and on the site. The sources are therefore those of the whole tree, under their own
paths. What is linked and no page (a script, a YAML file) comes along as a download.
"""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

project = "allrail"
author = "the authors of allrail"
copyright = "the authors of allrail"  # noqa: A001 - Sphinx asks for this name
version = release = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"][
    "version"
]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
smartquotes_action = "D"  # quotation marks stay as they stand in the files
root_doc = "docs/README"
include_patterns = ["docs/**.md", "examples/*/README.md", "*.md"]
exclude_patterns = ["out", "target", "crates", "python", "tests", "fuzz", "benches", ".*"]

myst_heading_anchors = 4  # the anchors of GitHub
myst_links_external_new_tab = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
# The pages are the same with torch and without.
autodoc_mock_imports = [] if importlib.util.find_spec("torch") else ["torch"]
default_role = "code"  # `x` in docstrings is what it is in Markdown
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

# A line of output that begins with `#` is a root's prompt to the lexer of consoles, and an
# apostrophe in it an open string. Such a block is shown all the same, as is one without a lexer.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = "allrail"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_additional_pages = {"index": "to-start.html"}
templates_path = ["templates"]
html_copy_source = False
html_show_sphinx = False
html_last_updated_fmt = None
copybutton_selector = "div.highlight pre"
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"


def _with_trees(_app: Any, name: str, source: list[str]) -> None:
    """Make the lists of docs/README.md the site's navigation: nothing is listed twice."""
    if name != root_doc:
        return
    section = re.compile(r"^## (.+?)$\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    trees = []
    for caption, text in section.findall(source[0]):
        items = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)
        pages = re.findall(r"\[([^]]+)\]\(([^)#:]+\.md)\)", items)
        listed = "\n".join(f"{title} <{page}>" for title, page in pages)
        if listed:
            trees.append(f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n")
    source[0] += "\n\n" + "\n".join(trees)


def _as_markdown(*given: Any) -> None:
    """Read docstrings as they are written: indented examples are code, and `x`s is one word."""
    lines: list[str] = given[-1]
    was, code = list(lines), False
    lines.clear()
    for at, line in enumerate(was):
        indented = line.startswith("    ")
        if indented and not code and not _belongs(was[:at]):
            lines += [".. code-block:: python", ""]
            code = True
        elif line and not indented:
            code = False
        lines.append(line if code else re.sub(r"(`[^`]+`)(\w?)", _apart, line))


def _apart(found: re.Match[str]) -> str:
    """What follows a literal at once is told from it by an escaped blank."""
    return found[1] + (f"\\ {found[2]}" if found[2] else "")


def _belongs(above: list[str]) -> bool:
    """Whether what is indented now goes on with a field, a list or a directive above it."""
    outer = next((line for line in reversed(above) if line and not line.startswith("    ")), "")
    return outer.startswith((":", "..", "  ", "- ")) or bool(above and above[-1] == outer)


def setup(app: Any) -> None:
    """Connect the above."""
    app.connect("source-read", _with_trees)
    app.connect("autodoc-process-docstring", _as_markdown)
