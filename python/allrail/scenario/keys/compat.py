"""Compat of a scenario: what it may say, its defaults and ranges.

Written by `make docs` from the Rust core's own structs (docs/scenario_keys.py); do not edit.
"""

from typing import Annotated

from pydantic import Field

from allrail.scenario.algorithms import OneByOperation
from allrail.scenario.fields import OneOf, Quantity
from allrail.scenario.node import Node


class GroupSchedule(Node):
    """What process groups smaller than the job run."""

    algorithms: Annotated[dict[str, str], OneByOperation()] = Field(
        default={},
        description="The algorithm of a kind of collective; `ring_unidirectional` where none is"
        " named.",
    )
    endpoint_delay: Annotated[str, Quantity("time")] = Field(
        default="0 ps", description="In place of the schedule's."
    )


class Compat(Node):
    """Rules of ASTRA-sim that no other system has."""

    cut: Annotated[str, OneOf("even", "rest", "full", what="a cut")] = Field(
        default="even",
        description="How a collective is cut into `schedule.chunks`. `even`: parts that differ "
        "by one byte at most. `rest`, as 1.0 does: parts of the size divided by "
        "`chunks`, rounded down, and the rest as one more. `full`, as 2.x does: the"
        " same, and the last part is padded to the size of the others. A part of an"
        " all-gather is what its NPUs bring.",
    )
    loads: Annotated[str, OneOf("fixed_delay", "zero", what="a start of the loads")] = Field(
        default="fixed_delay",
        description="Where Themis' load tracker starts: at each dimension's `fixed_delay`, as "
        "the paper says, or at `zero`.",
    )
    communicators: Annotated[str, OneOf("share", "queue", what="what communicators do")] = Field(
        default="share",
        description="Of a workload: what its communicators do where they meet on a dimension. "
        "Every process group has one for its collectives and one for its messages. "
        "`share`: they take turns, chunk by chunk, for equal times. `queue`: all "
        "wait in one queue.",
    )
    groups: GroupSchedule | None = Field(
        default=None,
        description="Of a workload in `links`: process groups smaller than the job run one "
        "algorithm over all their ranks in order, whatever dimensions these differ "
        "on.",
    )
    issue: Annotated[str, OneOf("at_once", "in_turn", what="a rule of issue")] = Field(
        default="at_once",
        description="Of a workload: when an NPU begins what is ready. `at_once`, or `in_turn`: "
        "one communication after the other (receives aside), and one delay, of "
        "those that are ready the one that stands first.",
    )
    message_endpoint_delay: Annotated[str, Quantity("time")] | None = Field(
        default=None,
        description="Of a workload in `links`: what a message between two ranks waits for at "
        "either end; `schedule.endpoint_delay` if left out, as messages of "
        "collectives do.",
    )
