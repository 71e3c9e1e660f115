"""A graph of one's own in a file of its own: `{topology: graph, file: mine.yaml}`.

The file has the keys of `topology: graph` (`npus`, `switches`, `links`, ...), or it is what
`json.dump(networkx.node_link_data(G), file)` writes: `nodes` with `id` and with `kind` (or `type`),
`npu` or `switch`, and `links` or `edges` with `source`, `target` and what a link may say. Other
attributes of nodes are for other programs, and left alone. Or it is an InfraGraph infrastructure
(`infragraph.py`), with `devices` and `instances`. What the file says stands beside the
other keys of the fabric then, as if it had been written there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from allrail.base.errors import InputError, did_you_mean, show
from allrail.scenario.graph import inner_topologies, topologies
from allrail.scenario.infragraph import Infrastructure, is_infragraph, lookalike
from allrail.scenario.places import Path, Places, show_path
from allrail.scenario.text import read_file

_FOR_PEOPLE = ("schema_version", "name", "about", "calibrated", "sources", "topology")
_NAMES = ("npus", "switches", "failed_nodes", "failed_links")
_OF_A_LINK = ("bandwidth", "latency", "cable", "count")
_OF_NETWORKX = ("source", "target", "key")


def resolve(
    tree: Mapping[str, Any], *, places: Places, folder: FilePath, at: Path = ()
) -> dict[str, Any]:
    """Put what a fabric's `file` says in the place of `file`; other fabrics stay as they are.

    Args:
        tree: A fabric as plain values.
        places: Where they were written; those of the file are added.
        folder: Where a relative `file` starts.
        at: Where the fabric stands in the tree that `places` is about.

    Raises:
        InputError: The file cannot be read or is no graph.
    """
    whole = dict(tree)
    tag = whole.get("topology")
    if not isinstance(tag, str) or tag not in topologies():
        return whole
    for key in inner_topologies(tag):
        if isinstance(whole.get(key), Mapping):
            whole[key] = resolve(whole[key], places=places, folder=folder, at=(*at, key))
    if not topologies()[tag].get("file"):
        return whole
    if "file" in whole:
        name = whole.pop("file")
        rated = isinstance(whole.get("link"), Mapping) and "bandwidth" in whole["link"]
        read, inner = _read(name, tag, folder, places, at, rated=rated)
        for key, value in read.items():
            if key in whole:
                raise InputError(
                    "it stands in the file too",
                    hint=f"keep `{key}` here or there",
                    source=places.of((*at, key)).source,
                    line=places.of((*at, key)).line,
                    field=show_path((*at, key)),
                    value=show(whole[key]),
                )
            whole[key] = value
        places.known |= {at + path: place for path, place in inner.known.items() if path}
        places.renamed |= {at + path: at + to for path, to in inner.renamed.items()}
    for key in _NAMES:
        if isinstance(whole.get(key), list):
            whole[key] = [_name(name) for name in whole[key]]
    if isinstance(whole.get("links"), list):
        whole["links"] = [_ends_named(link) for link in whole["links"]]
    return whole


def _read(
    name: Any, tag: str, folder: FilePath, places: Places, at: Path, *, rated: bool
) -> tuple[dict[str, Any], Places]:
    path = folder / name if isinstance(name, str) else None
    if path is None or not path.is_file():
        place = places.of((*at, "file"))
        raise InputError(
            "there is no such file",
            hint=f"relative paths start at `{folder}`",
            source=place.source,
            line=place.line,
            field=show_path((*at, "file")),
            value=show(name),
        )
    tree, inner = read_file(path)
    if not isinstance(tree, dict):
        raise InputError(
            "it is not a mapping with `npus` and `links`, or with `nodes` and `links`",
            hint="such as `{npus: 2, links: [{from: 0, to: 1}]}`, or what networkx writes",
            source=str(path),
        )
    if told := lookalike(tree):
        raise InputError(told[0], hint=told[1], source=str(path))
    if is_infragraph(tree):
        infrastructure = Infrastructure(tree, inner)
        if not rated:
            infrastructure.check_rates()
        return infrastructure.graph(), Places()
    if "nodes" in tree:
        return _NodeLink(tree, inner).graph(), inner
    if tree.get("topology", tag) != tag:
        raise InputError(
            f"a file of nodes and links has the topology `{tag}`",
            hint="name the file as the fabric itself",
            source=str(path),
            line=inner.of(("topology",)).line,
            field="topology",
            value=show(tree["topology"]),
        )
    return {key: value for key, value in tree.items() if key not in _FOR_PEOPLE}, inner


def _name(value: Any) -> Any:
    """Numbers are names too: NetworkX numbers nodes."""
    if isinstance(value, list):
        return [_name(one) for one in value]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _ends_named(link: Any) -> Any:
    if not isinstance(link, dict):
        return link
    return {key: _name(value) if key in ("from", "to") else value for key, value in link.items()}


def _id(value: Any) -> Any:
    """A node of a grid is a pair of numbers to NetworkX, and a list in JSON."""
    if isinstance(value, list) and all(isinstance(one, int | str) for one in value):
        return ",".join(str(one) for one in value)
    return _name(value)


class _NodeLink:
    """NetworkX' node-link form."""

    def __init__(self, tree: dict[str, Any], places: Places) -> None:
        self.tree = tree
        self.places = places

    def graph(self) -> dict[str, Any]:
        """Return the keys of `topology: graph`."""
        if self.tree.get("directed"):
            hint = "write `G.to_undirected()`: a link goes both ways here"
            raise self.refuse("its links go one way", hint, ("directed",), "true")
        return {**self._nodes(), "links": self._links()}

    def refuse(self, why: str, hint: str, path: Path, value: object) -> InputError:
        place = self.places.of(path)
        return InputError(
            why,
            hint=hint,
            source=place.source,
            line=place.line,
            field=show_path(path),
            value=show(value),
        )

    def _list(self, key: str) -> list[Any]:
        value = self.tree[key]
        if not isinstance(value, list):
            raise self.refuse("it is not a list", "write it as `[...]`", (key,), value)
        for index, item in enumerate(value):
            if not isinstance(item, dict):
                hint = "for example `{id: a, kind: npu}`"
                raise self.refuse("it is not a mapping", hint, (key, index), item)
        return value

    def _nodes(self) -> dict[str, Any]:
        names: dict[str, list[Any]] = {"npu": [], "switch": []}
        for index, node in enumerate(self._list("nodes")):
            path: Path = ("nodes", index)
            if "id" not in node:
                raise self.refuse("it has no `id`", "every node has a name", path, node)
            key = "type" if "type" in node and "kind" not in node else "kind"
            kind = node.get(key)
            if not isinstance(kind, str) or kind not in names:
                hint = f"write `{key}: npu` or `{key}: switch` at node `{node['id']}`"
                raise self.refuse("a node is an NPU or a switch", hint, (*path, key), kind)
            list_key = "npus" if kind == "npu" else "switches"
            self.places.renamed[list_key, len(names[kind])] = (*path, "id")
            names[kind].append(_id(node["id"]))
        return {"npus": names["npu"], "switches": names["switch"]}

    def _links(self) -> list[dict[str, Any]]:
        key = next((key for key in ("links", "edges") if key in self.tree), None)
        if key is None:
            raise self.refuse("it has no `links`", "`links` or `edges` joins them", (), "nodes")
        links: list[dict[str, Any]] = []
        alike: dict[str, dict[str, Any]] = {}
        for index, given in enumerate(self._list(key)):
            link = self._link(given, (key, index))
            if self.tree.get("multigraph") and "count" not in link:
                twin = alike.setdefault(repr(link), {})
                if twin:
                    twin["count"] = twin.get("count", 1) + 1
                    continue
                twin |= link
                link = twin
            for name, written in (("from", "source"), ("to", "target")):
                self.places.renamed["links", len(links), name] = (key, index, written)
            self.places.renamed["links", len(links)] = (key, index)
            links.append(link)
        self.places.renamed["links",] = (key,)
        return links

    def _link(self, given: dict[str, Any], path: Path) -> dict[str, Any]:
        for name in ("source", "target"):
            if name not in given:
                raise self.refuse(f"it has no `{name}`", "a link joins two nodes", path, given)
        for name, value in given.items():
            if name not in _OF_A_LINK and name not in _OF_NETWORKX:
                hint = did_you_mean(name, _OF_A_LINK, others="a link may say")
                raise self.refuse("there is no such key", hint, (*path, name), value)
        said = {name: given[name] for name in _OF_A_LINK if name in given}
        return {"from": _id(given["source"]), "to": _id(given["target"]), **said}
