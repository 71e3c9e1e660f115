"""Which layout of a model trains fastest: `space.py` has them all, `search.py` ranks them."""

from __future__ import annotations

from allrail.layouts.policies import Tuned, tuned
from allrail.layouts.search import Found, search
from allrail.layouts.space import Job, Layout, Space, space
from allrail.layouts.trial import RECOMPUTED, Bounded, Ranked, Trials

__all__ = [
    "RECOMPUTED",
    "Bounded",
    "Found",
    "Job",
    "Layout",
    "Ranked",
    "Space",
    "Trials",
    "Tuned",
    "search",
    "space",
    "tuned",
]
