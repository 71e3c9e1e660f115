"""The first line of a workload file: the training loop and its options.

ASTRA-sim reads options by position, SimAI by name; here they are read by name, in any order:

| option | of | means |
|---|---|---|
| `model_parallel_NPU_group: N` | transformer loops | NPUs that hold one model together |
| `checkpoints: N a b …` | `HYBRID_TRANSFORMER_FWD_IN_BCKWD` | layers whose activations are kept |
| `checkpoint_initiates: N a b …` | the same | layers that need the forward pass again |
| a number, or `DLRM_LAST_BOTTOM_LAYER: N` | DLRM loops | after it, the embeddings are needed |
| `ep: N`, `pp: N`, `all_gpus: N` | SimAI | sizes of expert groups, of pipelines, of the job |
| `vpp: N`, `ga: N`, `pp_comm: BYTES` | SimAI | of its pipeline |
| `mode: N` | SimAI | read, and not used: neither by SimAI |

SimAI's simulators run the layers as they are listed: those of one pipeline stage, all microbatches
one after the other. They read `pp`, `vpp`, `ga` and `pp_comm` (`Workload.cc`), and use `pp` for the
size of data-parallel groups alone; so it is done here. The report of its analytical mode, which
sums closed forms without simulating, adds two more (`Layer.cc`): a bubble, `(pp - 1) / (ga * vpp)`
of all layers' time but the embedding's, and `2 * vpp * ga * pp_comm` over a bandwidth that the user
gives. In SimAI's files an all-gather's bytes are those of the gathered buffer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from allrail.base.errors import did_you_mean
from allrail.scenario.astra_sim.notes import Notes
from allrail.scenario.astra_sim.source import Source
from allrail.scenario.places import Place

TRANSFORMERS = ("HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD")
DLRMS = ("HYBRID_DLRM", "HYBRID_DLRM_ENHANCED")

LOOPS = (
    "DATA",
    "MODEL",
    "HYBRID_DATA_MODEL",
    "HYBRID_MODEL_DATA",
    *TRANSFORMERS,
    *DLRMS,
    "HYBRID_CUSTOMIZED",
    "DISTRIBUTED_INFERENCE",
    "MICRO",
)

COUNTS = {
    "model_parallel_NPU_group": "model_parallel",
    "ep": "expert_parallel",
    "pp": "pipeline_parallel",
    "vpp": "vpp",
    "ga": "ga",
    "all_gpus": "all_gpus",
    "mode": "mode",
}
SIMAI = ("expert_parallel", "pipeline_parallel", "vpp", "ga", "all_gpus", "pp_comm")
"""What only SimAI's files say."""
LISTS = {"checkpoints": "checkpoints", "checkpoint_initiates": "checkpoint_initiates"}


@dataclass(frozen=True, slots=True)
class AstraHeader:
    """The first line.

    Attributes:
        loop: The training loop.
        options: Those that the core takes, by its names.
        all_gpus: SimAI: how many NPUs the job has; None if it is not said.
    """

    loop: str
    options: dict[str, Any] = field(default_factory=dict)
    all_gpus: int | None = None


def read_header(line: int, text: str, *, source: Source, notes: Notes) -> AstraHeader:
    """The training loop and its options.

    Args:
        line: The number of the line.
        text: The line.
        source: For errors.
        notes: Takes what SimAI says and is not modelled.

    Raises:
        InputError: There is no such loop, or an option is missing, unknown or wrong.
    """
    loop, *words = text.split()
    source.places.known[("training loop",)] = Place(source.file, line)
    if loop not in LOOPS:
        raise source.error(
            "it is not a training loop of ASTRA-sim",
            at="training loop",
            value=loop,
            hint=did_you_mean(loop, LOOPS, others="it is one of"),
        )
    if loop in DLRMS:
        return AstraHeader(loop, {"last_bottom_layer": _last_bottom(line, loop, words, source)})
    if loop not in TRANSFORMERS:
        if words:
            raise source.error(
                f"`{loop}` takes no options",
                at="training loop",
                value=" ".join(words),
                hint="put the number of layers on the next line",
            )
        return AstraHeader(loop)
    values = _options(line, words, source)
    if "model_parallel" not in values:
        raise source.error(
            "it does not say how many NPUs hold one model",
            at="training loop",
            value=loop,
            hint="write `model_parallel_NPU_group: 4` after it",
        )
    _simai_notes(values, notes)
    taken = ("model_parallel", "expert_parallel", "pipeline_parallel", *LISTS.values())
    if loop == "HYBRID_TRANSFORMER":
        taken = taken[:3]
    options = {name: values[name] for name in taken if name in values}
    if any(name in values for name in SIMAI):
        options["gathered"] = True
    return AstraHeader(loop, options, values.get("all_gpus"))


def _last_bottom(line: int, loop: str, words: list[str], source: Source) -> int:
    at = "last bottom layer"
    source.places.known[(at,)] = Place(source.file, line)
    if len(words) == 2 and words[0].rstrip(":") == "DLRM_LAST_BOTTOM_LAYER":
        words = words[1:]
    if len(words) != 1:
        raise source.error(
            f"`{loop}` is followed by one number: the layer after which the embeddings are needed",
            at=at,
            value=" ".join(words) or None,
            hint=f"write `{loop} 4`",
        )
    return source.count(words[0], at=at, at_least=0, at_most=1_000_000)


def _options(line: int, words: list[str], source: Source) -> dict[str, Any]:
    values: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        name = word.rstrip(":")
        source.places.known[(name,)] = Place(source.file, line)
        if name in LISTS:
            count = source.count(_next(rest, name, source), at=name, at_least=0)
            values[LISTS[name]] = [
                source.count(_next(rest, name, source), at=name, at_least=0) for _ in range(count)
            ]
        elif name in COUNTS:
            values[COUNTS[name]] = source.count(_next(rest, name, source), at=name)
        elif name == "pp_comm":
            values[name] = source.number(
                _next(rest, name, source), at=name, unit="bytes", at_least=0, at_most=2**50
            )
        else:
            raise source.error(
                "it is not an option of a transformer loop",
                at="training loop",
                value=word,
                hint=did_you_mean(name, (*COUNTS, *LISTS, "pp_comm"), others="it is one of"),
            )
    return values


def _next(words: Any, name: str, source: Source) -> str:
    for word in words:
        return str(word)
    raise source.error(
        "the line ends before its value",
        at=name,
        hint="a list is its length and then its entries: `checkpoints: 2 0 9`",
    )


def _simai_notes(values: dict[str, Any], notes: Notes) -> None:
    """What SimAI's options say and neither SimAI's simulators nor this one run."""
    stages = values.get("pipeline_parallel", 1)
    if stages > 1:
        share = (stages - 1) / (values.get("ga", 1) * values.get("vpp", 1))
        notes.add(
            "pp",
            "the layers of one pipeline stage are run, as SimAI's simulators run them, without "
            "bubbles and messages between stages; SimAI's analytical mode would add a bubble of "
            f"{share:.4g} of the layers' time",
        )
