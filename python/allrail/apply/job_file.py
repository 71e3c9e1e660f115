"""`allrail.yaml` for the runtime, and the plan that it carries out.

The runtime exchanges gradients of replicas: a layout that cuts the model goes to the tool that cuts
it (`megatron`, `torchtitan`).
"""

from __future__ import annotations

from allrail.apply.decision import Decision, Inapplicable
from allrail.layouts.mapping import block

ABOUT = "`allrail.yaml` and a plan, for `allrail.torch`"

_SCHEDULE = ("policy", "order", "programs", "algorithms", "smallest_chunk")


def files(decision: Decision) -> dict[str, str]:
    """Return the text of files by name.

    Args:
        decision: What a scenario has decided.

    Raises:
        Inapplicable: The runtime cannot do it.
    """
    import json

    from allrail.api import plan
    from allrail.files import yaml_text

    decision.needs("allrail")
    if not decision.dimensions:
        raise Inapplicable("the runtime has dimensions alone, this fabric is no product of them")
    taken = block([int(one["size"]) for one in decision.dimensions], decision.npus)
    if taken is None:
        raise Inapplicable(f"{decision.npus} ranks are no block of the fabric's dimensions")
    if decision.npus == 1:
        raise Inapplicable("one rank exchanges nothing")
    sizes = zip(decision.dimensions, taken, strict=True)
    dimensions = [{**one, "size": size} for one, size in sizes if size > 1]
    schedule = dict(decision.schedule)
    named = schedule.get("algorithms")
    if isinstance(named, (list, tuple)) and len(named) == len(taken):
        pairs = zip(named, taken, strict=True)
        schedule["algorithms"] = [name for name, size in pairs if size > 1]
    kept = {key: schedule[key] for key in _SCHEDULE if schedule.get(key) not in (None, "0 B")}
    kept["chunks"] = schedule["chunks"]
    tensor = decision.tensor
    cuts = decision.reads("partition")
    if cuts:
        partition = tensor.get("partition", "4 MiB")
        kept["tensor"] = {"policy": tensor["policy"], "partition": partition}
    job = {
        "schema_version": 1,
        "fabric": {"name": "job", "dimensions": dimensions},
        "schedule": kept,
        "exchange": "overlap" if cuts else "barrier",
    }
    for key in ("compression", "every"):
        if decision.workload.get(key) not in (None, 1):
            job[key] = decision.workload[key]
    found = {}
    if len(dimensions) > 1:
        job["plan"] = "plan.json"
        size = kept.get("tensor", {}).get("partition", "64 MiB")
        made = plan(
            {
                "schema_version": 1,
                "fabric": job["fabric"],
                "collective": {"kind": "all_reduce", "size": size},
                "schedule": {key: kept[key] for key in kept if key != "tensor"},
            }
        )
        found["plan.json"] = json.dumps(made.to_dict(), indent=1) + "\n"
    head = decision.title() + (
        "# Copy it beside the script that torchrun starts, or name it by ALLRAIL_JOB.\n"
        "# On several hosts add `interfaces` and `secret`.\n"
    )
    return {"allrail.yaml": head + yaml_text(job), **found}
