"""`allrail fabric list|show|advise`: what networks there are, and what to do about one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from allrail.base.units import plain_number
from allrail.cli import options, output
from allrail.cli.function import function
from allrail.cli.group import Group
from allrail.scenario import GraphFabric, load_any_fabric
from allrail.simulation.graphs import facts
from allrail.simulation.networks import gbps_of

if TYPE_CHECKING:
    from allrail.results.answer import Told
    from allrail.scenario import GraphFabric
    from allrail.simulation.networks import Fabrics


@click.group(cls=Group)
def command() -> None:
    """List, show and advise on fabrics."""


@command.command("list")
@options.as_json
@function("fabric.list")
def list_fabrics(answer: Fabrics) -> None:
    """List the presets."""
    rows = []
    for one in answer["fabrics"]:
        if "dimensions" not in one or "device" not in one:
            rows.append([one["name"], str(one["npus"]), "-", "-", _topology(one["name"])])
            continue
        cut = one["dimensions"]
        rows.append(
            [
                one["name"],
                str(one["npus"]),
                "x".join(str(dimension["size"]) for dimension in cut),
                "+".join(_gbps(dimension["aggregate_gbps"]) for dimension in cut),
                ",".join(dimension["kind"] for dimension in cut),
            ]
        )
    output.table(["fabric", "npus", "sizes", "npu_Gb/s", "kinds"], rows)
    output.note("npu_Gb/s: of one NPU, per dimension, innermost first; `allrail fabric show NAME`")


@command.command("show")
@click.argument("fabric", metavar="FABRIC", type=options.Named())
@options.as_json
@click.option("--yaml", is_flag=True, help="Print the fabric's file, as a start for your own")
@click.option(
    "--picture",
    type=options.Output(),
    metavar="FILE",
    help="Draw one plane of its switches and cables into this SVG file",
)
@click.option(
    "--infragraph",
    type=options.Output(),
    metavar="FILE",
    help="Write one plane of its nodes and cables as InfraGraph YAML",
)
@function("fabric.show", doing="measuring distances")
def show_fabric(shown: Told, *, fabric: str, picture: Path | None, infragraph: Path | None) -> None:
    """Show what a preset or a file is made of, and where its numbers come from.

    \b
    Examples:
      allrail fabric show dgx-h100
      allrail fabric show fat-tree-1k --infragraph fat-tree.infragraph.yaml
    """  # noqa: D301, click wants the character
    if "yaml" in shown:
        output.text(shown["yaml"], end="")
        return
    loaded = load_any_fabric(fabric)
    if isinstance(loaded, GraphFabric):
        _show_graph(loaded, shown)
        if infragraph is not None:
            output.note(f"one plane is written to {infragraph}")
        if picture is not None:
            output.note(f"one plane is drawn in {picture}")
        return
    output.pairs([("fabric", loaded.name), ("npus", f"{loaded.npus:,}"), ("about", loaded.about)])
    output.gap()
    output.table(
        ["dimension", "kind", "size", "links", "per_link", "npu_Gb/s", "latency", "reduces"],
        [
            [
                f"dim{index}",
                dimension.kind,
                str(dimension.size),
                str(dimension.links),
                dimension.bandwidth.replace(" ", ""),
                _gbps(aggregate),
                dimension.latency.replace(" ", ""),
                "yes" if dimension.in_network_reduction else "no",
            ]
            for index, (dimension, aggregate) in enumerate(
                zip(loaded.dimensions, gbps_of(loaded), strict=True), start=1
            )
        ],
    )
    if loaded.device is not None:
        output.note(f"device of an NPU: {loaded.device}; `plan` and `require` take it")
    for key, source in loaded.sources.items():
        output.note(f"{key}: {source}")
    if not loaded.calibrated:
        output.note("uncalibrated: nobody measured this hardware")


@command.command("advise")
@click.argument("fabric", metavar="FABRIC", type=options.Named())
@options.as_json
@function("fabric.advise")
def advise_fabric(advice: Told, *, fabric: str) -> None:
    """Say which dimensions have too much or too little bandwidth for one another.

    For every pair: just enough, over- or under-provisioned (Themis, section 6.3), and the split of
    the same total that suits the baseline best.
    """
    output.table(
        ["inner", "outer", "inner_Gb/s", "outer_Gb/s", "just_enough_Gb/s", "idle_Gb/s", "verdict"],
        [
            [
                f"dim{pair['inner'] + 1}",
                f"dim{pair['outer'] + 1}",
                _gbps(pair["inner_gbps"]),
                _gbps(pair["outer_gbps"]),
                _gbps(pair["just_enough_outer_gbps"]),
                _gbps(pair["idle_gbps"]),
                pair["verdict"],
            ]
            for pair in advice["pairs"]
        ],
    )
    output.gap()
    baseline, best = advice["baseline"], advice["best_split"]
    output.table(
        ["dimension", "baseline_uses_Gb/s", "leaves_idle_Gb/s", "best_split_Gb/s"],
        [
            [f"dim{index}", _gbps(used), _gbps(idle), _gbps(split)]
            for index, (used, idle, split) in enumerate(
                zip(baseline["used_gbps"], baseline["idle_gbps"], best["gbps"], strict=True),
                start=1,
            )
        ],
    )
    output.note(
        f"the baseline uses {output.percent(baseline['utilisation'])} % of all bandwidth, bound by "
        f"dim{baseline['bottleneck'] + 1}; with the best split of the same total "
        f"{output.percent(best['utilisation_baseline'])} %"
    )
    reachable = advice["reachable"]
    bound = [f"dim{index + 1}" for index in reachable["bound_by"] or ()]
    by = f", bound by {' and '.join(bound)}" if bound else ""
    output.note(f"the best schedule can use {output.percent(reachable['utilisation'])} %{by}")
    output.note("counted from bandwidths alone (large collectives); the fabric is uncalibrated")
    loaded = load_any_fabric(fabric)
    if isinstance(loaded, GraphFabric) and facts(loaded)["shares_ports"]:
        output.note(
            "these dimensions share the port of an NPU, so together they have no more than one "
            "of them: what is idle here is not to be had; compare in `network_model: flows`"
        )


def _show_graph(fabric: GraphFabric, shown: Told) -> None:
    cables, share = shown["cables"], shown["half_plane_cut_share"]
    working, rate = shown["npus_working"], shown["npus_per_million_usd"]
    failed = "" if working in (None, shown["npus"]) else f", {working:,} of them work"
    cut = shown["half_plane_cut_links"]
    output.pairs(
        [
            ("fabric", fabric.name),
            ("topology", fabric.topology),
            ("about", fabric.about),
            ("npus", f"{shown['npus']:,}{failed}"),
            ("planes", f"{shown['planes']:,}; ports of an NPU in each: {shown['ports']}"),
            ("numbers", _numbers(fabric, shown)),
            ("switches", _switches(shown)),
            ("cables", ", ".join(f"{count:,} {kind}" for kind, count in cables.items())),
            ("cost", f"{shown['cost_usd'] / 1e6:,.3f} M$"),
            ("npus per M$", "-" if rate is None else f"{rate:,.1f}"),
            ("diameter", f"{_or_dash(shown['diameter'])} by formula"),
            ("", f"{_or_dash(shown['diameter_bfs'])} by search, in cables"),
            (
                "half-plane cut",
                "-" if cut is None else f"{cut:,} links a plane, {100 * share:.1f} % of injection",
            ),
            ("to planners", _dimensions(shown)),
        ]
    )
    if shown["simulated_as"]:
        output.note(shown["simulated_as"])
    if shown["counted"]:
        output.note(f"plans count over its cables: {shown['no_dimensions']}")
    output.note("switches and cables over all planes; `allrail cost` takes other prices")


def _switches(shown: dict[str, Any]) -> str:
    there = shown.get("on_board", 0)
    beside = f", and {there:,} switches and ports of nodes, not priced" if there else ""
    return f"{shown['switches']:,}{beside}"


def _numbers(fabric: GraphFabric, shown: dict[str, Any]) -> str:
    """Which numbers the nodes of a plane have: what `failed_nodes` goes by."""
    if facts(fabric)["named"]:
        return "NPUs as they stand, then switches; what has failed goes by name"
    npus = shown["npus"]
    if boards := fabric.keys.get("failed_boards"):
        rows, columns = fabric.keys["board"]
        npus -= len(boards) * rows * columns
    switches = (shown["switches"] + shown.get("on_board", 0)) // shown["planes"]
    text = f"NPUs 0 to {npus - 1}"
    return text + (f", switches {npus} to {npus + switches - 1}" if switches else "")


def _dimensions(shown: dict[str, Any]) -> str:
    dimensions = shown["dimensions"] or shown["counted"]
    if dimensions is None:
        return f"no dimensions: {shown['no_dimensions']}"
    texts = [
        f"{one['kind']} of {one['size']} with {one['links']} x {one['bandwidth']}"
        for one in dimensions
    ]
    if shown["counted"]:
        last = dimensions[-1]
        texts[-1] = f"cables among {last['size']} with {last['bandwidth']} at most"
    return ", ".join(texts)


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _topology(preset: str) -> str:
    return str(getattr(load_any_fabric(preset), "topology", "-"))


def _gbps(value: float) -> str:
    return plain_number(value, 6)
