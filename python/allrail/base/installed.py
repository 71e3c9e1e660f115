"""How to install what is missing, in words that work when typed.

allrail may come from a wheel, a checkout or an index, so `pip install allrail[tune]` is right
only for some. What an extra consists of is in the metadata of every copy: the hint names these
packages, and the installer that this environment has.
"""

from __future__ import annotations

import re
import shlex
from importlib import metadata

_REQUIREMENT = re.compile(r"""\s*(?P<what>[^;]+?)\s*;.*\bextra\s*==\s*["'](?P<extra>[^"']+)["']""")
KNOWN = {"torch": ("torch",), "ray": ("ray",), "tune": ("optuna",), "jax": ("jax",)}
"""Packages of extras, where allrail runs without being installed."""


def packages(extra: str) -> list[str]:
    """Return the requirements of an extra, such as `optuna>=4`.

    Args:
        extra: Its name.
    """
    try:
        required = metadata.requires("allrail") or []
    except metadata.PackageNotFoundError:
        required = []
    found = [
        match["what"].replace(" ", "")
        for text in required
        if (match := _REQUIREMENT.fullmatch(text)) and match["extra"] == extra
    ]
    return found or list(KNOWN.get(extra, (extra,)))


def install(extra: str) -> str:
    """Return the hint that installs an extra.

    Args:
        extra: Its name, such as `tune`.
    """
    return f"`{installer()} install {shlex.join(packages(extra))}`"


def installer() -> str:
    """Return the command that installs packages into this environment: `pip` or `uv pip`."""
    # Looking for the module would have setuptools take out a `distutils` that others imported.
    return "pip" if any(metadata.distributions(name="pip")) else "uv pip"
