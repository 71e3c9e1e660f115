"""An ASTRA-sim run (network, system, workload, options) as a scenario of ours.

What changes its form on the way:

- An all-gather's bytes are what each NPU puts in; ours are the whole gathered buffer.
- A chunk has `floor(bytes / preferred-dataset-splits)` bytes, and one the rest (`compat.cut:
  rest`).
- `localBWAware` with the baseline scheduler all-reduces on the last dimension in one stage
  (`composition: merged`), with Themis it scatters and gathers there too (`stages`); without it,
  every dimension does a full all-reduce (`sequential`).
- ASTRA-sim's Themis starts its load tracker at zero and schedules no all-to-all.
- A dimension of one NPU does nothing and is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allrail.base.errors import InputError
from allrail.base.stdin import stem
from allrail.formats.astra_sim import traces, training
from allrail.formats.astra_sim.dimensions import dimension_of, implementations_of
from allrail.formats.astra_sim.implementations import (
    ONE_TREE,
    Implementation,
    is_staged,
    of_kind,
    operations_of,
    window_of,
)
from allrail.formats.astra_sim.micro import AstraCollective, micro
from allrail.formats.astra_sim.network import AstraDimension, AstraNetwork
from allrail.formats.astra_sim.read_network import read_network
from allrail.formats.astra_sim.remote_memory import read_remote_memory
from allrail.formats.astra_sim.system import IMPLEMENTATION_KEYS, AstraSystem, read_system
from allrail.scenario.astra_sim.layers import LARGEST_SIZE
from allrail.scenario.astra_sim.notes import Notes
from allrail.scenario.astra_sim.source import plain, times
from allrail.scenario.astra_sim.workload import AstraWorkload, read_workload

LARGEST_CHUNKS = 1_000_000
LARGEST_PASSES = 10_000


@dataclass(frozen=True, slots=True)
class AstraCase:
    """One run as ASTRA-sim's files and options describe it.

    Attributes:
        name: The network's and the workload's names, for tables.
        scenario: The resolved scenario.
        warning: What the files ask for and is not modelled, in one sentence; None if nothing.
        update_time: What ASTRA-sim adds after the last collective of `MICRO`, ns.
        passes: How often a training loop runs; 0 for `MICRO`.
        compute_ns: How long one pass computes, ns.
    """

    name: str
    scenario: dict[str, Any]
    warning: str | None
    update_time: int
    passes: int = 0
    compute_ns: int = 0


def read_case(
    network: str | Path,
    *,
    system: str | Path,
    workload: str | Path,
    comm_scale: float = 1.0,
    compute_scale: float = 1.0,
    num_passes: int = 1,
    comm_group: str | Path | None = None,
    remote_memory: str | Path | None = None,
    network_model: str = "dims",
) -> AstraCase:
    """Read one ASTRA-sim run.

    Args:
        network: Its network file, of 1.0 or 2.x.
        system: Its system file, of 1.0 or 2.x.
        workload: Its workload file of layers, or what the names of its trace's files begin with.
        comm_scale: Multiplies the bytes of collectives.
        compute_scale: Multiplies compute times; `MICRO` has none.
        num_passes: How often the workload runs.
        comm_group: The process groups of a trace; without it, it names none.
        remote_memory: What a 2.x case says of remote memory, which is not modelled.
        network_model: `dims` for the congestion-unaware backend, `links` for the congestion-
            aware one.

    Raises:
        InputError: A file or an option is wrong.
    """
    _check_scale("--comm-scale", comm_scale)
    _check_scale("--compute-scale", compute_scale)
    if not 1 <= num_passes <= LARGEST_PASSES:
        raise InputError(
            f"it is outside 1 to {LARGEST_PASSES}",
            field="--num-passes",
            value=str(num_passes),
            hint="write a whole number of passes",
        )
    notes = Notes()
    net = read_network(network, notes=notes)
    sys = read_system(system, notes=notes)
    if remote_memory is not None:
        read_remote_memory(remote_memory, notes=notes)
    scales = {"comm_scale": comm_scale, "compute_scale": compute_scale}
    if traces.is_prefix(workload):
        prefix = Path(workload)
        model = traces.workload(prefix, comm_group, num_passes=num_passes, sys=sys, **scales)
        carried = traces.carried(net, sys, prefix, comm_group, network_model)
        scenario = traces.scenario(
            net, sys, network_model=carried, aware=network_model == "links", notes=notes
        )
        scenario["workload"] = model
        return AstraCase(
            f"{net.name}-{prefix.name}", scenario, notes.warning(), 0, passes=num_passes
        )
    if comm_group is not None and Path(workload).is_file():
        raise InputError(
            "layers name no process groups",
            field="--comm-group",
            value=str(comm_group),
            hint="leave it out, or run a Chakra trace: the files' path without `.<rank>.et`",
        )
    return _of_layers(net, sys, Path(workload), num_passes, network_model, notes, **scales)


def _of_layers(
    net: AstraNetwork,
    sys: AstraSystem,
    path: Path,
    num_passes: int,
    network_model: str,
    notes: Notes,
    *,
    comm_scale: float,
    compute_scale: float,
) -> AstraCase:
    """The case of a workload file of layers."""
    if sys.customs:
        raise sys.source.error(
            "collectives that are traces of their own replace nodes of a trace; this one is layers",
            at=", ".join(sys.customs),
            hint="leave it out, and name an implementation such as `ring`",
        )
    file = read_workload(path, notes=notes)
    name = f"{net.name}-{stem(path)}"
    if file.header.loop == "MICRO":
        work = micro(file, notes=notes)
        carried = _carried(sys, (work.kind,), network_model)
        scenario = _collective(
            net, sys, work, comm_scale, num_passes, carried, network_model == "links", notes
        )
        return AstraCase(name, scenario, notes.warning(), work.update_time)
    scales = {"comm_scale": comm_scale, "compute_scale": compute_scale}
    carried = _carried(sys, training.kinds(file), network_model)
    scenario = _training(net, sys, file, carried, network_model == "links", notes) | {
        "workload": training.workload(file, name=stem(path), num_passes=num_passes, **scales)
    }
    training.check_sizes(file, sys, comm_scale=comm_scale, npus=net.npus)
    compute = training.compute_ns(file, compute_scale=compute_scale)
    return AstraCase(name, scenario, notes.warning(), 0, passes=num_passes, compute_ns=compute)


def _collective(
    net: AstraNetwork,
    sys: AstraSystem,
    work: AstraCollective,
    comm_scale: float,
    num_passes: int,
    network_model: str,
    aware: bool,  # noqa: FBT001
    notes: Notes,
) -> dict[str, Any]:
    """The scenario of a collective on its own."""
    by_loads = sys.by_loads and work.kind != "all_to_all"
    composition = _composition(sys, work.kind)
    implementations = implementations_of(net, sys, work.kind)
    used = {work.kind: implementations}
    algorithms, dimensions = _dimensions(net, sys, used, composition, network_model, aware)
    size = _size(work, net, comm_scale)
    return {
        "schema_version": 1,
        "fabric": {"name": net.name, "dimensions": dimensions}
        | window_of(_on(net, used), npus=net.npus, network_model=network_model, notes=notes),
        "collective": [
            {
                "name": work.layer if num_passes == 1 else f"{work.layer}, pass {i + 1}",
                "kind": work.kind,
                "size": f"{size} B",
                "start": "0 ns",
                "dimensions": None,
            }
            for i in range(num_passes)
        ],
        "schedule": _schedule(sys, _chunks(work, sys, comm_scale), network_model)
        | {
            "policy": "baseline" if sys.by_loads and not by_loads else sys.policy,
            "algorithms": algorithms[work.kind],
            "composition": composition,
        },
        "compat": _compat(by_loads=by_loads),
        "network_model": network_model,
        "seed": 0,
    }


def _training(
    net: AstraNetwork,
    sys: AstraSystem,
    file: AstraWorkload,
    network_model: str,
    aware: bool,  # noqa: FBT001
    notes: Notes,
) -> dict[str, Any]:
    """The scenario of a training loop, without its workload."""
    used = training.kinds(file)
    implementations = {kind: implementations_of(net, sys, kind) for kind in used}
    cut_net, cut = training.broken(net, file, notes=notes)
    if cut >= 0:
        implementations = {
            kind: (*names[: cut + 1], *names[cut:]) for kind, names in implementations.items()
        }
    composition = _composition(sys, "all_reduce")
    algorithms, dimensions = _dimensions(
        cut_net, sys, implementations, composition, network_model, aware
    )
    return {
        "schema_version": 1,
        "fabric": {"name": net.name, "dimensions": dimensions}
        | window_of(
            _on(cut_net, implementations), npus=net.npus, network_model=network_model, notes=notes
        ),
        "schedule": _schedule(sys, sys.splits, network_model)
        | {
            "policy": sys.policy,
            "algorithms": None,
            "algorithms_by_operation": algorithms,
            "composition": composition,
            # A layer's forward pass waits for its own gradient only.
            "tensor": {"policy": "fifo", "barrier": False},
        },
        # A dimension has one queue for all.
        "compat": _compat(by_loads=sys.by_loads) | {"communicators": "queue"},
        "network_model": network_model,
        "seed": 0,
    }


def _carried(sys: AstraSystem, kinds: tuple[str, ...], network_model: str) -> str:
    """The network model of ours: what `dims` does not count as they do is simulated as messages."""
    names = [name for kind in kinds for name in sys.implementations.get(kind, ())]
    return network_model if all(is_staged(name.algorithm) for name in names) else "links"


def _schedule(sys: AstraSystem, chunks: int, network_model: str) -> dict[str, Any]:
    """What the system file says for every collective."""
    # The rules of one queue; in `links` every rank has its own, and they may block each other.
    sizes = "smallest_first" if network_model == "links" else "astra_sim"
    return {
        "policy": sys.policy,
        "order": sizes if sys.by_size else sys.order,
        "chunks": chunks,
        "threshold": sys.threshold,
        "active_chunks": sys.active_chunks,
        "endpoint_delay": f"{plain(sys.endpoint_delay, decimals=3)} ns",
        "algorithms": None,
        "collective_order": sys.collective_order,
        "composition": "stages",
    }


def _compat(*, by_loads: bool) -> dict[str, Any]:
    """Rules that no other system has."""
    return {"cut": "rest", "loads": "zero" if by_loads else "fixed_delay"}


def _dimensions(
    net: AstraNetwork,
    sys: AstraSystem,
    implementations: dict[str, tuple[Implementation, ...]],
    composition: str,
    network_model: str,
    aware: bool,  # noqa: FBT001
) -> tuple[dict[str, list[str]], list[dict[str, Any]]]:
    """The algorithms of each kind of collective, and the dimensions of more than one NPU."""
    kept = [i for i, dimension in enumerate(net.dimensions) if dimension.size > 1]
    if not kept:
        raise net.source.error(
            "no dimension has more than one NPU: there is nobody to talk to",
            hint="give a dimension 2 NPUs at least",
        )
    algorithms: dict[str, list[str]] = {kind: [] for kind in implementations}
    dimensions = []
    for i in kept:
        forms = []
        for kind, names in implementations.items():
            algorithm, dimension = dimension_of(
                net.dimensions[i], names[i], network_model=network_model, aware=aware
            )
            composed = composition if kind == "all_reduce" else "stages"
            _check_algorithm(i, i == kept[-1], names[i], composed, kind, sys)
            algorithms[kind].append(ONE_TREE.get(algorithm, of_kind(algorithm, kind)))
            forms.append(dimension)
        if any(form != forms[0] for form in forms):
            raise sys.source.error(
                f"its algorithms count the links of dimension {i + 1} in two ways, and a training "
                "loop needs one",
                at=IMPLEMENTATION_KEYS[next(iter(implementations))],
                hint="use `ring`, `direct` or `halvingDoubling` for every kind of collective",
            )
        plain_form = Implementation("direct", "direct", whole=False)
        unused = dimension_of(
            net.dimensions[i], plain_form, network_model=network_model, aware=aware
        )[1]
        dimensions.append(forms[0] if forms else unused)
    return algorithms, dimensions


def _check_scale(option: str, scale: float) -> None:
    if not math.isfinite(scale) or scale <= 0:
        raise InputError(
            "it is not a positive number", field=option, value=f"{scale:g}", hint="1 is no change"
        )


def _on(
    net: AstraNetwork, implementations: dict[str, tuple[Implementation, ...]]
) -> list[tuple[Implementation, AstraDimension]]:
    """What runs where, on dimensions of more than one NPU."""
    return [
        (name, dimension)
        for names in implementations.values()
        for name, dimension in zip(names, net.dimensions, strict=True)
        if dimension.size > 1
    ]


def _composition(sys: AstraSystem, kind: str) -> str:
    if kind != "all_reduce":
        return "stages"
    if not sys.local_bw_aware:
        return "sequential"
    return "stages" if sys.apart else "merged"


def _check_algorithm(
    i: int,
    last: bool,  # noqa: FBT001
    implementation: Implementation,
    composition: str,
    kind: str,
    sys: AstraSystem,
) -> None:
    """Refuse what ASTRA-sim cannot run either, where the file can still be named."""
    at = (IMPLEMENTATION_KEYS[kind], i)
    operations = operations_of(implementation.algorithm)
    if kind == "all_to_all" and kind not in operations:
        raise sys.source.error(
            "it does no all-to-all",
            at=at,
            value=implementation.name,
            hint="use `direct` or `ring`",
        )
    whole = kind == "all_reduce" and (
        composition == "sequential" or (composition == "merged" and last)
    )
    if "reduce_scatter" not in operations and not whole:
        raise sys.source.error(
            "it does only whole all-reduces, and this dimension has to reduce-scatter or "
            "all-gather",
            at=at,
            value=implementation.name,
            hint="use `ring`, `direct` or `halvingDoubling`",
        )


def _scaled(work: AstraCollective, comm_scale: float) -> int:
    scaled = times(work.size, comm_scale)
    if not 1 <= scaled <= LARGEST_SIZE:
        raise work.source.error(
            f"with `--comm-scale {comm_scale:g}` it is outside 1 B to 1 PiB",
            at="weight-gradient bytes",
            line=work.size_line,
            value=work.size,
            hint="scale it otherwise",
        )
    return int(scaled)


def _size(work: AstraCollective, net: AstraNetwork, comm_scale: float) -> int:
    """The collective's bytes as ours count them."""
    scaled = _scaled(work, comm_scale)
    if work.kind != "all_gather":
        return scaled
    gathered = scaled * net.npus
    if gathered > LARGEST_SIZE:
        raise work.source.error(
            f"{net.npus} NPUs gather {gathered} B, more than 1 PiB",
            at="weight-gradient bytes",
            line=work.size_line,
            value=work.size,
            hint="gather less",
        )
    return gathered


def _chunks(work: AstraCollective, sys: AstraSystem, comm_scale: float) -> int:
    size = _scaled(work, comm_scale)
    chunk = size // sys.splits
    if chunk == 0:
        raise sys.source.error(
            f"a collective of {size} B has no {sys.splits} chunks",
            at="preferred-dataset-splits",
            value=sys.splits,
            hint=f"{size} at most",
        )
    chunks = -(-size // chunk)
    if chunks > LARGEST_CHUNKS:
        raise sys.source.error(
            f"it makes {chunks} chunks",
            at="preferred-dataset-splits",
            value=sys.splits,
            hint=f"{LARGEST_CHUNKS} at most; 64 is usual",
        )
    return sys.splits
