"""`allrail.yaml` for the runtime, and the plan that it carries out.

The runtime exchanges gradients of replicas: a layout that cuts the model goes to the tool that cuts
it (`megatron`, `torchtitan`). What becomes of the keys of `schedule` is in `keys.py`: here they
become keys of the job file, or an answer that says which one the runtime has not.
"""

from __future__ import annotations

import json
from typing import Any

from allrail.base.errors import InputError
from allrail.base.files import yaml_text
from allrail.runtime.job import OWN_TO_GROUPS, find_job
from allrail.scenario.fields import table
from allrail.search.layouts.mapping import block
from allrail.simulation.api import plan
from allrail.targets.decision import Decision, Inapplicable
from allrail.targets.keys import decided, keep_to, refused, written
from allrail.targets.ranking import ranked

ABOUT = "`allrail.yaml` and a plan, for `allrail.torch`"

_TITLE = "the runtime"
_SCHEDULE = ("policy", "order", "programs", "smallest_chunk", "threshold", "send_ahead")
_SERVERS = "parameter_server"
_USUAL_CHUNKS = 64


def files(decision: Decision) -> dict[str, str]:
    """Return the text of files by name.

    Args:
        decision: What a scenario has decided.

    Raises:
        Inapplicable: The runtime cannot do it.
    """
    return _made(decision)


def check(decision: Decision) -> None:
    """Refuse what the runtime cannot do, of a schedule too.

    Args:
        decision: What a scenario has decided.

    Raises:
        Inapplicable: The runtime cannot do it.
    """
    _made(decision)


def _made(decision: Decision) -> dict[str, str]:
    decision.needs("allrail")
    if not decision.dimensions:
        raise Inapplicable("the runtime has dimensions alone, this fabric is no product of them")
    taken = block([int(one["size"]) for one in decision.dimensions], decision.npus)
    if taken is None:
        raise Inapplicable(f"{decision.npus} ranks are no block of the fabric's dimensions")
    if decision.npus == 1:
        raise Inapplicable("one rank exchanges nothing")
    keep_to("allrail", decision)
    rows = _rows(decision)
    order = ranked(decision, _TITLE)
    sizes = zip(decision.dimensions, taken, strict=True)
    dimensions = [{**one, "size": size} for one, size in sizes if size > 1]
    job = {
        "schema_version": 1,
        "fabric": {"name": "job", "dimensions": dimensions},
        **_asked(decision, taken),
    }
    if order is not None:
        job["schedule"]["tensor"]["partition"] = order.partition
    for key in ("compression", "every"):
        if decision.workload.get(key) not in (None, 1):
            job[key] = decision.workload[key]
    planned = {key: job["schedule"][key] for key in job["schedule"] if key not in _OF_JOBS}
    size = job["schedule"].get("tensor", {}).get("partition", "64 MiB")
    plugin = order.plugin if order is not None else None
    try:
        _read(job, decision.npus, ranks_itself=plugin is not None)
        made = plan(
            {
                "schema_version": 1,
                "fabric": job["fabric"],
                "collective": {"kind": "all_reduce", "size": size},
                "schedule": planned,
            }
        )
    except InputError as error:
        why = f"{_TITLE} does not take it: `{error.field}`: {error.why}"
        raise Inapplicable(why, hint=error.hint or "leave it out") from None
    found = {}
    if len(dimensions) > 1:
        job["plan"] = "plan.json"
        found["plan.json"] = json.dumps(made.to_dict(), indent=1) + "\n"
    if plugin is not None:
        job["schedule"]["tensor"]["plugin"], text = plugin
        found[plugin[0]] = text
    head = decision.title() + (
        "# Copy it beside the script that torchrun starts, or name it by ALLRAIL_JOB.\n"
        "# On several hosts add `interfaces` and `secret`.\n"
    )
    if rows:
        head += f"# Gradients of {', '.join(rows)} travel as rows: in the script these are\n"
        head += '# `nn.Embedding(..., sparse=True)`, under `schedule(..., sparse="gather")`.\n'
    return {"allrail.yaml": head + yaml_text(job), **found}


_OF_JOBS = ("tensor", "coordination", "send_ahead")
"""Keys of a job's schedule that make no plan."""


def _rows(decision: Decision) -> list[str]:
    """The tables whose gradients travel as rows, which a script says to the runtime."""
    said = decision.workload.get("sparse") or ()
    for one in said:
        if one["exchange"] == "auto":
            why = f"how the gradient of `{one['table']}` travels is left open (`exchange: auto`)"
            hint = "write `exchange: rows` or `dense`: `allrail simulate` says which is quicker"
            raise Inapplicable(why, hint=hint)
    rows = [one["table"] for one in said if one["exchange"] == "rows"]
    for key in ("exchange", "backup_workers"):
        if rows and f"tensor.{key}" in (done := decided(decision)):
            value = written(f"tensor.{key}", done[f"tensor.{key}"])
            why = f"{_TITLE} gathers the rows of `{rows[0]}` from all ranks: no `{value}`"
            raise Inapplicable(why, hint=f"write `exchange: dense`, or leave `{value}` out")
    return rows


def _asked(decision: Decision, taken: tuple[int, ...]) -> dict[str, Any]:
    """The keys `schedule`, `exchange` and `transport` of the job."""
    said = decided(decision)
    schedule = {key: decision.schedule[key] for key in _SCHEDULE if key in said}
    schedule |= {"policy": decision.schedule["policy"], "order": decision.schedule["order"]}
    schedule["chunks"] = decision.schedule.get("chunks", _USUAL_CHUNKS)
    if "chunks" in said:
        # A job cuts nothing below 1 MiB by itself.
        schedule.setdefault("smallest_chunk", "0 B")
    if named := _algorithms(decision, said, taken):
        schedule["algorithms"] = named
    if "tensor.backup_workers" in said:
        _check_backup(said)
        return {"schedule": schedule, "backup_workers": said["tensor.backup_workers"]}
    tensor, exchange = _tensor(decision)
    asked: dict[str, Any] = {"schedule": schedule, "exchange": exchange}
    if key := _one_order(decision):
        _check_one_order(said, key, taken)
        schedule.pop("algorithms", None)
        if key != "order":
            del schedule["order"]
        asked["transport"] = "c10d"
        exchange = asked["exchange"] = "overlap"
        tensor = {"policy": decision.tensor["policy"], **tensor}
        if "partition" not in tensor:
            tensor["pack"] = "0 B"  # ranks agree on gradients, one by one
        if decision.has_barrier:
            tensor["barrier"] = True
    if tensor:
        schedule["tensor"] = tensor
    if coordination := _coordination(decision):
        schedule["coordination"] = coordination
    return asked


def _check_backup(said: dict[str, Any]) -> None:
    """Refuse what steps that do not wait for all ranks do not do."""
    kept = ("tensor.backup_workers", "tensor.start_overhead", "tensor.partition_overhead")
    for key, value in said.items():
        if key.startswith(("tensor.", "coordination.")) and key not in kept:
            why = "with `backup_workers` gradients travel whole after the backward pass"
            hint = f"leave `schedule.{key.removesuffix('.policy')}` out, or `backup_workers`"
            raise refused(_TITLE, key, value, why=why, hint=hint)


def _tensor(decision: Decision) -> tuple[dict[str, Any], str]:
    """The keys `schedule.tensor` and `exchange`."""
    said, policy = decision.tensor, decision.tensor_policy
    own = {key: said[key] for key in policy["reads"] if key in said}
    tensor = {"policy": said["policy"], **own}
    if policy["partition"]:
        tensor.setdefault("partition", policy["partition"])
    elif own or policy["reads"]:
        tensor["pack"] = "0 B"  # it packs by itself
    elif decision.has_barrier:
        return {}, "barrier"
    if decision.has_barrier:
        tensor["barrier"] = True
    return tensor, "overlap"


def _one_order(decision: Decision) -> str:
    """The key of the schedule that takes ranks which agree on one order; empty if none does."""
    orders = {row["name"] for row in table("orders") if row["one_order"]}
    asked = {
        "coordination.policy": "coordination.policy" in decided(decision),
        "order": decision.schedule["order"] in orders,
        "tensor.policy": decision.tensor_policy["one_order"],
        "tensor.credit": "credit" in decision.tensor,
    }
    return next((key for key, is_so in asked.items() if is_so), "")


def _check_one_order(said: dict[str, Any], reason: str, taken: tuple[int, ...]) -> None:
    """Refuse what process groups of torch.distributed do in their own way."""
    keys: tuple[str, ...] = OWN_TO_GROUPS
    if sum(size > 1 for size in taken) == 1:
        keys += ("chunks", "smallest_chunk")  # pieces go whole there
    for key in keys:
        if key in said and key != reason and said[key] != "auto":
            why = (
                f"with `{written(reason, said[reason])}`, which process groups carry, theirs holds"
            )
            hint = f"leave `schedule.{key}` or `schedule.{reason}` out"
            raise refused(_TITLE, key, said[key], why=why, hint=hint)


def _algorithms(decision: Decision, said: dict[str, Any], taken: tuple[int, ...]) -> Any:
    """What `schedule.algorithms` is; None for the usual ones."""
    named, key = said.get("algorithms"), "algorithms"
    by_operation = dict(said.get("algorithms_by_operation", {}))
    if "all_reduce" in by_operation:
        named, key = by_operation.pop("all_reduce"), "algorithms_by_operation"
    if by_operation:
        why = "gradients are all-reduced there"
        raise refused(_TITLE, "algorithms_by_operation", by_operation, why=why)
    if isinstance(named, (list, tuple)):
        named = [name for name, size in zip(named, taken, strict=True) if size > 1]
    if "tensor.exchange" not in said:
        return named
    _check_servers(decision, said, taken)
    if named:
        why = "servers are the algorithm `parameter_server` there"
        raise refused(_TITLE, key, said[key], why=why)
    return [_SERVERS]


def _check_servers(decision: Decision, said: dict[str, Any], taken: tuple[int, ...]) -> None:
    """Refuse servers other than those of the algorithm: each rank owns pieces in its turn."""
    value = said["tensor.exchange"]
    reason = _one_order(decision)
    if reason:
        why = f"with `{written(reason, said[reason])}`, which process groups carry"
        hint = f"leave `schedule.tensor.exchange` or `schedule.{reason}` out"
        raise refused(_TITLE, "tensor.exchange", value, why=why, hint=hint)
    if sum(size > 1 for size in taken) > 1:
        raise refused(_TITLE, "tensor.exchange", value, why="over several dimensions")
    if not decision.tensor_policy["partition"]:
        why = "a server is given pieces, and this policy cuts none"
        hint = "leave it out, or write `schedule.tensor.policy: bytescheduler`"
        raise refused(_TITLE, "tensor.exchange", value, why=why, hint=hint)
    for key in ("count", "colocated", "big_array", "placement", "local", "synchronous"):
        name = f"tensor.servers.{key}"
        if name in said and not (key == "count" and said[name] == decision.npus):
            raise refused(_TITLE, name, said[name], why="every rank is a server of whole pieces")


def _coordination(decision: Decision) -> dict[str, Any]:
    """The key `schedule.coordination`; empty where ranks need not talk."""
    if "coordination.policy" not in decided(decision):
        return {}
    keys = dict(decision.schedule["coordination"])
    groups = keys.get("groups")
    if groups is not None and not isinstance(groups, int):
        why = "its names are those of the simulated model"
        hint = "write how many groups there are, such as `groups: 4`"
        raise refused(_TITLE, "coordination.groups", groups, why=why, hint=hint)
    return {key: one for key, one in keys.items() if key not in ("latency", "skew")}


def _read(job: dict[str, Any], ranks: int, *, ranks_itself: bool) -> None:
    """Have the runtime read the job, as a rank would.

    Args:
        job: What the file says.
        ranks: How many there are.
        ranks_itself: Whether its tensor scheduler is in a file that is not written yet: all else is
            as with the runtime's own.

    Raises:
        InputError: It refuses something.
    """
    if ranks_itself:
        schedule = job["schedule"]
        tensor = {key: one for key, one in schedule["tensor"].items() if key != "policy"}
        job = {**job, "schedule": {**schedule, "tensor": tensor}}
    find_job(job).settings(rank=0, ranks=ranks)
