"""How far work is, as functions tell it."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[float, int], None]
"""Called now and then with how much is done and how much there is. Where pieces are counted, one
that is under way counts by how far it is, so that what is done may be a fraction."""
