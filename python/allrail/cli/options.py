"""Options that several verbs share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from allrail.base import late, stdin
from allrail.base.errors import InputError
from allrail.cli import folders
from allrail.results.answer import MAX_SLICES

F = TypeVar("F", bound=Callable[..., Any])


class _Given(click.ParamType[Any]):
    """What must not be empty: a path of no letters is the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value."""
        if not str(value):
            name = "" if param is None else max(param.opts, key=len)
            shown = str(param and (param.metavar or name)).upper().strip("[]")
            source = name if name.startswith("-") else shown
            hint = "name a file or folder; is a variable not set?"
            raise InputError("it is empty", source=source, hint=hint)
        return super().convert(value, param, ctx)


class Input(_Given, click.Path):
    """A file that a command reads; `-` is stdin.

    Args:
        spooled: Whether its reader takes files alone, and goes by the endings of their names: it
            gets a temporary file with what stdin holds.
    """

    def __init__(self, *, spooled: bool = False) -> None:
        super().__init__(path_type=Path)
        self._spooled = spooled

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path, or what stands for stdin."""
        if self._spooled and str(value) == str(stdin.STDIN):
            return stdin.spooled()
        return Path(os.fsdecode(super().convert(value, param, ctx)))


class Named(_Given, click.types.StringParamType):
    """A preset's name, or a file that a command reads; `-` is stdin."""


class Folder(_Given, click.Path):
    """A folder that a command reads."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)


class Output(_Given, click.Path):
    """A file or a folder that a command writes."""

    def __init__(self, **more: Any) -> None:
        super().__init__(path_type=Path, **more)


def sets(command: F) -> F:
    """`--set a.b=value`, as often as needed."""
    return click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="PATH=VALUE",
        help="Override one value, such as `schedule.policy=themis`; the value is YAML",
    )(command)


def as_json(command: F) -> F:
    """`--json`: one JSON object on stdout instead of a table."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object instead of the table"
    )(command)


def _checked_by(name: str) -> Callable[[click.Context, click.Parameter, Path | None], Path | None]:
    """Return a callback that has a function of `allrail.cli.folders` check an option's path."""

    def callback(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
        del ctx
        if path is not None:
            getattr(folders, name)(path, option=param.opts[-1])
        return path

    return callback


# Callbacks of options that name an output: what cannot be written is refused before any computing.
writable = _checked_by("check")
writable_results = _checked_by("check_results")
writable_file = _checked_by("check_file")
writable_journal = _checked_by("check_journal")


def out(command: F) -> F:
    """`--out DIR`."""
    return click.option(
        "--out",
        type=Output(),
        callback=writable_results,
        metavar="DIR",
        help="Write result, tables, pictures, trace and report into this folder",
    )(command)


def report(command: F) -> F:
    """`--report DIR`, of verbs whose `--out` is a file, or that have none."""
    return click.option(
        "--report",
        type=Output(),
        callback=writable_results,
        metavar="DIR",
        help="Write result, table and report into this folder",
    )(command)


def timeline(command: F) -> F:
    """`--timeline`, beside `--out DIR`."""
    return click.option(
        "--timeline",
        is_flag=True,
        help="Write timeline, trace and their pictures into that folder however long they are; "
        f"else only up to {MAX_SLICES:,} slices",
    )(command)


def slices(typed: Mapping[str, Any]) -> None:
    """Refuse `--timeline` without the folder of `--out`.

    Args:
        typed: All options of a command.
    """
    if typed["timeline"] and typed["out"] is None:
        raise InputError(
            "it belongs to the folder of `--out`", hint="add `--out DIR`", source="--timeline"
        )


def of_model(command: F) -> F:
    """`--model`, `--fabric`, `--npus` and what goes with them.

    Args:
        command: What takes them.
    """
    for option in reversed(_OF_MODEL):
        command = option(command)
    return command


_OF_MODEL: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--model", type=Named(), help="Instead of FILE: model, a preset, a config.json or a file"
    ),
    click.option("--fabric", type=Named(), help="With --model: fabric, a preset or a file"),
    click.option("--npus", type=click.IntRange(1), help="With --model: number of NPUs"),
    click.option(
        "--global-batch",
        type=click.IntRange(1),
        help="Samples per step; the number of NPUs if left out",
    ),
    click.option(
        "--sequence", type=click.IntRange(1), help="Tokens per sample; the model's own if left out"
    ),
    click.option(
        "--device",
        type=Named(),
        help="With --model: device; that of the fabric, else h100",
    ),
    click.option(
        "--precision",
        type=click.Choice(["fp32", "fp16", "bf16"]),
        help="Precision of parameters and activations; bf16, on devices without it fp16",
    ),
    click.option(
        "--recipe",
        type=click.Choice(
            ["plain", "fp8_delayed", "fp8_tensorwise", "fp8_rowwise", "mxfp8", "nvfp4"]
        ),
        help="Format of matrix products with weights; that of --precision if left out",
    ),
    click.option(
        "--launch",
        type=click.Choice(["eager", "compiled", "graph", "fused", "graphed_attention", "blocking"]),
        help="How kernels are launched; as the tool of --for does it, else compiled",
    ),
)


def apart(text: str) -> list[str]:
    """Cut at commas outside of brackets and quotes, as of `{dp: 8},{dp: 4, tp: 2}`.

    Args:
        text: What an option was given.
    """
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if letter == "," and depth == 0 and not quote:
            parts.append("")
            continue
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and (depth or not parts[-1].strip()):
            quote = letter
        else:
            depth = max(0, depth + (letter in "[{") - (letter in "]}"))
        parts[-1] += letter
    return parts


def listed(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Callback of options that take several names: `A,B`, or the option again, or both."""
    del ctx, param
    parts = (part.strip() for text in values for part in apart(text))
    return tuple(part for part in parts if part)


def _load_plugins(ctx: click.Context, param: click.Parameter, files: tuple[Path, ...]) -> None:
    del ctx, param
    if files:
        for file in files:
            late.call("load plugin", file)


def plugin(command: F) -> F:
    """`--plugin FILE`, as often as needed; its schedulers are known before anything is read."""
    return click.option(
        "--plugin",
        multiple=True,
        is_eager=True,
        expose_value=False,
        callback=_load_plugins,
        type=Input(),
        metavar="FILE",
        help="Run this Python file, whose schedulers scenarios may then name",
    )(command)


def cache(command: F) -> F:
    """`--no-cache`."""
    return click.option(
        "--cache/--no-cache", default=True, help="Keep expensive plans on disk (on by default)"
    )(command)
