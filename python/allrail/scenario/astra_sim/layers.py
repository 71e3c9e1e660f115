"""Rows of a workload file: a layer each.

Twelve fields: name, a reserved number, then a compute time (ns), a collective and its bytes for the
forward pass, the input gradient and the weight gradient, and the update time. With the loop
`HYBRID_CUSTOMIZED` a thirteenth names the layer's own parallelism.

SimAI's generator (AICB) writes the same with more names of collectives: `_EP` spans those who
share experts, `_DP_EP` those who hold the same ones. It also writes `BROADCAST`, which SimAI reads
and does not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from allrail.scenario.astra_sim.notes import Notes
from allrail.scenario.astra_sim.source import Source
from allrail.scenario.places import Place

KINDS = {
    "ALLREDUCE": "all_reduce",
    "REDUCESCATTER": "reduce_scatter",
    "ALLGATHER": "all_gather",
    "ALLTOALL": "all_to_all",
}

SUFFIXES = {"": None, "_EP": "experts", "_DP_EP": "expert_replicas"}
"""SimAI's, and whom the collective spans."""

NO_KINDS = {
    "ALLREDUCEALLTOALL": "ASTRA-sim reads it and stops at the first one that it should run",
}

PHASES = ("forward", "input-gradient", "weight-gradient")

FIELDS = (
    "name",
    "reserved",
    *(f"{phase} {what}" for phase in PHASES for what in ("compute time", "collective", "bytes")),
    "update time",
)

OWN = ("DATA", "MODEL", "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA")
"""What a layer of `HYBRID_CUSTOMIZED` may be."""

LARGEST_SIZE = 2**50
"""Bytes; the core takes 1 PiB at most."""

LONGEST_TIME = 86_400 * 10**9
"""In ns; the core takes a day at most."""


@dataclass(frozen=True, slots=True)
class AstraPhase:
    """What a layer does in one pass.

    Attributes:
        compute_ns: How long it computes.
        kind: The collective after it, in our words; None if there is none.
        size: Its bytes: what each NPU puts in.
        over: Whom it spans, where SimAI says so.
    """

    compute_ns: int
    kind: str | None
    size: int
    over: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As the core takes it."""
        tree: dict[str, Any] = {"compute_ns": self.compute_ns}
        if self.kind is not None:
            tree |= {"collective": self.kind, "bytes": self.size}
        return tree if self.over is None else tree | {"over": self.over}


@dataclass(frozen=True, slots=True)
class AstraLayer:
    """A layer.

    Attributes:
        name: Its name.
        line: Where it stands.
        forward: The forward pass.
        input_gradient: The gradient of its input.
        weight_gradient: The gradient of its weights.
        update_ns: What passes after each of its collectives.
        parallelism: Its own, with `HYBRID_CUSTOMIZED`.
    """

    name: str
    line: int
    forward: AstraPhase
    input_gradient: AstraPhase
    weight_gradient: AstraPhase
    update_ns: int
    parallelism: str | None = None

    @property
    def phases(self) -> tuple[AstraPhase, AstraPhase, AstraPhase]:
        """All three."""
        return self.forward, self.input_gradient, self.weight_gradient

    def to_json(self) -> dict[str, Any]:
        """As the core takes it."""
        tree: dict[str, Any] = {
            "name": self.name,
            "forward": self.forward.to_json(),
            "input_gradient": self.input_gradient.to_json(),
            "weight_gradient": self.weight_gradient.to_json(),
            "update_ns": self.update_ns,
        }
        return tree if self.parallelism is None else tree | {"parallelism": self.parallelism}


def read_layer(line: int, row: str, *, loop: str, source: Source, notes: Notes) -> AstraLayer:
    """A layer from its row.

    Args:
        line: Its number in the file.
        row: Its text.
        loop: The training loop of the file.
        source: For errors.
        notes: Takes collectives that are read and not run.

    Raises:
        InputError: A field is missing, is one too many or wrong.
    """
    own = loop == "HYBRID_CUSTOMIZED"
    fields = (*FIELDS, "parallelism") if own else FIELDS
    words = row.split()
    if len(words) != len(fields):
        few = len(words) < len(fields)
        raise source.error(
            f"it has {len(words)} of a layer's {len(fields)} fields"
            if few
            else f"it has {len(words)} fields, a layer has {len(fields)}",
            line=line,
            value=row,
            hint=f"the {len(words) + 1}th is the {fields[len(words)]}"
            if few
            else f"`{loop}` takes none after the {fields[-1]}",
        )
    values = dict(zip(fields, words, strict=True))
    for name in fields:
        source.places.known[(name,)] = Place(source.file, line)
    forward, input_gradient, weight_gradient = (
        _phase(phase, values, source, notes) for phase in PHASES
    )
    return AstraLayer(
        name=values["name"],
        line=line,
        forward=forward,
        input_gradient=input_gradient,
        weight_gradient=weight_gradient,
        update_ns=source.count(
            values["update time"], at="update time", at_least=0, at_most=LONGEST_TIME
        ),
        parallelism=source.choice(
            values["parallelism"], {name: name for name in OWN}, at="parallelism"
        )
        if own
        else None,
    )


def _phase(phase: str, values: dict[str, str], source: Source, notes: Notes) -> AstraPhase:
    time, size = (
        source.count(values[f"{phase} {what}"], at=f"{phase} {what}", at_least=0, at_most=limit)
        for what, limit in (("compute time", LONGEST_TIME), ("bytes", LARGEST_SIZE))
    )
    at = f"{phase} collective"
    text = values[at]
    if text in NO_KINDS:
        raise source.error(
            NO_KINDS[text], at=at, value=text, hint="write two layers, one a collective"
        )
    if text == "BROADCAST":
        notes.add(text, "SimAI does not run it either")
        return AstraPhase(time, None, 0)
    known = {"NONE": (None, None)} | {
        kind + suffix: (ours, over)
        for kind, ours in KINDS.items()
        for suffix, over in SUFFIXES.items()
    }
    kind, over = source.choice(text, known, at=at)
    return AstraPhase(time, kind, size, over) if kind is not None else AstraPhase(time, None, 0)
