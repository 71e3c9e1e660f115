"""Network files of ASTRA-sim 1.0: `.json` with one list per property.

`link-bandwidth` is in GiB/s (2^30) and `link-latency` in ns, both per link. What an NPU gets in
all: on a `Ring` the links in pairs, one each way (an odd count loses one, two at least); on
`FullyConnected` an equal whole number of links to every peer; on a `Switch` all of them. A message
waits for its links, for the network card at both ends and for the switch.

Not modelled: memory (`hbm-*`) and the cost model (`dimension-type`, which changes no time).
"""

from __future__ import annotations

from allrail.base.errors import did_you_mean
from allrail.formats.astra_sim.network import (
    TOPOLOGIES,
    AstraDimension,
    AstraNetwork,
    Topology,
    check_keys,
    fabric_name,
)
from allrail.scenario.astra_sim.notes import Notes
from allrail.scenario.astra_sim.source import (
    LARGEST_BANDWIDTH,
    LONGEST_DELAY,
    SMALLEST_BANDWIDTH,
    Source,
)

LISTS = ("topologies-per-dim", "units-count", "links-count", "link-bandwidth", "link-latency")
DELAYS = ("nic-latency", "router-latency")
MEMORY = ("hbm-latency", "hbm-scale", "hbm-bandwidth")
SILENT = ("dimensions-count", "topology-name", "dimension-type", "use-fast-version")
KEYS = (*LISTS, *DELAYS, *MEMORY, *SILENT)


def read_network_v1(tree: dict[str, object], *, source: Source, notes: Notes) -> AstraNetwork:
    """Read the keys of a 1.0 network.

    Args:
        tree: The file's keys.
        source: The file.
        notes: Takes what it asks for and is not modelled.

    Raises:
        InputError: Anything in it is wrong.
    """
    _check_keys(tree, source, notes)
    lists = {key: _list(tree, key, source) for key in LISTS}
    count = _dimension_count(tree, lists, source)
    delays = {key: _numbers(tree, key, count, source) for key in DELAYS}
    memory = {key: _numbers(tree, key, count, source) for key in MEMORY}
    for key in ("hbm-latency", "hbm-scale"):
        if any(memory[key]):
            notes.add(key, "memory behind the network")
    dimensions = tuple(_dimension(i, lists, delays, source) for i in range(count))
    return AstraNetwork(fabric_name(source.file), dimensions, source)


def _check_keys(tree: dict[str, object], source: Source, notes: Notes) -> None:
    if tree.get("topology-name", "Hierarchical") != "Hierarchical":
        raise source.error(
            "only networks described dimension by dimension are read",
            at="topology-name",
            value=tree["topology-name"],
            hint="write `Hierarchical` and list each dimension in `topologies-per-dim`",
        )
    check_keys(tree, KEYS, source=source, notes=notes)


def _list(tree: dict[str, object], key: str, source: Source) -> list[object]:
    if key not in tree:
        raise source.error(
            f"the key `{key}` is missing", hint=f"one value per dimension: `{key}`: [...]"
        )
    value = tree[key]
    if not isinstance(value, list):
        raise source.error(
            "it is not a list", at=key, value=value, hint="write one value per dimension in [ ]"
        )
    return value


def _dimension_count(
    tree: dict[str, object], lists: dict[str, list[object]], source: Source
) -> int:
    if "dimensions-count" in tree:
        count = source.count(tree["dimensions-count"], at="dimensions-count", at_most=6)
        origin = "`dimensions-count`"
    else:
        count = len(lists["topologies-per-dim"])
        origin = "the number of `topologies-per-dim`"
    for key, values in lists.items():
        if len(values) != count:
            raise source.error(
                f"it has {len(values)} values, but {origin} is {count}",
                at=key,
                value=values,
                hint="write one value per dimension in every list",
            )
    if count == 0:
        raise source.error(
            "it has no dimension", at="topologies-per-dim", hint="write one at least"
        )
    return count


def _numbers(tree: dict[str, object], key: str, count: int, source: Source) -> list[float]:
    """The values of an optional list of delays or scales; zeros where it is missing."""
    if key not in tree:
        return [0.0] * count
    values = _list(tree, key, source)
    if len(values) != count:
        raise source.error(
            f"it has {len(values)} values for {count} dimensions",
            at=key,
            value=values,
            hint="write one value per dimension",
        )
    return [
        source.number(value, at=(key, i), unit="ns", at_least=0, at_most=LONGEST_DELAY)
        for i, value in enumerate(values)
    ]


def _dimension(
    i: int, lists: dict[str, list[object]], delays: dict[str, list[float]], source: Source
) -> AstraDimension:
    topology = _topology(lists["topologies-per-dim"][i], i, source)
    size = source.count(lists["units-count"][i], at=("units-count", i))
    links = source.count(lists["links-count"][i], at=("links-count", i))
    if topology is Topology.RING:
        links = max(2, links - links % 2)
    elif topology is Topology.FULLY_CONNECTED and size > 1:
        if links < size - 1:
            raise source.error(
                f"a fully connected dimension of {size} has {size - 1} peers, a link each",
                at=("links-count", i),
                value=links,
                hint=f"write {size - 1} or a multiple of it",
            )
        links -= links % (size - 1)
    router = delays["router-latency"][i] if topology is Topology.SWITCH else 0.0
    return AstraDimension(
        topology=topology,
        size=size,
        links=links,
        bandwidth=source.number(
            lists["link-bandwidth"][i],
            at=("link-bandwidth", i),
            unit="GiB/s",
            at_least=SMALLEST_BANDWIDTH,
            at_most=LARGEST_BANDWIDTH,
        ),
        link_latency=source.number(
            lists["link-latency"][i],
            at=("link-latency", i),
            unit="ns",
            at_least=0,
            at_most=LONGEST_DELAY,
        ),
        other_latency=router,
        message_latency=2 * delays["nic-latency"][i],
    )


def _topology(name: object, i: int, source: Source) -> Topology:
    if isinstance(name, str) and name in TOPOLOGIES:
        return TOPOLOGIES[name]
    raise source.error(
        "it is not a topology of ASTRA-sim's analytical backend",
        at=("topologies-per-dim", i),
        value=name,
        hint=did_you_mean(str(name), TOPOLOGIES, others="it is one of"),
    )
