"""Which layout of a model trains fastest: `space.py` has them all, `search.py` ranks them."""

from __future__ import annotations

from allrail.layouts.search import Found, Ranked, search
from allrail.layouts.space import Job, Layout, layouts

__all__ = ["Found", "Job", "Layout", "Ranked", "layouts", "search"]
