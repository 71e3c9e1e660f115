"""What becomes of each key of `schedule` and `compat` in the hands of each tool: one table for all.

A *decision* is a key with another value than its default. A tool carries it out (its files say it),
refuses it (no file, and a line that says what it lacks), or leaves it to what runs beneath or above
it, which `apply` says in a line. Times and rules of the model decide nothing. A key that no list
here has is unknown to `apply`, and a law fails until it is in one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any

from allrail.scenario.fields import table
from allrail.scenario.keys.compat import Compat, GroupSchedule
from allrail.scenario.keys.schedule import Schedule
from allrail.scenario.policies import order_of
from allrail.search.layouts.tools import TOOLS
from allrail.targets.decision import Decision, Inapplicable


class Fate(Enum):
    """What becomes of a decision."""

    CARRIED = "the tool's files say it"
    REFUSED = "the tool cannot do it: no file, and why"
    LEFT = "to another's choice, which a line says"
    MODEL = "nothing is decided by it"


_MODEL = (
    "endpoint_delay",
    "accept_plan",
    "compat.groups.endpoint_delay",
    "compat.issue",
    "compat.message_endpoint_delay",
    "tensor.start_overhead",
    "tensor.partition_overhead",
    "tensor.servers.host",
    "tensor.servers.sum",
    "tensor.servers.host_sum",
    "tensor.servers.copy",
    "tensor.servers.bandwidth",
    "tensor.servers.in_order",
    "coordination.skew",
    "coordination.latency",
)
"""Times of machines, of messages and of servers, and a rule of the simulator."""

_COLLECTIVES = (
    "policy",
    "order",
    "chunks",
    "compat.cut",
    "smallest_chunk",
    "threshold",
    "active_chunks",
    "send_ahead",
    "programs",
    "algorithms",
    "algorithms_by_operation",
    "collective_order",
    "compat.communicators",
    "composition",
    "compat.loads",
    "compat.groups.algorithms",
)
"""How a collective runs: a library's own choice under every framework."""

_GRADIENTS = (
    "tensor.policy",
    "tensor.partition",
    "tensor.credit",
    "tensor.bucket",
    "tensor.first_bucket",
    "tensor.threshold",
    "tensor.cycle",
    "tensor.groups",
)
"""Which part of which gradient goes next."""

_EXCHANGE = (
    "tensor.barrier",
    "tensor.exchange",
    "tensor.backup_workers",
    "tensor.servers.count",
    "tensor.servers.colocated",
    "tensor.servers.big_array",
    "tensor.servers.placement",
    "tensor.servers.local",
    "tensor.servers.synchronous",
)
"""How gradients travel, and what waits for them."""

_COORDINATION = (
    "coordination.policy",
    "coordination.cycle",
    "coordination.threshold",
    "coordination.cache",
    "coordination.fan_out",
    "coordination.stall",
    "coordination.stall_shutdown",
    "coordination.patience",
    "coordination.groups",
    "coordination.collectives",
)


def _fates(**lists: Sequence[str]) -> dict[str, Fate | Callable[[Decision], Fate]]:
    found: dict[str, Fate | Callable[[Decision], Fate]] = dict.fromkeys(_MODEL, Fate.MODEL)
    for fate, keys in lists.items():
        found |= dict.fromkeys(keys, Fate[fate.upper()])
    return found


def _in_buckets(decision: Decision) -> Fate:
    """DDP sends whatever is scheduled otherwise in buckets, whose caps `ddp.py` finds."""
    return Fate.CARRIED if decision.reads("bucket") else Fate.LEFT


def _in_megatron_s_buckets(decision: Decision) -> Fate:
    """Megatron-LM has buckets of one size, where gradients overlap and there is no pipeline."""
    parallelism = decision.parallelism
    plain = decision.degrees["pp"] == 1 and parallelism["zero"] < 2
    fits = decision.reads("bucket") and plain and parallelism["overlap_gradients"]
    return Fate.CARRIED if fits else Fate.LEFT


def _as_large_as_others(decision: Decision) -> Fate:
    first, other = (decision.tensor.get(key) for key in ("first_bucket", "bucket"))
    return _in_megatron_s_buckets(decision) if first == other else Fate.LEFT


# In which order gradients go is a framework's own; what travels between whom is not.
_FRAMEWORK = _fates(left=(*_COLLECTIVES, *_GRADIENTS), refused=(*_EXCHANGE, *_COORDINATION))
_BUCKETS = ("tensor.policy", "tensor.bucket")

FATES: dict[str, dict[str, Fate | Callable[[Decision], Fate]]] = {
    "allrail": _fates(
        carried=(
            *("policy", "order", "chunks", "smallest_chunk", "threshold", "send_ahead"),
            *("programs", "algorithms", "algorithms_by_operation"),
            *_GRADIENTS,
            *_EXCHANGE,
            *_COORDINATION,
        ),
        refused=(
            *("active_chunks", "collective_order", "composition"),
            *("compat.cut", "compat.loads", "compat.communicators", "compat.groups.algorithms"),
            "coordination.collectives",  # what is no gradient meets by its name
        ),
    ),
    "ddp": _FRAMEWORK | dict.fromkeys(_GRADIENTS, _in_buckets),
    "fsdp": _FRAMEWORK,
    "megatron": _FRAMEWORK
    | dict.fromkeys(_BUCKETS, _in_megatron_s_buckets)
    | {"tensor.first_bucket": _as_large_as_others},
    "torchtitan": _FRAMEWORK,
    "nccl": _fates(
        carried=("algorithms",),
        left=(
            *(key for key in _COLLECTIVES if key != "algorithms"),
            *_GRADIENTS,
            *_EXCHANGE,
            *_COORDINATION,
        ),
    ),
}
"""By tool and key, with dots between its parts. `CARRIED` says that the tool's own file sees to it;
it may still refuse a value."""


@cache
def schedule_keys() -> tuple[str, ...]:
    """Return every key under `schedule`, as schemas say, and those under `compat` with its name."""
    found: list[str] = []
    for key in Schedule.model_fields:
        if key in ("tensor", "coordination"):
            rows = table("tensor_policies" if key == "tensor" else "coordinations")
            keys = {inner for row in rows for inner in _of_schema(row["schema"])}
            found += [f"{key}.policy", *sorted(f"{key}.{inner}" for inner in keys)]
        else:
            found.append(key)
    found += [f"compat.{key}" for key in Compat.model_fields if key != "groups"]
    found += [f"compat.groups.{key}" for key in GroupSchedule.model_fields]
    return tuple(found)


def _of_schema(schema: Mapping[str, Any]) -> Iterator[str]:
    """Keys of a policy; those of what has keys of its own, with a dot between."""
    for key, one in schema.get("properties", {}).items():
        forms = [one, *one.get("anyOf", ())]
        names = [str(form["$ref"]).rpartition("/")[2] for form in forms if "$ref" in form]
        inner = [schema["$defs"][name].get("properties", {}) for name in names]
        if not any(inner):
            yield key
        else:
            yield from (f"{key}.{own}" for keys in inner for own in keys)


def decided(decision: Decision) -> dict[str, Any]:
    """Return the decisions of `schedule_keys`: by key, values that are not their defaults.

    Args:
        decision: What a scenario has decided.
    """
    schedule = decision.schedule
    barrier = not decision.tensor_policy["crosses_barrier"]
    defaults = _defaults() | {"order": order_of(schedule["policy"]), "tensor.barrier": barrier}
    found = {}
    for key in schedule_keys():
        value: Any = decision.tree if key.startswith("compat.") else schedule
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value not in (None, {}, [], ()) and value != defaults.get(key):
            found[key] = value
    return found


@cache
def _defaults() -> dict[str, Any]:
    """By key, what holds where it is left out; of the others nothing does."""
    found: dict[str, Any] = {key: one.default for key, one in Schedule.model_fields.items()}
    found |= {f"compat.{key}": one.default for key, one in Compat.model_fields.items()}
    found |= {
        f"compat.groups.{key}": one.default for key, one in GroupSchedule.model_fields.items()
    }
    found |= {"tensor.policy": "fifo", "coordination.policy": "none"}
    found |= {"tensor.servers.colocated": True, "tensor.servers.synchronous": True}
    found |= {"tensor.servers.placement": "in_turn", "tensor.servers.local": "npus"}
    rows = {"tensor": table("tensor_policies"), "coordination": table("coordinations")}
    for of, policies in rows.items():
        for row in policies:
            keys = row["schema"].get("properties", {})
            found |= {
                f"{of}.{key}": one["default"] for key, one in keys.items() if "default" in one
            }
    return found


def keep_to(tool: str, decision: Decision) -> tuple[str, ...]:
    """Refuse what a tool cannot do of a schedule; return what it leaves to others.

    Args:
        tool: Of `FATES`.
        decision: What a scenario has decided.

    Returns:
        Decisions as people write them, such as `schedule.chunks: 8`.

    Raises:
        Inapplicable: It lacks something.
    """
    fates = FATES[tool]
    title = TOOLS[tool].title if tool in TOOLS else "NCCL"
    left = []
    for key, value in decided(decision).items():
        fate = fates.get(key, Fate.REFUSED)
        fate = fate if isinstance(fate, Fate) else fate(decision)
        if fate is Fate.REFUSED:
            raise refused(title, key, value)
        if fate is Fate.LEFT:
            left.append(written(key, value))
    return tuple(left)


def refused(title: str, key: str, value: Any, *, why: str = "", hint: str = "") -> Inapplicable:
    """Return what says that a tool cannot do a decision.

    Args:
        title: The tool, in sentences.
        key: Of the schedule.
        value: What was decided.
        why: What it lacks, where that is not the key itself.
        hint: What to do instead of leaving it out.
    """
    said = f"{title} has no `{written(key, value)}`" + (f" ({why})" if why else "")
    return Inapplicable(said, hint=hint or f"leave `{at(key).removesuffix('.policy')}` out")


def written(key: str, value: Any) -> str:
    """Return a decision as people write it, shortened where it is long.

    Args:
        key: Of the schedule.
        value: What was decided.
    """
    if isinstance(value, Mapping):
        text = "{" + ", ".join(f"{name}: ..." for name in value) + "}"
    elif isinstance(value, (list, tuple)):
        text = "[" + ", ".join(str(one) if isinstance(one, str) else "..." for one in value) + "]"
    else:
        text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{at(key)}: {text}"


def at(key: str) -> str:
    """Return where a key of `schedule_keys` stands in a scenario.

    Args:
        key: As it is there.
    """
    return key if key.startswith("compat.") else f"schedule.{key}"
