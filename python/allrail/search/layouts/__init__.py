"""Which layout of a model trains fastest: `space.py` has them all, `search.py` ranks them.

`layout.py` is a job and one way to cut it, `trial.py` what a layout takes, `choice.py` which is
recommended, `tools.py` which tool can do it, `given.py` a layout that somebody has written beside
them, `pessimistic.py` what they lose on a slower network.
"""

from __future__ import annotations

from allrail.search.layouts.choice import Row, folded, recommended
from allrail.search.layouts.fixed import parse_fixed
from allrail.search.layouts.given import Given, read_given, score, why_it_loses
from allrail.search.layouts.layout import HEADROOM, Job, Layout
from allrail.search.layouts.pessimistic import Pessimistic, pessimistic
from allrail.search.layouts.schedules import TunedLayout, tuned
from allrail.search.layouts.search import Found, search
from allrail.search.layouts.space import Space, lacks, space, tools_of
from allrail.search.layouts.tools import ANY, TOOLS
from allrail.search.layouts.trial import RECOMPUTED, Bounded, Ranked, Trials

__all__ = [
    "ANY",
    "HEADROOM",
    "RECOMPUTED",
    "TOOLS",
    "Bounded",
    "Found",
    "Given",
    "Job",
    "Layout",
    "Pessimistic",
    "Ranked",
    "Row",
    "Space",
    "Trials",
    "TunedLayout",
    "folded",
    "lacks",
    "parse_fixed",
    "pessimistic",
    "read_given",
    "recommended",
    "score",
    "search",
    "space",
    "tools_of",
    "tuned",
    "why_it_loses",
]
