"""InfraGraph's YAML (Keysight, infragraph.dev) as a graph fabric.

`infragraph_writer.py` is the other way.

A file has `devices` (components, and edges between them), `instances` of devices, and `edges`
between instances. Expanded, every component of every instance is a node, `host.0.xpu.3`, and every
edge a cable; these are the nodes and edges that InfraGraph's own service makes. Here a component of
the type `xpu` is an NPU, and all others carry messages on: NICs, ports, PCIe switches, CPUs. A
link's rate and latency are those of its `physical`; what a file leaves out, the fabric's own `link`
says.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from allrail.base.errors import InputError, show
from allrail.scenario.places import Path, Places, show_path

_RATES = {
    "gigabits_per_second": (1, "Gb/s"),
    "gigabytes_per_second": (1, "GB/s"),
}
_TIMES = {"ms": "ms", "us": "us", "ns": "ns"}
_ELEMENT = re.compile(r"^([^\[\].]+)(?:\[([^\]]*)\])?$")
_MOST_NODES = 65_536
_MOST_EDGES = 1 << 20


def is_infragraph(tree: Mapping[str, Any]) -> bool:
    """Whether a file's keys are those of an InfraGraph infrastructure."""
    return "devices" in tree and "instances" in tree


def lookalike(tree: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what a file is that belongs to InfraGraph and is no infrastructure, and what to do.

    Args:
        tree: The file as plain values.

    Returns:
        None where it is something else.
    """
    inner = tree.get("infrastructure")
    whole = inner if isinstance(inner, Mapping) else tree
    devices = whole.get("devices", whole.get("device"))
    own = [one for one in devices if isinstance(one, Mapping)] if isinstance(devices, list) else []
    joined = any("connections" in one for one in (whole, *own))
    if joined and (own or "instances" in whole):
        return (
            "InfraGraph before its version 0.4 joins ends by `connections`",
            "write each as an edge, `{ep1: ..., ep2: ..., link: ...}`: InfraGraph's blueprints do",
        )
    if inner is whole and (own or "instances" in whole):
        return "`infrastructure` stands around it", "take that key away, and what it holds in"
    if own and not whole.get("instances"):
        return (
            "it has InfraGraph's devices and no `instances` of them",
            "add `instances: [{name: host, device: ..., count: 1}]`, and `edges` between them",
        )
    return None


class Infrastructure:
    """An infrastructure, expanded into nodes and edges."""

    def __init__(self, tree: Mapping[str, Any], places: Places) -> None:
        """Read an infrastructure.

        Args:
            tree: The file as plain values.
            places: Where they were written.

        Raises:
            InputError: It names what is not there, or has what is not known.
        """
        self._places = places
        self._devices = {
            self._name(one, ("devices", i)): (one, ("devices", i))
            for i, one in enumerate(self._list(tree, "devices", ()))
        }
        self._links = self._named_links(tree, ())
        self._rateless: dict[str, Path] = {}
        self.nodes: dict[str, str] = {}
        self.edges: dict[tuple[str, str], dict[str, str]] = {}
        self._counts: dict[str, tuple[str, int]] = {}
        for i, one in enumerate(self._list(tree, "instances", ())):
            self._instance(one, ("instances", i))
        for i, one in enumerate(self._list(tree, "edges", ())):
            path: Path = ("edges", i)
            ends = [self._outer(one, end, path) for end in ("ep1", "ep2")]
            self._join(one, ends, "", self._links, path)

    def graph(self) -> dict[str, Any]:
        """Return the keys of `topology: graph`."""
        npus = [name for name, kind in self.nodes.items() if kind == "xpu"]
        if not npus:
            raise self._refuse(
                "no component is an `xpu`", "an accelerator has `choice: xpu`", ("devices",), ""
            )
        return {
            "npus": npus,
            "switches": [name for name, kind in self.nodes.items() if kind != "xpu"],
            "links": [{"from": a, "to": b, **said} for (a, b), said in self.edges.items()],
        }

    def check_rates(self) -> None:
        """Refuse links without a bandwidth.

        Raises:
            InputError: There are some.
        """
        for link, path in self._rateless.items():
            raise self._refuse(
                "this link has no bandwidth",
                "give it `physical: {bandwidth: {gigabits_per_second: 400}}` in the file, or give "
                "all such links one by `link: {bandwidth: 400 Gb/s}` beside `file`",
                path,
                link,
            )

    def _refuse(self, why: str, hint: str, path: Path, value: object) -> InputError:
        place = self._places.of(path)
        return InputError(
            why,
            hint=hint,
            source=place.source,
            line=place.line,
            field=show_path(path),
            value=show(value),
        )

    def _list(self, tree: Mapping[str, Any], key: str, path: Path) -> list[Any]:
        value = tree.get(key) or []
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise self._refuse("it is not a list of mappings", "`- name: ...`", (*path, key), value)
        return value

    def _name(self, one: Mapping[str, Any], path: Path) -> str:
        name = one.get("name")
        if not isinstance(name, str) or not name or "." in name:
            raise self._refuse("it has no name", "give it a `name`", path, name)
        return name

    def _named_links(self, tree: Mapping[str, Any], path: Path) -> dict[str, dict[str, str]]:
        found = {}
        for i, one in enumerate(self._list(tree, "links", path)):
            at = (*path, "links", i)
            found[self._name(one, at)] = self._physical(
                one.get("physical") or {}, (*at, "physical")
            )
        return found

    def _physical(self, physical: Any, path: Path) -> dict[str, str]:
        if not isinstance(physical, dict):
            raise self._refuse("it is not a mapping", "`bandwidth`, `latency`", path, physical)
        said = {}
        rate = self._chosen(physical.get("bandwidth"), (*path, "bandwidth"))
        if rate is not None:
            if rate[0] not in _RATES:
                raise self._refuse(
                    "what a transfer carries is not known",
                    "give `gigabits_per_second` or `gigabytes_per_second`",
                    (*path, "bandwidth"),
                    rate[0],
                )
            said["bandwidth"] = f"{rate[1]} {_RATES[rate[0]][1]}"
        time = self._chosen(physical.get("latency"), (*path, "latency"))
        if time is not None:
            if time[0] not in _TIMES:
                raise self._refuse(
                    "there is no such unit", "`ns`, `us` or `ms`", (*path, "latency"), time[0]
                )
            said["latency"] = f"{time[1]} {_TIMES[time[0]]}"
        return said

    def _chosen(self, value: Any, path: Path) -> tuple[str, str] | None:
        """The unit and the number of a property, of which one unit is chosen."""
        if not value:
            return None
        if not isinstance(value, dict):
            raise self._refuse("it is not a mapping", "`{gigabits_per_second: 400}`", path, value)
        units = [key for key in value if key != "choice"]
        unit = value.get("choice") or (units[0] if len(units) == 1 else None)
        number = value.get(unit) if unit is not None else None
        if number is None and not units:  # a unit is chosen, and nothing said in it
            return None
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise self._refuse("it has no number", "`{gigabits_per_second: 400}`", path, value)
        return str(unit), f"{number:.12g}"

    def _components(self, device: str, path: Path) -> dict[str, tuple[int, str]]:
        """A device's components by name, each with its count and its type."""
        if device not in self._devices:
            hint = "the devices are " + ", ".join(f"`{name}`" for name in self._devices)
            raise self._refuse("there is no such device", hint, path, device)
        tree, at = self._devices[device]
        found = {}
        for i, one in enumerate(self._list(tree, "components", at)):
            where = (*at, "components", i)
            count, kind = one.get("count"), one.get("choice")
            if (
                isinstance(count, bool)
                or not isinstance(count, int)
                or not 0 <= count <= _MOST_NODES
            ):
                raise self._refuse("it is no count", "such as `8`", (*where, "count"), count)
            if kind == "custom":
                kind = (one.get("custom") or {}).get("type")
            if not isinstance(kind, str):
                hint = "`xpu`, `nic`, `port`, `switch`, `cpu`, `memory`, `device` or `custom`"
                raise self._refuse("it has no type", hint, (*where, "choice"), one.get("choice"))
            found[self._name(one, where)] = (count, kind)
        return found

    def _instance(self, one: Mapping[str, Any], path: Path) -> None:
        name, device, count = self._name(one, path), one.get("device"), one.get("count")
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MOST_NODES:
            raise self._refuse("it is no count", "such as `8`", (*path, "count"), count)
        self._components(str(device), (*path, "device"))
        self._counts[name] = (str(device), count)
        for index in range(count):
            self._expand(f"{name}.{index}", str(device), (), path)

    def _expand(self, prefix: str, device: str, above: tuple[str, ...], path: Path) -> None:
        """Add a device's nodes and edges under a name; devices within it first."""
        if device in above:
            raise self._refuse("a device is a part of itself", "take it out", path, device)
        for component, (count, kind) in self._components(device, path).items():
            for index in range(count):
                node = f"{prefix}.{component}.{index}"
                if kind == "device":
                    self._expand(node, component, (*above, device), path)
                    continue
                self.nodes[node] = kind
                if len(self.nodes) > _MOST_NODES:
                    hint = f"at most {_MOST_NODES:,} components of all instances"
                    raise self._refuse("it has too many nodes", hint, path, prefix)
        tree, at = self._devices[device]
        links = self._named_links(tree, at)
        for i, edge in enumerate(self._list(tree, "edges", at)):
            where = (*at, "edges", i)
            ends = [self._inner(edge, end, device, where) for end in ("ep1", "ep2")]
            self._join(edge, ends, f"{prefix}.", links, where)

    def _inner(self, edge: Mapping[str, Any], end: str, device: str, path: Path) -> list[str]:
        """The components that one end of a device's edge names."""
        said = edge.get(end)
        if not isinstance(said, dict) or not isinstance(said.get("component"), str):
            raise self._refuse(
                "an end names a `component`", "`{component: 'nic[0]'}`", (*path, end), said
            )
        outer = said.get("device")
        text = f"{outer}.{said['component']}" if outer else said["component"]
        return self._slices(text, device, (*path, end))

    def _outer(self, edge: Mapping[str, Any], end: str, path: Path) -> list[str]:
        """The components of instances that one end of an edge names."""
        said = edge.get(end)
        if not isinstance(said, dict) or not all(
            isinstance(said.get(key), str) for key in ("instance", "component")
        ):
            hint = "`{instance: 'host[0]', component: 'nic[0]'}`"
            raise self._refuse(
                "an end names an `instance` and a `component`", hint, (*path, end), said
            )
        found = _ELEMENT.match(said["instance"].split(".")[0])
        if found is None or found[1] not in self._counts:
            hint = "the instances are " + ", ".join(f"`{name}`" for name in self._counts)
            raise self._refuse(
                "there is no such instance", hint, (*path, end, "instance"), said["instance"]
            )
        device, count = self._counts[found[1]]
        inner = self._slices(said["component"], device, (*path, end, "component"))
        hosts = self._indices(found[2], count, (*path, end, "instance"), said["instance"])
        return [f"{found[1]}.{host}.{one}" for host in hosts for one in inner]

    def _slices(self, text: str, device: str, path: Path) -> list[str]:
        """Names with slices, one device within the other, as all that they name."""
        parts: list[list[str]] = []
        for element in text.split("."):
            found = _ELEMENT.match(element)
            known = self._components(device, path)
            if found is None:
                raise self._refuse("it is no name with a slice", "`nic[0:2]`", path, text)
            if found[1] not in known:
                return []  # InfraGraph joins nothing there; blueprints have such edges
            count = known[found[1]][0]
            indices = self._indices(found[2], count, path, text)
            parts.append([f"{found[1]}.{index}" for index in indices])
            device = found[1]
        return [".".join(one) for one in itertools.product(*parts)]

    def _indices(self, text: str | None, count: int, path: Path, whole: str) -> list[int]:
        """A slice of Python as the indices that it takes of so many."""
        try:
            numbers = [int(one) if one.strip() else None for one in (text or ":").split(":")]
            if len(numbers) == 1 and numbers[0] is not None:
                return [range(count)[numbers[0]]]
            return list(range(count)[slice(*numbers)])
        except (ValueError, IndexError, TypeError):
            hint = f"0 to {count - 1}, or a slice such as `[0:2]`"
            raise self._refuse("it is beyond what is there", hint, path, whole) from None

    def _join(
        self,
        edge: Mapping[str, Any],
        ends: list[list[str]],
        prefix: str,
        links: dict[str, dict[str, str]],
        path: Path,
    ) -> None:
        link = str(edge.get("link"))
        if link not in links:
            hint = "the links are " + ", ".join(f"`{name}`" for name in links)
            raise self._refuse("there is no such link", hint, (*path, "link"), link)
        said = links[link]
        if "bandwidth" not in said:
            self._rateless.setdefault(link, (*path, "link"))
        for one, other in self._pairs(edge.get("scheme"), ends, path):
            if one == other:
                continue
            a, b = prefix + one, prefix + other
            for node in (a, b):
                if node not in self.nodes:
                    hint = "an end is a component that is no device"
                    raise self._refuse("there is no such node", hint, path, node)
            # One edge between two nodes: the last that is said counts, as in InfraGraph.
            self.edges[(b, a) if (b, a) in self.edges else (a, b)] = said
            if len(self.edges) > _MOST_EDGES:
                raise self._refuse(
                    "it has too many edges", f"at most {_MOST_EDGES:,}", path, prefix
                )

    def _pairs(self, scheme: Any, ends: list[list[str]], path: Path) -> Iterator[tuple[str, str]]:
        if scheme in (None, "one2one"):
            return zip(ends[0], ends[1], strict=False)
        if scheme == "many2many":
            return itertools.product(ends[0], ends[1])
        raise self._refuse(
            "this scheme is not read", "`one2one` or `many2many`", (*path, "scheme"), scheme
        )
