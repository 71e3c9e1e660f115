"""The prediction of a run: its scenario, in the network model `dims`, and what comes out.

Where the table says nothing of recomputation, it is the least that fits the memory, and the band
from none to full is told.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from allrail import _core
from allrail.base.errors import InputError
from allrail.results.result import Result
from allrail.results.training_parts import Memory
from allrail.scenario import load_scenario
from allrail.simulation.api import simulate
from allrail.simulation.kinds import needs
from allrail.simulation.many import of_core
from allrail.simulation.steady import of_all, simulated_counts
from allrail_reproduce.runs.layout import Layout, layout_of, visited_nodes, why_no_layout
from allrail_reproduce.runs.machine import Machine, device_of, machine_of, slowest
from allrail_reproduce.runs.model import model_of
from allrail_reproduce.runs.software import Software, known_of, software_of
from allrail_reproduce.runs.table import Run
from allrail_reproduce.runs.units import TOKENS, Measured, Sizes, flops_per_token, measured_of

RECOMPUTED = ("none", "selective", "full")
"""What the software of these runs has, from the least to the most."""

SLOWED = 0.1
"""How much longer computing takes beside a collective: NCCL's kernels take about a tenth of an
H100's and an A100's streaming multiprocessors (16 channels of 108 to 132)."""


@dataclass(frozen=True)
class Predicted:
    """What allrail says of a run.

    Attributes:
        value: In the unit of what was measured, or tokens a second and GPU.
        unit: Of it.
        tokens: A second and GPU.
        memory: Bytes of the fullest GPU, as the run's software shows them (`Software.shows`).
        parts: The same by kind, with what `nvidia-smi` shows besides.
        fits: Whether it has so many.
        band: Of `value`, from no recomputation to full, where the table says nothing of it.
        assumed: What the table does not say.
    """

    value: float
    unit: str
    tokens: float
    memory: float | None
    parts: dict[str, float]
    fits: bool | None
    band: tuple[float, float] | None = None
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """A run beside its prediction.

    Attributes:
        run: The line.
        measured: What was measured.
        predicted: What comes out; None if it is refused.
        refused: Why.
    """

    run: Run
    measured: Measured | None
    predicted: Predicted | None
    refused: str | None = None

    @property
    def ratio(self) -> float | None:
        """Predicted over measured."""
        if self.measured is None or self.predicted is None:
            return None
        return self.predicted.value / self.measured.value

    @property
    def memory_ratio(self) -> float | None:
        """Predicted memory over what the table states."""
        stated = self.run.stated_memory
        if stated is None or self.predicted is None or self.predicted.memory is None:
            return None
        return self.predicted.memory / stated

    def to_dict(self) -> dict[str, Any]:
        """The row as plain values."""
        one, measured = self.predicted, self.measured
        return {
            "id": self.run.id,
            "measured": None if measured is None else measured.value,
            "predicted": None if one is None else one.value,
            "unit": measured.unit if measured is not None else (one.unit if one else TOKENS),
            "refused": self.refused,
            "ratio": self.ratio,
            "band": None if one is None or one.band is None else list(one.band),
            "memory_gb": None if one is None or one.memory is None else one.memory / 1e9,
            "memory_parts_gb": {}
            if one is None
            else {name: bytes_ / 1e9 for name, bytes_ in one.parts.items()},
            "memory_stated_gb": None
            if self.run.stated_memory is None
            else self.run.stated_memory / 1e9,
            "memory_ratio": self.memory_ratio,
            "fits": None if one is None else one.fits,
            "assumed": [] if one is None else list(one.assumed),
        }


@dataclass
class Job:
    """A run as the parts of a scenario."""

    run: Run
    machine: Machine
    software: Software
    layout: Layout
    model: dict[str, Any]
    assumed: list[str] = field(default_factory=list)

    def scenario(self, *, recompute: str, microbatches: int) -> dict[str, Any]:
        """Return the scenario of a step with so many microbatches."""
        samples = self.layout.samples
        software = self.software
        return {
            "schema_version": 1,
            "fabric": self.machine.fabric,
            "network_model": "dims",
            "workload": {
                "model": self.model,
                "sequence_length": self.run.count("sequence_length"),
                "precision": software.precision,
                "gradient_precision": software.gradients,
                "batch_per_replica": samples * microbatches,
                "parallelism": {
                    **self.layout.parallelism,
                    "microbatches": microbatches,
                    "recompute": recompute,
                },
                "compute": {**software.compute, "scale": slowest(self.run.count("gpus") or 1)},
                "exchange_slowdown": SLOWED,
            },
        }


@dataclass(frozen=True)
class Step:
    """A step: seconds of all microbatches, and the memory of one with the most in flight.

    Attributes:
        seconds: Of all of it.
        result: Of a simulation with as many microbatches as are in flight at most.
        memory: By kind, bytes.
        capacity: What the device has.
    """

    seconds: float
    result: Result
    memory: dict[str, float]
    capacity: float | None

    @property
    def fits(self) -> bool | None:
        """Whether the device has enough for all but fragmentation."""
        if self.capacity is None or not self.memory:
            return None
        return sum(self.memory.values()) - self.memory["fragmentation"] <= self.capacity


def job_of(run: Run) -> Job | str:
    """Return a run as a job, or why it is refused."""
    why = why_no_layout(run)
    if why is not None:
        return why
    device = device_of(run)
    if device is None:
        return f"no such device is known: {run.text('gpu') or 'none given'}"
    model = model_of(run)
    if model is None:
        return "neither a preset nor the sizes of its model are known"
    machine = machine_of(run, device)
    software = software_of(run, device)
    layout = layout_of(run, machine.sizes, sharded=software.sharded)
    if software.sums:
        layout.parallelism["separate_sums"] = True
    if software.early and layout.parallelism["tp"] > 1:
        layout.parallelism["overlap_sums"] = False
    model["transformer"]["dropout"] = software.dropout
    # Llama's reference code and torchtitan's give each head of queries its copy.
    model["transformer"]["repeated_keys"] = run.is_torch
    experts = model["transformer"].get("experts")
    if experts and software.once:
        layout.parallelism |= visited_nodes(layout, machine.sizes[0], experts.get("top_k", 1))
    assumed = [*machine.assumed, *software.assumed, *layout.assumed]
    job = Job(run, machine, software, layout, model, assumed)
    whole = layout.pp == 1 and layout.parallelism["zero"] == 3 and run.count("global_batch")
    if whole and run.count("micro_batch") is None:
        job.layout = _largest(job)
        assumed.append(f"a microbatch of {job.layout.samples}, the largest that fits")
    return job


def _largest(job: Job) -> Layout:
    """As few microbatches as memory allows, as each gathers all parameters anew."""
    layout = job.layout
    batch = layout.samples * layout.microbatches
    for samples in range(batch, 0, -1):
        if batch % samples:
            continue
        cut = replace(layout, samples=samples, microbatches=batch // samples)
        held = memory_of(replace(job, layout=cut), job.software.recompute or RECOMPUTED[0])
        if held.fits is not False:
            return cut
    return layout


def memory_of(job: Job, recompute: str) -> Memory:
    """Return what a job's fullest GPU holds, without a simulation.

    Args:
        job: The job.
        recompute: What is recomputed.

    Raises:
        InputError: The layout cannot be.
    """
    if recompute == "half":
        # Every second layer.
        none, full = memory_of(job, "none"), memory_of(job, "full")
        parts = {name: (part + full[name]) // 2 for name, part in none.items()}
        return replace(full, **parts, needed=(none.needed + full.needed) // 2)
    count = simulated_counts(job.layout.pp, job.layout.microbatches)[-1]
    scenario = needs(
        "workload", load_scenario(job.scenario(recompute=recompute, microbatches=count))
    )
    tree = of_core(_core.bound_many([scenario.to_json()], 1, None)[0], scenario)
    if isinstance(tree, InputError):
        raise tree
    return Memory.from_dict(tree["memory"])


def step_of(job: Job, recompute: str) -> Step:
    """Simulate a step of a job.

    Args:
        job: The job.
        recompute: What is recomputed.

    Raises:
        InputError: The layout cannot be.
    """
    if recompute == "half":
        # Every second layer.
        none, full = step_of(job, "none"), step_of(job, "full")
        memory = {name: (none.memory[name] + full.memory[name]) / 2 for name in none.memory}
        seconds = (none.seconds + full.seconds) / 2
        return Step(seconds, full.result, memory, full.capacity)

    def simulated(microbatches: int) -> Result:
        return _simulated(json.dumps(job.scenario(recompute=recompute, microbatches=microbatches)))

    count = job.layout.microbatches
    counts = simulated_counts(job.layout.pp, count)
    results = [simulated(one) for one in counts]
    times = [one.step_time_us for one in results]
    held = results[-1].memory
    return Step(
        of_all(times, counts, count) / 1e6,
        results[-1],
        {} if held is None else dict(held.items()),
        None if held is None else held.capacity,
    )


@lru_cache(maxsize=64)
def _simulated(scenario: str) -> Result:
    """A step; rows that differ in what was measured alone share it."""
    return simulate(json.loads(scenario))


def predict(run: Run) -> Outcome:
    """Predict a run.

    Args:
        run: A line of a table.
    """
    device = device_of(run)
    measured = measured_of(run, None if device is None else known_of(device).peak)
    try:
        job = job_of(run)
        if isinstance(job, str):
            return Outcome(run, measured, None, job)
        return Outcome(run, measured, _predicted(job, measured))
    except InputError as error:
        return Outcome(run, measured, None, str(error).replace("\n\n", "; "))


def _predicted(job: Job, measured: Measured | None) -> Predicted:
    stated = job.software.recompute
    assumed = list(job.assumed)
    band = None
    if stated is not None:
        step = step_of(job, stated)
    else:
        steps = [step_of(job, one) for one in RECOMPUTED]
        fitting = [one for one in steps if one.fits is not False]
        step = fitting[0] if fitting else steps[-1]
        name = RECOMPUTED[steps.index(step)]
        assumed.append(f"recomputation {name}, the least that fits")
        values = [_value(job, one, measured) for one in steps]
        band = (min(values), max(values))
    return Predicted(
        value=_value(job, step, measured),
        unit=TOKENS if measured is None else measured.unit,
        tokens=_tokens(job, step),
        memory=job.software.shows(step.memory) if step.memory else None,
        parts=step.memory,
        fits=step.fits if job.software.judged else None,
        band=band,
        assumed=tuple(assumed),
    )


def _tokens(job: Job, step: Step) -> float:
    """Tokens a second and GPU."""
    layout, run = job.layout, job.run
    replicas = layout.parallelism["dp"] * layout.parallelism["ep"]
    samples = layout.samples * layout.microbatches * replicas
    tokens = samples * (run.count("sequence_length") or 1)
    return float(tokens / step.seconds / (run.count("gpus") or 1))


def _value(job: Job, step: Step, measured: Measured | None) -> float:
    tokens = _tokens(job, step)
    if measured is None or measured.unit == TOKENS:
        return tokens
    run, throughput = job.run, step.result.throughput
    if throughput is None or not throughput.tflops_per_npu or not throughput.tokens_per_s_per_npu:
        raise InputError("the FLOPs of its model are not known", field="model")
    model = 1e12 * throughput.tflops_per_npu / throughput.tokens_per_s_per_npu
    hardware = model * (throughput.hfu or 0) / (throughput.mfu or 1)
    transformer = job.model["transformer"]
    sizes = Sizes(
        layers=transformer["layers"],
        hidden=transformer["hidden"],
        vocabulary=transformer["vocabulary"],
        tokens=run.count("sequence_length") or 1,
        parameters=1e9 * (run.number("params_b") or 0),
        model_flops=model,
        again=max(0.0, hardware - model),
    )
    return tokens * flops_per_token(measured.kind, sizes) / 1e12
