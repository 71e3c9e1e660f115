"""What a scenario has decided, with what it leaves out filled in."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from math import prod
from typing import Any

from allrail.base.errors import InputError
from allrail.base.progress import Progress
from allrail.scenario import Scenario, ScenarioLike, load_scenario
from allrail.scenario.dimensions import dimensions_of
from allrail.scenario.fields import table
from allrail.scenario.models import transformer_of
from allrail.scenario.overrides import Sets
from allrail.scenario.policies import keys_of
from allrail.search.layouts.mapping import numberings
from allrail.search.layouts.tools import TOOLS
from allrail.simulation.api import simulate
from allrail.simulation.kinds import needs

AXES = ("tp", "cp", "pp", "ep", "op")
"""What cuts a replica, and shares its experts; `dp` is what remains of the NPUs."""


class Inapplicable(Exception):  # noqa: N818, it is an answer
    """A tool cannot do what was decided; its text says what.

    Args:
        why: What it lacks.
        hint: What to do.
    """

    def __init__(self, why: str, *, hint: str = "leave it out, or change the layout") -> None:
        super().__init__(why)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Decision:
    """A layout and a schedule, as tools ask for them.

    Attributes:
        scenario: What it was read from.
        tree: The same as the core reads it.
        dimensions: Of the fabric, the innermost first; empty where it is no product of dimensions.
        npus: That train.
        degrees: Of every axis, `dp` too.
        samples: Of a replica and step.
        microbatches: Of a replica and step.
        transformer: The sizes of the model, where it is a transformer that says them.
        progress: Told how far simulations are that files take.
    """

    scenario: Scenario
    tree: dict[str, Any]
    dimensions: tuple[dict[str, Any], ...]
    npus: int
    degrees: dict[str, int]
    samples: int
    microbatches: int
    transformer: dict[str, Any] | None
    progress: Progress | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls, scenario: ScenarioLike, *, sets: Sets = (), progress: Progress | None = None
    ) -> Decision:
        """Read a scenario of a training step.

        Args:
            scenario: A file, a mapping or a `Scenario`.
            sets: Overrides.
            progress: Told how far simulations are.

        Raises:
            InputError: Something in it is wrong, as `simulate` would say.
        """
        loaded = needs("workload", load_scenario(scenario, sets=sets))
        # Whatever cannot be simulated is refused with its reason.
        simulate(loaded, sets={"workload.iterations": 1}, progress=progress)
        tree = json.loads(loaded.to_json())
        if "parallelism" not in tree["workload"]:
            raise InputError(
                "its ranks and what they exchange are in the file",
                field="workload.model",
                hint="name a model and a layout: tools want both",
            )
        parallelism = tree["workload"]["parallelism"]
        try:
            dimensions = tuple(
                one.model_dump(exclude_defaults=True)
                for one in dimensions_of(loaded.fabric).dimensions
            )
        except InputError:
            dimensions = ()
        degrees = {axis: int(parallelism.get(axis) or 1) for axis in AXES}
        npus = prod(int(one["size"]) for one in dimensions) if dimensions else 0
        if parallelism.get("dp"):
            degrees["dp"] = int(parallelism["dp"])
            npus = prod(degrees.values())
        elif npus:
            degrees["dp"] = npus // prod(degrees.values())
        else:
            raise InputError(
                "how many replicas there are is not said",
                field="workload.parallelism.dp",
                hint="name it: this fabric is no product of dimensions",
            )
        samples, microbatches = _batch(tree["workload"], degrees)
        sizes = transformer_of(tree["workload"]["model"])
        return cls(loaded, tree, dimensions, npus, degrees, samples, microbatches, sizes, progress)

    @property
    def workload(self) -> dict[str, Any]:
        """The key `workload`."""
        found: dict[str, Any] = self.tree["workload"]
        return found

    @property
    def parallelism(self) -> dict[str, Any]:
        """The key `workload.parallelism`."""
        found: dict[str, Any] = self.workload["parallelism"]
        return found

    @property
    def schedule(self) -> dict[str, Any]:
        """The key `schedule`."""
        found: dict[str, Any] = self.tree["schedule"]
        return found

    @property
    def tensor(self) -> dict[str, Any]:
        """The tensor scheduler and its keys."""
        found: dict[str, Any] = self.schedule.get("tensor") or {"policy": "fifo"}
        return found

    @property
    def tensor_policy(self) -> dict[str, Any]:
        """The core's row of the tensor scheduler: `reads`, `crosses_barrier`, `one_order`."""
        rows = table("tensor_policies")
        return next(row for row in rows if row["name"] == self.tensor["policy"])

    @property
    def has_barrier(self) -> bool:
        """Whether all layers of a step wait for all gradients of the one before."""
        said = self.tensor.get("barrier")
        return not self.tensor_policy["crosses_barrier"] if said is None else bool(said)

    def reads(self, key: str) -> bool:
        """Whether its tensor scheduler has such a key.

        Args:
            key: Of `schedule.tensor`, such as `partition`.
        """
        return key in keys_of("tensor_policies", self.tensor["policy"])

    @property
    def graphs(self) -> bool:
        """Whether kernels are launched as CUDA graphs."""
        return bool(self.workload["compute"]["launch"] == "graph")

    @property
    def stages(self) -> tuple[int, ...]:
        """Places of each piece of a pipeline, as `workload.parallelism.stages` counts them.

        Of what the scenario leaves out, as the core cuts: as many each as it goes, the first pieces
        one more. Empty without a pipeline, and where the model is no transformer.
        """
        sizes, parallelism = self.transformer, self.parallelism
        if self.degrees["pp"] == 1 or sizes is None:
            return ()
        if parallelism.get("stages"):
            return tuple(parallelism["stages"])
        places = int(sizes["layers"]) + 2 * int(parallelism["ends_as_layers"])
        each, more = divmod(places, self.pieces)
        return tuple(each + (piece < more) for piece in range(self.pieces))

    @property
    def is_uneven(self) -> bool:
        """Whether tools have to be told which layers lie on which piece."""
        return bool(self.parallelism.get("stages")) or len(set(self.stages)) > 1

    @property
    def layers(self) -> tuple[int, ...]:
        """Blocks of each piece: its places without those of the embedding and the head."""
        counts, ends = list(self.stages), int(self.parallelism["ends_as_layers"])
        counts[0] -= ends
        counts[-1] -= ends
        return tuple(counts)

    @property
    def pieces(self) -> int:
        """Of the model: the pipeline's stages, times those that each has of its own."""
        virtual = self.parallelism.get("virtual_stages") or 2
        many = self.parallelism["schedule"] == "interleaved"
        return self.degrees["pp"] * (int(virtual) if many else 1)

    @property
    def sequence(self) -> int | None:
        """Tokens of a sample."""
        said = self.workload.get("sequence_length")
        return said or (self.transformer or {}).get("sequence_length")

    @property
    def replicas(self) -> int:
        """Ranks that have samples of their own: of `dp` and `ep`."""
        return self.degrees["dp"] * self.degrees["ep"]

    @property
    def micro_batch(self) -> int:
        """Samples of a microbatch."""
        return self.samples // self.microbatches

    @property
    def global_batch(self) -> int:
        """Samples of a step of the whole job."""
        return self.samples * self.replicas

    def title(self, comment: str = "#") -> str:
        """Return the line that files begin with."""
        workload = self.scenario.workload
        name = "" if workload is None else workload.title
        axes = ", ".join(f"{axis} {size}" for axis, size in self.degrees.items() if size > 1)
        return f"{comment} allrail apply: {name} on {self.npus} NPUs ({axes or 'one rank'})\n"

    @property
    def numberings(self) -> tuple[str, ...]:
        """Which numberings of ranks place them as the scenario does."""
        sizes = tuple(int(one["size"]) for one in self.dimensions)
        return numberings({**self.parallelism, **self.degrees}, sizes, self.npus)

    @property
    def wants_one_connection(self) -> bool:
        """Whether kernels must start in the program's order: `CUDA_DEVICE_MAX_CONNECTIONS=1`.

        Megatron-LM refuses to start otherwise before Blackwell, where layers or samples are cut and
        Megatron-FSDP, which wants the opposite, is not used.
        """
        cut = self.degrees["tp"] > 1 or self.degrees["cp"] > 1
        return cut and bool(self.parallelism["zero"] < 2)

    def needs(self, tool: str) -> None:
        """Refuse a layout that a tool does not have.

        Args:
            tool: Of `TOOLS`.

        Raises:
            Inapplicable: It lacks something.
        """
        workload = {**self.workload, "parallelism": {**self.parallelism, **self.degrees}}
        sizes = {**(self.transformer or {}), "sequence_length": self.sequence}
        why = TOOLS[tool].lacks(workload, sizes=sizes, numberings=self.numberings, alone=False)
        if why:
            raise Inapplicable(why)


def _batch(workload: dict[str, Any], degrees: dict[str, int]) -> tuple[int, int]:
    """Samples and microbatches of a replica."""
    replicas = degrees["dp"] * degrees["ep"]
    samples = workload.get("batch_per_replica")
    if samples is None:
        samples = (workload.get("global_batch") or replicas) // replicas
    micro = workload.get("micro_batch")
    microbatches = workload["parallelism"].get("microbatches")
    if microbatches is None:
        microbatches = samples // micro if micro else degrees["pp"]
    return int(samples), int(microbatches)
