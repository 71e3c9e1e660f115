"""A study file: a scenario, and which of its fields take which values.

schema_version: 1
scenario: scenario.yaml                # or written in place
axes:
  schedule.chunks: [4, 16, 64]         # any path that `--set` takes
  fabric.dimensions[1].bandwidth: {from: 50 Gb/s, to: 800 Gb/s, count: 5, scale: log}
  layout: [{tp: 8, pp: 4}, {tp: 4, pp: 8}]   # no path: fields that change together
sample: {method: latin_hypercube, points: 100, seed: 0}   # left out: every combination
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated, Any, NoReturn

from pydantic import Discriminator, Field, Tag, ValidationError

from allrail.base.errors import InputError, did_you_mean, show
from allrail.base.stdin import STDIN
from allrail.scenario import Scenario, load_scenario
from allrail.scenario.explain import from_pydantic
from allrail.scenario.fields import Count, OneOf
from allrail.scenario.node import Node, SchemaVersion, plain
from allrail.scenario.places import Places, parse_path
from allrail.scenario.text import read_file
from allrail.search.sweeps.axes import Axis, Range, axis_of, in_folder
from allrail.search.sweeps.points import MOST, Points

_METHODS = ("latin_hypercube", "random")


class Sample(Node):
    """Points that are drawn, instead of every combination."""

    method: Annotated[str, OneOf(*_METHODS, what="a way to draw")] = Field(
        description="`latin_hypercube`: each axis is covered evenly; `random`."
    )
    points: Annotated[int, Count(0, 2**63)] = Field(description="How many.")
    seed: Annotated[int, Count(0, 2**63)] = Field(default=0, description="Of the draws.")


def _form(value: Any) -> str:
    return "<range>" if isinstance(value, (Mapping, Range)) else "<values>"


class StudyFile(Node):
    """What a study's file holds."""

    schema_version: SchemaVersion = Field(description="Always 1.")
    scenario: str | dict[str, Any] = Field(description="A scenario's file, or the scenario.")
    axes: dict[
        str,
        Annotated[
            Annotated[tuple[Any, ...], Tag("<values>")] | Annotated[Range, Tag("<range>")],
            Discriminator(_form),
        ],
    ] = Field(description="By path of a field: its values, or a range.")
    sample: Sample | None = Field(default=None, description="Draw points; all if left out.")
    show: str | None = Field(
        default=None, description="The result in the pictures; the time if left out."
    )


@dataclass(frozen=True, slots=True)
class Study:
    """A study that was read and checked.

    Attributes:
        name: Of its file, without ending; `study` if it was given in Python.
        base: The scenario that every point changes.
        axes: What is changed.
        points: The changes.
        show: The result in the pictures, if the study names one.
        digest: Differs between studies whose points or scenario differ.
    """

    name: str
    base: Scenario
    axes: tuple[Axis, ...]
    points: Points
    show: str | None
    digest: str


def load_study(study: str | os.PathLike[str] | Mapping[str, Any]) -> Study:
    """Read and check a study.

    Args:
        study: A YAML or JSON file, or a mapping of the same shape.

    Raises:
        InputError: It cannot be read, something in it is refused, or it has no points or more than
            a million.
    """
    if isinstance(study, Mapping):
        tree, places = plain(dict(study)), Places()
        name, folder = "study", FilePath()
    else:
        path = FilePath(study)
        tree, places = read_file(path)
        name, folder = ("study" if path == STDIN else path.stem), path.parent
    if not isinstance(tree, Mapping):
        place = places.of(())
        raise InputError(
            "a study is a mapping of keys to values",
            hint="it has `schema_version: 1`, `scenario` and `axes`; `allrail help sweep`",
            source=place.source,
            line=place.line,
        )
    _no_scenario(tree, places)
    try:
        file = StudyFile.model_validate(tree)
    except ValidationError as error:
        raise from_pydantic(error, model=StudyFile, places=places) from None
    base = _base(file.scenario, folder=folder, places=places)
    axes = tuple(
        axis_of(key, given, base=base, folder=folder, place=places.of(("axes", key)))
        for key, given in file.axes.items()
    )
    _no_field_twice(axes, places)
    _bounded(axes, file.sample, places)
    if file.sample is None:
        points = Points.grid(axes)
    else:
        points = Points.drawn(
            axes, method=file.sample.method, count=file.sample.points, seed=file.sample.seed
        )
    told = [base.to_json(), [axis.told() for axis in axes], file.sample and dict(file.sample)]
    digest = hashlib.sha256(json.dumps(told, ensure_ascii=False).encode()).hexdigest()
    return Study(name, base, axes, points, file.show, digest)


def _no_scenario(tree: Mapping[str, Any], places: Places) -> None:
    """Tell someone who has given a scenario, and no study."""
    if "scenario" in tree or "fabric" not in tree:
        return
    place = places.of(("fabric",))
    raise InputError(
        "it is a scenario, not a study",
        hint="a study names the scenario's file under `scenario`, and `axes`",
        source=place.source,
    )


def _base(given: str | dict[str, Any], *, folder: FilePath, places: Places) -> Scenario:
    """Read the scenario; a mistake in one that is written in place has its line in the study."""
    if isinstance(given, str):
        return load_scenario(folder / given)
    try:
        return load_scenario(in_folder(given, folder))
    except InputError as error:
        if error.source:
            raise
        path = ("scenario", *((parse_path(error.field) if error.field else None) or ()))
        place = places.of(path)
        error.source, error.line = place.source, place.line
        raise


def _no_field_twice(axes: tuple[Axis, ...], places: Places) -> None:
    seen: dict[str, str] = {}
    for axis in axes:
        for field in axis.fields:
            if field in seen:
                place = places.of(("axes", axis.name))
                raise InputError(
                    f"`{seen[field]}` changes this field, too",
                    hint="each field belongs to one axis; what changes together stands in one list "
                    "of mappings",
                    source=place.source,
                    line=place.line,
                    field=field,
                )
            seen[field] = axis.name


def _bounded(axes: tuple[Axis, ...], sample: Sample | None, places: Places) -> None:
    """Refuse a study with no points, or with more than anyone waits for, before they are made."""
    ranges = [axis for axis in axes if axis.range is not None]
    for axis in ranges:
        if sample is None and axis.steps is None:
            _refuse(places, ("axes", axis.name), "its range has no `count`", "add `count: 5`")
        if sample is not None and axis.steps is not None:
            _refuse(
                places,
                ("axes", axis.name, "count"),
                "points are drawn from the range, not counted off",
                "leave `count` or `sample` out",
            )
    total = sample.points if sample is not None else 1
    if sample is None:
        for axis in axes:
            total *= axis.steps or 0
    where = ("axes",) if sample is None else ("sample", "points")
    if not axes or total == 0:
        _refuse(
            places, where, "the study has no points", "for example `schedule.chunks: [4, 16, 64]`"
        )
    if total > MOST:
        _refuse(
            places,
            where,
            f"the study has {total:,} points, and at most {MOST:,} are taken",
            "name fewer values, or draw some: `sample: {method: latin_hypercube, points: 1000}`",
        )


def _refuse(places: Places, path: tuple[str, ...], why: str, hint: str) -> NoReturn:
    place = places.of(path)
    field = path[1] if path[0] == "axes" and len(path) > 1 else ".".join(path)
    raise InputError(why, hint=hint, source=place.source, line=place.line, field=field)


def check_show(study: Study, columns: list[str]) -> str | None:
    """Return the result that pictures show.

    Args:
        study: Which may name one.
        columns: The numbers among the results.

    Raises:
        InputError: There is no such result.
    """
    if study.show is not None and study.show not in columns:
        raise InputError(
            "there is no such number among the results",
            hint=did_you_mean(study.show, columns, others="the numbers are"),
            field="show",
            value=show(study.show),
        )
    return study.show
