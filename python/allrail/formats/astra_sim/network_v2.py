"""Network files of ASTRA-sim 2.x: `.yml` with `topology`, `npus_count`, `bandwidth`, `latency`.

`bandwidth` is in GiB/s (2^30) and `latency` in ns, per link; there is no number of links. A message
on a `Ring` gets `bandwidth` in the one direction that its algorithm uses, a peer of a
`FullyConnected` dimension has a link of `bandwidth`, an NPU one such link to its `Switch`.
"""

from __future__ import annotations

from allrail.base.errors import did_you_mean
from allrail.formats.astra_sim.network import (
    TOPOLOGIES,
    AstraDimension,
    AstraNetwork,
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

KEYS = ("topology", "npus_count", "bandwidth", "latency")


def read_network_v2(tree: dict[str, object], *, source: Source, notes: Notes) -> AstraNetwork:
    """Read the keys of a 2.x network.

    Args:
        tree: The file's keys.
        source: The file.
        notes: Takes what it asks for and is not modelled.

    Raises:
        InputError: Anything in it is wrong.
    """
    check_keys(tree, KEYS, source=source, notes=notes)
    lists = {key: _list(tree, key, source) for key in KEYS}
    count = len(lists["topology"])
    if count == 0:
        raise source.error("it has no dimension", at="topology", hint="write one at least")
    for key, values in lists.items():
        if len(values) != count:
            raise source.error(
                f"it has {len(values)} values, `topology` has {count}",
                at=key,
                value=values,
                hint="write one value per dimension in every list",
            )
    dimensions = tuple(_dimension(i, lists, source) for i in range(count))
    return AstraNetwork(fabric_name(source.file), dimensions, source)


def _list(tree: dict[str, object], key: str, source: Source) -> list[object]:
    if key not in tree:
        raise source.error(
            f"the key `{key}` is missing", hint=f"one value per dimension: `{key}: [...]`"
        )
    value = tree[key]
    return value if isinstance(value, list) else [value]


def _dimension(i: int, lists: dict[str, list[object]], source: Source) -> AstraDimension:
    name = lists["topology"][i]
    if not isinstance(name, str) or name not in TOPOLOGIES:
        raise source.error(
            "it is not a topology of ASTRA-sim's analytical backends",
            at=("topology", i),
            value=name,
            hint=did_you_mean(str(name), TOPOLOGIES, others="it is one of"),
        )
    return AstraDimension(
        topology=TOPOLOGIES[name],
        size=source.count(lists["npus_count"][i], at=("npus_count", i)),
        links=None,
        bandwidth=source.number(
            lists["bandwidth"][i],
            at=("bandwidth", i),
            unit="GiB/s",
            at_least=SMALLEST_BANDWIDTH,
            at_most=LARGEST_BANDWIDTH,
        ),
        link_latency=source.number(
            lists["latency"][i], at=("latency", i), unit="ns", at_least=0, at_most=LONGEST_DELAY
        ),
    )
