"""The scenario's typed tree.

Quantities stay text with units; names are checked against the Rust core's tables; an unknown key is
refused. Bounds that need the whole scenario (bytes against chunks, overflow, algorithms against
operations) are the core's to check.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationError,
    model_validator,
)

from allrail.base.errors import InputError, show
from allrail.scenario.algorithms import AUTO
from allrail.scenario.dimensions import dimensions_of
from allrail.scenario.explain import from_pydantic
from allrail.scenario.fabric import Fabric
from allrail.scenario.fields import U64_MAX, Count, OneOf
from allrail.scenario.graph import GraphFabric
from allrail.scenario.job import NAMES, check_one
from allrail.scenario.keys.compat import Compat
from allrail.scenario.keys.schedule import Collective, Schedule
from allrail.scenario.keys.traffic import Messages
from allrail.scenario.node import Node, SchemaVersion, plain
from allrail.scenario.places import Places
from allrail.scenario.presets import graph_in_place, load_any_fabric
from allrail.scenario.programs import with_programs
from allrail.scenario.sugar import PacketSettings, PlacementField, WhatIfName
from allrail.scenario.traffic import Traffic
from allrail.scenario.workload import Workload


def _as_list(value: Any) -> Any:
    return (value,) if isinstance(value, (dict, Collective)) else value


def _as_fabric(value: Any) -> Any:
    if isinstance(value, str):
        return load_any_fabric(value)
    if isinstance(value, Mapping) and "topology" in value:
        return graph_in_place(dict(value))
    return value


def _form(value: Any) -> str:
    return "<graph>" if isinstance(value, GraphFabric) else "<dimensions>"


AnyFabric = Annotated[
    Annotated[Fabric, Tag("<dimensions>")] | Annotated[GraphFabric, Tag("<graph>")],
    Discriminator(_form),
    BeforeValidator(_as_fabric, json_schema_input_type=str | Fabric | GraphFabric),
]
GRAPH_MODELS = ("flows", "packets")
"""The network models that carry traffic; the others know dimensions only."""


class OnFabric(Node):
    """A fabric in a file that is no scenario."""

    fabric: AnyFabric


class Scenario(Node):
    """What to simulate, on what, and how: planned collectives, training steps, or traffic."""

    schema_version: SchemaVersion = Field(description="Always 1.")
    fabric: AnyFabric = Field(description="A preset's name, a file, or the fabric itself.")
    collective: Annotated[
        tuple[Collective, ...],
        BeforeValidator(_as_list, json_schema_input_type=Collective | tuple[Collective, ...]),
    ] = Field(
        default=(),
        min_length=1,
        description="One collective, or several that share the fabric.",
    )
    schedule: Schedule = Field(default=Schedule(), description="How they are scheduled.")
    compat: Compat = Field(
        default=Compat(), description="Rules of ASTRA-sim that no other system has."
    )
    traffic: Traffic | None = Field(
        default=None, description="What is sent on a graph fabric; instead of `collective`."
    )
    workload: Workload | None = Field(
        default=None, description="What is trained; instead of `collective`."
    )
    what_if: Annotated[str | dict[str, float], WhatIfName()] | None = Field(
        default=None,
        description="Of a workload: an assumption that is not so. `infinite_bandwidth`, "
        "`ideal_schedule`, `dim1_x2` (twice the bandwidth of a dimension), `no_straggler`, or "
        "`{utilisation: 0.6}`: collectives take that part of the bandwidth of their dimensions.",
    )
    packets: Annotated[dict[str, Any], PacketSettings()] | None = Field(
        default=None, description="Switches and packets, in the network model `packets`."
    )
    messages: Messages | None = Field(
        default=None,
        description="How communication becomes messages.",
    )
    placement: Annotated[str | list[int], PlacementField()] | None = Field(
        default=None,
        description="Of a workload on a `topology`: on which NPUs its ranks are. `in_order` (if "
        "left out), `shuffled` (the first NPUs, in an order that is drawn), `scattered` (drawn "
        "from all), or a list.",
    )
    network_model: Annotated[str, OneOf(table="network_models")] = Field(
        default_factory=lambda data: "dims" if data.get("traffic") is None else "flows",
        description="What carries the transfers out; traffic takes `flows` or `packets`. If left "
        "out: `dims`, for traffic `flows`.",
    )
    seed: Annotated[int, Count(0, U64_MAX)] = Field(
        default=0, description="Of everything random; it is in every result."
    )
    _places: Places = PrivateAttr(default_factory=Places)

    def __init__(self, **tree: Any) -> None:
        try:
            super().__init__(**tree)
        except ValidationError as error:
            raise from_pydantic(error, model=type(self), places=Places()) from None

    # `model_validate` goes its own way: `load_scenario` knows the places of what is wrong.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="before")
    @classmethod
    def _as_files(cls, tree: Any) -> Any:
        """Without numpy's scalars, and with the programs that it names."""
        tree = plain(tree)
        if isinstance(tree, Mapping) and isinstance(tree.get("schedule"), Mapping):
            tree = {**tree, "schedule": with_programs(tree["schedule"], folder=FilePath())}
        return tree

    @model_validator(mode="after")
    def _fits_the_fabric(self) -> Self:
        _check_form(self)
        if self.traffic is not None:
            return self
        if self._needs_no_dimensions:
            return self
        count = len(dimensions_of(self.fabric, counted=True).dimensions)
        if self.what_if is not None:
            WhatIfName.fits(self.what_if, count)
        algorithms = self.schedule.algorithms
        if isinstance(algorithms, tuple) and len(algorithms) != count:
            raise InputError(
                f"it has {len(algorithms)} entries and the fabric {count} dimensions",
                hint="name one algorithm per dimension",
                field="schedule.algorithms",
                value=show(algorithms),
            )
        for index, collective in enumerate(self.collective):
            spanned = collective.dimensions
            if spanned is None:
                continue
            field = f"collective[{index}].dimensions"
            if len(set(spanned)) != len(spanned):
                raise InputError(
                    "a dimension stands twice",
                    hint="name each dimension once",
                    field=field,
                    value=show(spanned),
                )
            if max(spanned) >= count:
                raise InputError(
                    f"the fabric has no dimension {max(spanned)}",
                    hint=f"its dimensions are 0 to {count - 1}",
                    field=field,
                    value=show(spanned),
                )
        return self

    @property
    def _needs_no_dimensions(self) -> bool:
        """Whether the fabric's dimensions, if it has any, are not what the job runs on."""
        if self.workload is None or not isinstance(self.fabric, GraphFabric):
            return False
        cables = self.network_model in GRAPH_MODELS and self.schedule.algorithms is None
        return cables or "steps" in self.workload.model

    def to_json(self) -> str:
        """Return what the Rust core reads: everything resolved, nothing for people only.

        Raises:
            InputError: A text in it is no Unicode.
        """
        text = self._to_json()
        try:
            text.encode()
        except UnicodeEncodeError as error:
            wrong = text[max(0, error.start - 20) : error.end]
            raise InputError(
                "a text in it has half a character of UTF-16",
                hint="write the whole character, or leave it out",
                source="scenario",
                value=wrong,
            ) from None
        return text

    def _to_json(self) -> str:
        if self.workload is not None:
            return json.dumps(self._training(self.workload), ensure_ascii=False)
        if self.traffic is None:
            without = {"traffic", "workload", "what_if", "messages", "placement"}
            without |= set() if self.packets is not None else {"packets"}
            tree = self.model_dump(exclude=without)
            if self.messages is not None:
                tree["messages"] = {"paths": self.messages.paths}
            for key in ("tensor", "algorithms_by_operation"):
                tree["schedule"].pop(key)
            if self.schedule.coordination is None:
                tree["schedule"].pop("coordination")
            if not self.schedule.programs:
                tree["schedule"].pop("programs")
            self._follow_measured(tree)
            return json.dumps(tree, ensure_ascii=False, separators=(",", ":"))
        tree = self.model_dump(exclude={"collective", "schedule", "compat"}, exclude_none=True)
        return json.dumps(tree, ensure_ascii=False)

    def _follow_measured(self, tree: dict[str, Any]) -> None:
        """Where nothing names algorithms, run those that were measured on every dimension."""
        if self.schedule.algorithms is not None or not isinstance(self.fabric, Fabric):
            return
        if all(dimension.fastest for dimension in self.fabric.dimensions):
            tree["schedule"]["algorithms"] = AUTO

    def _training(self, workload: Workload) -> dict[str, Any]:
        tree = self.model_dump(exclude={"collective", "what_if"}, exclude_none=True)
        tree["workload"] = workload.tree()
        self._follow_measured(tree)
        if self.what_if is not None:
            tree["what_if"] = WhatIfName.tree(self.what_if)
        return tree


def _check_form(scenario: Scenario) -> None:
    """Collectives and workloads belong to dimensions, traffic to graphs; all to network models."""
    fabric, network_model, given = (
        scenario.fabric,
        scenario.network_model,
        scenario.model_fields_set,
    )
    graph = fabric.topology if isinstance(fabric, GraphFabric) else None
    traffic = scenario.traffic is not None
    jobs = [name for name in NAMES if name in given and getattr(scenario, name) is not None]
    check_one(jobs, graph=graph is not None)
    if traffic and graph is None:
        raise InputError(
            "traffic needs a fabric of switches and cables, and this one is of `dimensions`",
            hint="name a fabric with `topology`, such as `hx2mesh-1k`",
            field="fabric",
            value=fabric.name,
        )
    if traffic and network_model not in GRAPH_MODELS:
        raise InputError(
            "it knows dimensions, not switches and cables",
            hint="the network models here are " + ", ".join(f"`{name}`" for name in GRAPH_MODELS),
            field="network_model",
            value=network_model,
        )
    if traffic and "schedule" in given:
        raise InputError("traffic has no schedule", hint="leave it out", field="schedule")
    if traffic and "compat" in given:
        raise InputError("no key of it is for traffic", hint="leave it out", field="compat")
    if scenario.packets is not None and network_model != "packets":
        raise InputError(
            "only the network model `packets` reads it",
            hint="leave it out, or write `network_model: packets`",
            field="packets",
        )
    if scenario.workload is None:
        _check_no_training(scenario)
        if scenario.messages is not None:
            _check_paths(scenario, scenario.messages)


def _check_paths(scenario: Scenario, messages: Messages) -> None:
    """Refuse what messages without a workload do not have."""
    if scenario.traffic is not None:
        raise InputError(
            "traffic has keys of its own for it",
            hint="write `traffic: {paths: ...}`",
            field="messages",
        )
    for other in sorted(messages.model_fields_set - {"paths"}):
        raise InputError(
            "only a `workload` has it",
            hint="leave it out; a collective has `messages: {paths: ...}` alone",
            field=f"messages.{other}",
            value=show(getattr(messages, other)),
        )
    if messages.paths is not None and scenario.network_model != "flows":
        raise InputError(
            "only `flows` splits messages over paths",
            hint="write `network_model: flows`, or leave it out",
            field="messages.paths",
            value=messages.paths,
        )


def _check_no_training(scenario: Scenario) -> None:
    """Refuse what belongs to a workload where there is none."""
    for field, value in (
        ("schedule.tensor", scenario.schedule.tensor),
        ("schedule.algorithms_by_operation", scenario.schedule.algorithms_by_operation),
        ("what_if", scenario.what_if),
        ("placement", scenario.placement),
    ):
        if value not in (None, {}):
            raise InputError(
                "only a `workload` has it",
                hint="leave it out, or write a `workload` instead",
                field=field,
                value=show(value),
            )
