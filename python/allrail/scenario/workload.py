"""What is trained: the key `workload`.

Which layouts divide the NPUs, and what a model's own numbers mean, is the Rust core's to check.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import Field

from allrail.errors import InputError, did_you_mean, show
from allrail.scenario.fabric import Node
from allrail.scenario.fields import Count, Flag, OneOf, Quantity, Text, _Field, refuse

FORMS = {
    "layers": "layers by shape or by number",
    "transformer": "a transformer by its sizes",
    "dlrm": "embedding tables and two MLPs",
    "hugging_face": "the content of a Hugging Face `config.json`",
    "trace": "a Chakra trace, `DIR/NAME`",
    "astra_sim": "an ASTRA-sim layer file",
    "steps": "nodes written out",
}
"""How a model may be given in place; by name or file, one of these is read."""

AXES = ("tp", "op", "ep", "pp", "dp")
"""The degrees of parallelism."""


class Number(_Field):
    """A number in a range."""

    def __init__(self, *, above: float = -math.inf, low: float = -math.inf, example: str) -> None:
        self.above = above
        self.low = low
        self.hint = f"for example `{example}`"

    def check(self, value: Any) -> float:
        """Return the number."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            refuse("it is not a number", hint=self.hint)
        if not math.isfinite(value):
            refuse("it is not finite", hint=self.hint)
        if value <= self.above:
            refuse(f"it is not above {self.above:g}", hint=self.hint)
        if value < self.low:
            refuse(f"it is below {self.low:g}", hint=self.hint)
        return value

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        bounds = {"exclusiveMinimum": self.above, "minimum": self.low}
        return {"type": "number", **{k: one for k, one in bounds.items() if math.isfinite(one)}}


class Rate(_Field):
    """Operations per second as text; only the Rust core reads it."""

    def check(self, value: Any) -> str:
        """Return the text."""
        hint = "for example `312 TFLOP/s`"
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            refuse("it is not a rate", hint=hint)
        if not isinstance(value, str):
            refuse("it has no unit", hint=hint)
        return value

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        return {"type": "string", "examples": ["312 TFLOP/s"]}


class Model(_Field):
    """A preset's name, a file, or a mapping with one of `FORMS`; kept as the last of these."""

    def check(self, value: Any) -> dict[str, Any]:
        """Return the mapping."""
        if isinstance(value, str):
            from allrail.scenario.models import load_model

            return load_model(value)
        hint = "name a preset or a file, or write one of " + ", ".join(f"`{one}`" for one in FORMS)
        if not isinstance(value, dict):
            refuse("it is neither a name nor a mapping", hint=hint)
        for key in value:
            if key not in FORMS and key not in ("name", "defaults"):
                refuse(
                    f"there is no such form as `{key}`",
                    hint=did_you_mean(show(key), FORMS, others="the forms are"),
                )
        if len(set(value) & set(FORMS)) != 1:
            refuse("it takes exactly one form", hint=hint)
        return dict(value)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        name = {"name": {"type": "string"}}
        mappings = [
            {
                "type": "object",
                "description": about,
                "properties": {**name, form: {}},
                "required": [form],
                "additionalProperties": False,
            }
            for form, about in FORMS.items()
        ]
        return {"anyOf": [{"type": "string", "description": "A preset or a file."}, *mappings]}


class Mapped(_Field):
    """Degree to dimensions or factors of them: `{tp: [0], dp: [1, 2]}`, `{tp: ["1[0:8]"]}`."""

    _HINT = "for example `{tp: [0], dp: [1, 2]}`, or `1[0:8]` for the inner 8 of dimension 1"

    def check(self, value: Any) -> dict[str, tuple[int | str, ...]]:
        """Return the mapping."""
        if not isinstance(value, dict):
            refuse("it is not a mapping of degrees to dimensions", hint=self._HINT)
        found: dict[str, tuple[int | str, ...]] = {}
        for key, places in value.items():
            if key not in AXES:
                near = did_you_mean(show(key), AXES, others="the degrees are")
                refuse(f"there is no such degree as `{show(key)}`", hint=near)
            listed = list(places) if isinstance(places, (list, tuple)) else [places]
            for place in listed:
                whole = isinstance(place, int) and not isinstance(place, bool) and place >= 0
                if not whole and not isinstance(place, str):
                    refuse(f"`{show(place)}` is no dimension", hint=self._HINT)
            found[key] = tuple(listed)
        return found

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        place = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}
        places = {"anyOf": [place, {"type": "array", "items": place}]}
        properties = dict.fromkeys(AXES, places)
        return {"type": "object", "properties": properties, "additionalProperties": False}


class WhatIfName(_Field):
    """An assumption that is not so, by name."""

    _DOUBLED = re.compile(r"dim([1-9]\d{0,2})_x2")
    _NAMES = ("infinite_bandwidth", "ideal_schedule", "dim1_x2", "no_straggler")

    def check(self, value: Any) -> str:
        """Return the name."""
        known = value in self._NAMES or (
            isinstance(value, str) and self._DOUBLED.fullmatch(value) is not None
        )
        if not known:
            near = did_you_mean(show(value), self._NAMES, others="the assumptions are")
            refuse("there is no such assumption", hint=near)
        return str(value)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        doubled = {"type": "string", "pattern": f"^{self._DOUBLED.pattern}$"}
        return {"anyOf": [{"type": "string", "enum": list(self._NAMES)}, doubled]}

    @classmethod
    def fits(cls, name: str, count: int) -> None:
        """Refuse a dimension that the fabric has not.

        Args:
            name: The assumption.
            count: How many dimensions there are.

        Raises:
            InputError: It names none of them.
        """
        doubled = cls._DOUBLED.fullmatch(name)
        if doubled is not None and int(doubled[1]) > count:
            raise InputError(
                f"the fabric has no dimension {doubled[1]}",
                hint=f"its dimensions are `dim1` to `dim{count}`",
                field="what_if",
                value=name,
            )

    @classmethod
    def tree(cls, name: str) -> str | dict[str, int]:
        """Return what the Rust core reads.

        Args:
            name: The assumption.
        """
        doubled = cls._DOUBLED.fullmatch(name)
        if doubled is not None:
            return {"double": int(doubled[1]) - 1}
        return "ideal" if name == "ideal_schedule" else name


class Parallelism(Node):
    """How a model is cut over the NPUs; the product of all degrees is their number."""

    dp: Annotated[int, Count(1)] | None = Field(
        default=None, description="Data: replicas; what remains of the NPUs if left out."
    )
    tp: Annotated[int, Count(1)] = Field(
        default=1, description="Tensor: each layer cut as Megatron does."
    )
    pp: Annotated[int, Count(1)] = Field(default=1, description="Pipeline: stages.")
    ep: Annotated[int, Count(1)] = Field(
        default=1,
        description="Expert: replicas that share one set of experts; the rest is replicated.",
    )
    op: Annotated[int, Count(1)] = Field(
        default=1, description="Operator: shards of the space of an image, with halos."
    )
    sp: Annotated[bool, Flag()] = Field(
        default=False,
        description="Sequence: with `tp`, reduce-scatter and all-gather instead of all-reduce.",
    )
    zero: Annotated[int, Count(0, 3, hint="ZeRO has the stages 0 to 3")] = Field(
        default=0,
        description="ZeRO: 1 cuts the optimizer's state over replicas, 2 the gradients too, 3 the "
        "parameters too.",
    )
    microbatches: Annotated[int, Count(1)] | None = Field(
        default=None,
        description="Into how many parts the batch is cut; the number of stages if left out.",
    )
    schedule: Annotated[
        str,
        OneOf("gpipe", "1f1b", "interleaved", "chimera", what="a schedule of a pipeline"),
    ] = Field(default="1f1b", description="In which order a stage runs its microbatches.")
    virtual_stages: Annotated[int, Count(1)] | None = Field(
        default=None,
        description="`interleaved`: pieces of the model per stage; 2 if left out.",
    )
    map: Annotated[dict[str, tuple[int | str, ...]], Mapped()] = Field(
        default={},
        description="Over which dimensions, from 0, each degree lies. `1[0:8]` is the inner 8 of "
        "dimension 1, `1[8:]` the rest; parts of a dimension share its bandwidth.",
    )


class Compute(Node):
    """How fast an NPU computes: a roofline, or measured times."""

    device: Annotated[str, Text()] | None = Field(
        default=None, description="A preset: `a100`, `h100`, `v100`, `tpu_v3`, `tpu_v4`."
    )
    peak: Annotated[str, Rate()] | None = Field(
        default=None,
        description="Such as `312 TFLOP/s`; the device's at the precision if left out.",
    )
    memory_bandwidth: Annotated[str, Quantity("bandwidth")] | None = Field(
        default=None, description="The device's if left out."
    )
    memory: Annotated[str, Quantity("size", positive=True)] | None = Field(
        default=None, description="How much of it there is; the device's if left out."
    )
    efficiency: Annotated[float, Number(above=0, example="0.5")] = Field(
        default=0.5, description="The part of the peak that is reached."
    )
    scale: Annotated[float, Number(above=0, example="1.2")] = Field(
        default=1.0, description="Every compute time is multiplied by it."
    )
    forward: Annotated[str, Quantity("time")] | None = Field(
        default=None,
        description="Measured: the forward pass of a replica's batch on one NPU; the roofline "
        "shares it out over layers.",
    )
    backward: Annotated[str, Quantity("time")] | None = Field(
        default=None, description="Measured: its backward pass."
    )
    must_fit: Annotated[bool, Flag()] = Field(
        default=False,
        description="Refuse a layout that does not fit the memory; otherwise it is only said.",
    )


class Straggler(Node):
    """Ranks whose compute takes longer."""

    ranks: tuple[Annotated[int, Count(0)], ...] = Field(min_length=1, description="Which.")
    factor: Annotated[float, Number(above=0, example="1.5")] = Field(
        description="Their compute times are multiplied by it."
    )


class Jitter(Node):
    """Seeded variation of compute times."""

    deviation: Annotated[float, Number(low=0, example="0.05")] = Field(
        description="The standard deviation of the factor around 1: `0.05` is 5 %."
    )


class SlowLinks(Node):
    """Links that carry less than they should, drawn by the scenario's seed."""

    share: Annotated[float, Number(low=0, example="0.01")] = Field(
        description="The part of all links that is slow: `0.01` is one in a hundred."
    )
    factor: Annotated[float, Number(above=0, example="0.5")] = Field(
        description="A slow link has this part of its bandwidth, 0.001 to 1."
    )
    dimensions: tuple[Annotated[int, Count(0)], ...] | None = Field(
        default=None,
        description="On which dimensions, from 0; on all if left out. Not in `flows` and "
        "`packets`, where a topology's cables are slow.",
    )


_PRECISIONS = ("fp32", "fp16", "bf16", "fp8")


class Workload(Node):
    """What is trained, on how many samples, cut how."""

    name: Annotated[str, Text()] = Field(
        default="", description="Its name in results; the model's if left out."
    )
    model: Annotated[dict[str, Any], Model()] = Field(
        description="A preset's name, a `config.json`, a preset's file, or a mapping with one form."
    )
    batch_per_npu: Annotated[int, Count(1)] | None = Field(
        default=None,
        description="Samples per iteration of a replica: the NPUs of `tp`, `pp` and `op` work on "
        "them together, those of `dp` and `ep` each have their own.",
    )
    sequence_length: Annotated[int, Count(1)] | None = Field(
        default=None, description="Tokens per sample; the model's own if left out."
    )
    precision: Annotated[str, OneOf(*_PRECISIONS, what="a precision")] = Field(
        default="fp16", description="Of parameters, activations and gradients."
    )
    gradient_precision: Annotated[str, OneOf(*_PRECISIONS, what="a precision")] | None = Field(
        default=None, description="Of the gradients that travel, where it is another."
    )
    parallelism: Parallelism = Field(
        default=Parallelism(), description="How it is cut over the NPUs."
    )
    compute: Compute = Field(default=Compute(), description="How fast an NPU computes.")
    optimizer: Annotated[str, OneOf("adam", "momentum", "sgd", "none", what="an optimizer")] = (
        Field(
            default="adam",
            description="What is kept beside parameters and gradients, and what an update costs.",
        )
    )
    iterations: Annotated[int, Count(1)] = Field(
        default=2,
        description="How many are simulated; the first is warm-up where there are more.",
    )
    stragglers: tuple[Straggler, ...] = Field(
        default=(), description="Ranks that compute more slowly."
    )
    jitter: Jitter | None = Field(
        default=None, description="Random variation of every compute time."
    )
    slow_links: SlowLinks | None = Field(
        default=None, description="Links that carry less than they should."
    )

    @property
    def title(self) -> str:
        """What people call it."""
        return self.name or str(self.model.get("name", "workload"))

    @property
    def whole(self) -> Workload:
        """With the model's defaults where nothing is said."""
        given = self.model_dump(exclude_unset=True)
        defaults = dict(self.model.get("defaults", {}))
        for key, value in defaults.items():
            if isinstance(value, dict) and isinstance(given.get(key), dict):
                given[key] = {**value, **given[key]}
        return Workload.model_validate({**defaults, **given})

    def tree(self) -> dict[str, Any]:
        """Return what the Rust core reads."""
        tree = self.whole.model_dump(exclude_none=True)
        model = {key: value for key, value in self.model.items() if key in FORMS}
        return {**tree, "name": self.title, "model": model}
