"""Write the generated pages of docs/reference again: `make docs`.

`cli.md` from the commands themselves, the JSON schemas from the models, and the matrix of
algorithms and operations from the Rust core. A test checks that they are current.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

FOLDER = Path(__file__).parent / "reference"


def cli_page() -> str:
    """Return the command line's page: what every verb's --help prints."""
    from allrail.cli.main import cli

    blocks = ["# Command line\n\nWritten by `make docs` from the commands' own help.\n"]

    def add(command: click.Command, path: str, parent: click.Context | None) -> None:
        name = path.rpartition(" ")[2]
        context = click.Context(command, parent, name, **command.context_settings)
        context.max_content_width = context.terminal_width = 88
        level = "#" * (len(path.split()) + 1)
        blocks.append(f"{level} {path}\n\n```text\n{command.get_help(context)}\n```\n")
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                if inner is not None:
                    add(inner, f"{path} {name}", context)

    add(cli, "allrail", None)
    return "\n".join(blocks)


def algorithms_page() -> str:
    """Return the matrix of algorithms and operations, and the other tables of the core."""
    from allrail.scenario.choices import OPERATIONS
    from allrail.scenario.fields import Table, table

    head = [
        "| algorithm | " + " | ".join(f"`{name}`" for name in OPERATIONS) + " | |",
        "|---|" + "---|" * (len(OPERATIONS) + 1),
    ]
    lines = [
        "# Algorithms, policies, orders, network models",
        "",
        "Written by `make docs` from the Rust core's own tables.",
        "",
        "## Algorithms of one dimension",
        "",
        "`schedule.algorithms` names one per dimension. Left out: `ring` on rings, `direct` on",
        "fully connected dimensions, `halving_doubling` on switches. An empty cell is an error",
        "that names the algorithms that do the operation. A file that ends in `.xml` is",
        "[a program of MSCCL](../concepts/collectives.md#algorithms-of-your-own).",
        "",
        *head,
    ]
    for row in table("algorithms"):
        cells = ["yes" if name in row["operations"] else "" for name in OPERATIONS]
        lines.append(f"| `{row['name']}` | " + " | ".join(cells) + f" | {row['about']} |")
    lines += ["", "Made for a network:", "", *head]
    for row in table("made_algorithms"):
        cells = ["yes" if name in row["operations"] else "" for name in OPERATIONS]
        lines.append(f"| `{row['name']}` | " + " | ".join(cells) + f" | {row['about']} |")
    titles: dict[Table, str] = {
        "policies": "Policies (`schedule.policy`)",
        "orders": "Orders (`schedule.order`)",
        "network_models": "Network models (`network_model`)",
        "tensor_policies": "Tensor schedulers (`schedule.tensor`)",
        "coordinations": "Coordination (`schedule.coordination`)",
        "compressions": "Compressions (`workload.compression`)",
    }
    for name, title in titles.items():
        lines += ["", f"## {title}", "", "| | |", "|---|---|"]
        lines += [f"| `{row['name']}` | {row['about']} |" for row in table(name)]
    return "\n".join(lines) + "\n"


def fabrics_page() -> str:
    """Return the presets, with the source of every number."""
    from allrail.scenario import GraphFabric, load_any_fabric, preset_names
    from allrail.scenario.fields import table
    from allrail.simulation.graphs import count

    lines = [
        "# Fabric presets",
        "",
        "Written by `make docs` from the files in `python/allrail/presets/fabrics`. Every one is",
        "uncalibrated: its numbers come from the sources named, nobody measured the hardware.",
    ]
    for name in preset_names():
        fabric = load_any_fabric(name)
        if isinstance(fabric, GraphFabric):
            keys = ", ".join(f"{key}: {_text(value)}" for key, value in fabric.keys.items())
            lines += [
                *("", f"## {name}", ""),
                f"{fabric.about} {count(fabric)['npus']:,} NPUs.",
                *("", f"`topology: {fabric.topology}`: `{keys}`"),
                *("", "Sources:", ""),
            ]
            lines += [f"- `{key}`: {source}" for key, source in fabric.sources.items()]
            continue
        lines += [
            "",
            f"## {name}",
            "",
            f"{fabric.about} {fabric.npus:,} NPUs.",
            "",
            "| dimension | kind | size | links | bandwidth per link | step latency |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| dim{index} | `{one.kind}` | {one.size} | {one.links} | {one.bandwidth} "
            f"| {one.latency} |"
            for index, one in enumerate(fabric.dimensions, start=1)
        ]
        lines += ["", "Sources:", ""]
        lines += [f"- `{key}`: {source}" for key, source in fabric.sources.items()]
    lines += [
        *("", "## Packets", ""),
        "`packet` of a dimension takes their names. `payload` and `header` beside it are others.",
        *("", "| packet | payload (B) | header (B) | goodput (%) | |", "|---|---|---|---|---|"),
    ]
    for row in table("packets"):
        share = 100 * row["payload"] / (row["payload"] + row["header"])
        cells = (f"`{row['name']}`", row["payload"], row["header"], f"{share:.2f}", row["about"])
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def workloads_page() -> str:
    """Return the models, with the source of every number."""
    from allrail.scenario.models import model_names, read_model

    lines = [
        "# Models",
        "",
        "Written by `make docs` from the files in `python/allrail/presets/workloads`.",
        "`workload.model` takes their names. Defaults are keys of `workload` that hold where the",
        "scenario says nothing.",
    ]
    for name in model_names():
        tree, _ = read_model(name)
        lines += ["", f"## {name}", "", f"{tree['about']}."]
        if tree.get("defaults"):
            lines += ["", f"Defaults: `{_text(tree['defaults'])}`"]
        lines += ["", "Sources:", ""]
        lines += [f"- `{key}`: {source}" for key, source in tree["sources"].items()]
    return "\n".join(lines) + "\n"


def devices_page() -> str:
    """Return the devices, with the source of every number."""
    from allrail import _core

    lines = [
        "# Devices",
        "",
        "Written by `make docs` from the files in `crates/workload/src/device/presets`.",
        "`workload.compute.device` takes their names. Those with kernels are computed kernel by",
        "kernel; the others by one `efficiency`. A file of your own has the same keys.",
    ]
    for device in json.loads(_core.devices()):
        peaks = ", ".join(f"{rate} in {name}" for name, rate in device["peak"].items())
        known = "kernels known" if "kernels" in device else "kernels not known"
        lines += [
            *("", f"## {device['name']}", ""),
            f"{device['about']}: {peaks}; {device['memory']} at {device['memory_bandwidth']};",
            f"{known}.",
            *("", device["source"]),
        ]
    return "\n".join(lines) + "\n"


def topologies_page() -> str:
    """Return every topology's keys, from the Rust core's schemas."""
    from allrail.scenario.graph import topologies

    lines = ["# Topologies", "", "Written by `make docs` from the Rust core's own schemas."]
    for tag, row in topologies().items():
        lines += ["", f"## `topology: {tag}`", "", f"{row['about'].capitalize()}.", ""]
        lines += ["| key | default | |", "|---|---|---|"]
        for key, schema in row["schema"]["properties"].items():
            default = _text(schema["default"]) if "default" in schema else ""
            about = " ".join(schema.get("description", "").split())
            lines.append(f"| `{key}` | {f'`{default}`' if default else ''} | {about} |")
    return "\n".join(lines) + "\n"


FORMS = {
    "transformer": "TransformerSpec",
    "dlrm": "DlrmSpec",
    "layers": "LayerSpec",
}
"""Models that a workload describes itself, and the types of their keys."""


def models_page() -> str:
    """Return the keys of models, from the Rust core's own schemas."""
    from allrail import _core

    definitions = json.loads(_core.scenario_keys())
    lines = [
        "# Models: every key",
        "",
        "Written by `make docs` from the Rust core's own schemas. `workload.model` is one of:",
        "",
        "| form | |",
        "|---|---|",
    ]
    for form in definitions["Model"]["oneOf"]:
        (key,) = form["properties"]
        lines.append(f"| `{key}` | {' '.join(form['description'].split())} |")
    for form, name in FORMS.items():
        each = ", each of a list" if form == "layers" else ""
        lines += ["", f"## `{form}`{each}", "", "| key | default | |", "|---|---|---|"]
        lines += _rows_of_model(definitions[name], definitions, ())
    return "\n".join(lines) + "\n"


def _rows_of_model(
    schema: dict[str, Any], definitions: dict[str, Any], path: tuple[str, ...]
) -> Iterator[str]:
    for key, one in schema["properties"].items():
        choices = one.get("anyOf", [one])
        referred = (choice.get("$ref", "").rpartition("/")[2] for choice in choices)
        inner = definitions.get(next(filter(None, referred), ""), {})
        name = ".".join((*path, key))
        about = " ".join(one.get("description", "").split())
        if "properties" in inner:
            yield f"| `{name}` | | {about} |"
            yield from _rows_of_model(inner, definitions, (*path, key))
            continue
        values = [f"`{each['const']}`" for each in inner.get("oneOf", []) if "const" in each]
        if values:
            about += f" {', '.join(values)}."
        default = one.get("default")
        shown = "" if default is None else f"`{_text(default)}`"
        yield f"| `{name}` | {shown} | {about} |"


def job_page() -> str:
    """Return the keys of the job file, from the Rust core's own schema."""
    from allrail.runtime.job import job_schema

    schema = job_schema()
    lines = [
        "# The job file: every key",
        "",
        "Written by `make docs` from the Rust core's own schema. How to use them is in",
        "[the guide](../guides/job.md).",
        "",
        "| key | left out | |",
        "|---|---|---|",
        *_rows_of_job(schema, schema["$defs"], ()),
    ]
    return "\n".join(lines) + "\n"


def _rows_of_job(
    schema: dict[str, Any], definitions: dict[str, Any], path: tuple[str, ...]
) -> Iterator[str]:
    for key, one in schema["properties"].items():
        inner = definitions.get(str(one.get("$ref", "")).rpartition("/")[2], {})
        if "properties" in inner:
            yield from _rows_of_job(inner, definitions, (*path, key))
            continue
        name = ".".join((*path, key))
        default = f"`{_text(one['default'])}`" if one.get("default", []) != [] else ""
        yield f"| `{name}` | {default} | {' '.join(one['description'].split())} |"


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).replace('"', "")


def pages() -> dict[str, str]:
    """Return every generated file of docs/reference by its name."""
    from allrail.output.schemas import schema

    texts = {
        "cli.md": cli_page(),
        "algorithms.md": algorithms_page(),
        "devices.md": devices_page(),
        "fabrics.md": fabrics_page(),
        "job.md": job_page(),
        "models.md": models_page(),
        "topologies.md": topologies_page(),
        "workloads.md": workloads_page(),
    }
    for name in ("scenario", "fabric", "plan", "job"):
        tree = json.dumps(schema(name), indent=1, ensure_ascii=False)
        texts[f"{name}.schema.json"] = tree + "\n"
    return texts


def main() -> None:
    """Write them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(FOLDER / name)


if __name__ == "__main__":
    main()
