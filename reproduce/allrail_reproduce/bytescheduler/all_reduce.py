"""BERT-large over machines of 8 V100, as BytePS' authors measure it, and on slower networks."""

from __future__ import annotations

from allrail_reproduce.bytescheduler.testbed import FULL_SPEED, NVLINK, Case, Network, Tensor
from allrail_reproduce.bytescheduler.work import Work
from allrail_reproduce.published import more_than, number
from allrail_reproduce.rows import Row

SOURCE = "bytedance/byteps, file `README.md`"
SLOWER = more_than(2.0, "SOSP'19, talk, BytePS: over Horovod on slower networks")
"""BytePS' `README.md` has "up to" twice; neither names the networks."""
SPEEDS = (FULL_SPEED, "25 Gb/s", "10 Gb/s")
BERT = Case("BERT-large", "bert_large", 64)
WORKLOAD = {
    "sequence_length": 128,
    "precision": "fp16",
    "compute": {"device": "v100", "efficiency": 0.4},
}

_WHY = (
    "compute from a roofline at 40 % of the V100's tensor cores, 64 sequences of 128 tokens, 336 M "
    "parameters in fp16; without GPUs that wait for one another, buffers and copies through the "
    "host, Horovod loses less than measured"
)


_SLOWER_WHY = (
    "the networks and models of the claim are not named. Where the link alone counts, a ring sends "
    "2 (p - 1)/p times the gradients each way over a worker's link and separate servers once, so "
    "that twice is the most"
)


def bert(work: Work) -> list[Row]:
    """Scaling efficiency on 32 machines, compute over step, and BytePS over Horovod.

    Args:
        work: What simulates.
    """
    rows = []
    ahead = []
    for bandwidth in SPEEDS:
        there = bandwidth == FULL_SPEED
        steps = []
        for name, servers, published in (("BytePS", True, 90.0), ("Horovod", False, 70.0)):
            network = Network(32, bandwidth, servers=servers, machine=NVLINK)
            tensors = network.candidates() if servers else network.baselines()
            results = work.simulate(
                [network.scenario(BERT, tensor, **WORKLOAD) for tensor in tensors]
            )
            best = min(results, key=lambda one: one.step_time_us)
            chosen = tensors[results.index(best)]
            steps.append(best.step_time_us)
            rows.append(
                Row(
                    f"BERT-large, 256 GPUs, {bandwidth}, {name}, efficiency",
                    100 * best.compute_us / best.step_time_us,
                    number(published, SOURCE) if there else None,
                    "%",
                    digits=1,
                    how=f"compute {best.compute_us / 1e3:.0f} ms, {_told(chosen)}",
                    why=_WHY if there else "",
                )
            )
        if not there:
            ahead.append(steps[1] / steps[0])
    rows.append(
        Row(
            "BERT-large, 256 GPUs, slower networks, BytePS over Horovod, most",
            max(ahead),
            SLOWER,
            "x",
            how=", ".join(f"{one} {x:.2f}" for one, x in zip(SPEEDS[1:], ahead, strict=True)),
            why=_SLOWER_WHY,
        )
    )
    return rows


def _told(tensor: Tensor) -> str:
    """The settings of a schedule, as tuned."""
    return ", ".join(f"{key} {value}" for key, value in tensor.items() if key != "policy")
