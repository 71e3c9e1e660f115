"""Steps of a small decoder on one GPU, eager and compiled, beside what allrail predicts for them.

The prediction uses the file that `calibrate` wrote. Where it is off by more than `FAR`, the part
fails: such a factor says that something is wrong, not that the model is rough.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from parts.calibrate import FILE
from place import NotHere, Place
from torch import nn
from torch.nn import functional

import allrail

FAR = 1.5
"""Predicted over measured, or the reverse, above which the part fails."""


class Block(nn.Module):
    """Attention and feed-forward part of a decoder, each behind a norm."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map batch × tokens × hidden to the same."""
        shape = (*x.shape[:2], self.heads, -1)
        query, key, value = (
            each.view(shape).transpose(1, 2) for each in self.qkv(self.before(x)).chunk(3, -1)
        )
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.between(x))))


class Decoder(nn.Module):
    """A GPT-2 of any size, whose head has the embedding's table."""

    def __init__(self, size: dict[str, int]) -> None:
        super().__init__()
        hidden = size["hidden"]
        self.words = nn.Embedding(size["vocabulary"], hidden)
        self.places = nn.Parameter(torch.zeros(size["positions"], hidden))
        self.blocks = nn.ModuleList(Block(hidden, size["heads"]) for _ in range(size["layers"]))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map batch × tokens to the loss of predicting them."""
        x = self.words(tokens) + self.places[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        scores = functional.linear(self.norm(x), self.words.weight)
        return functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())


def run(place: Place, folder: Path) -> dict[str, Any]:
    """Measure and predict, eager and compiled."""
    device = "a100" if place.rehearsal else str(folder / FILE)
    if not place.rehearsal and not (folder / FILE).exists():
        raise NotHere("`calibrate` wrote no file: run both parts")
    torch.use_deterministic_algorithms(mode=False)
    size = dict.fromkeys(("positions", "sequence_length"), 1024)
    size |= {"layers": 12, "hidden": 1024, "heads": 16, "vocabulary": 32768}
    batch, precision = 8, "bf16"
    if place.rehearsal:
        size |= {"layers": 2, "hidden": 64, "heads": 4, "vocabulary": 512, "sequence_length": 64}
        batch, precision = 2, "fp32"
    figures: dict[str, Any] = {}
    for launch in ("eager",) if place.rehearsal else ("eager", "compiled"):
        measured = 1e6 * _measured(place, size, batch, compiled=launch == "compiled")
        predicted = _predicted(device, size, batch, precision, launch)
        figures[launch] = {
            "measured_us": measured,
            "predicted_us": predicted,
            "predicted_over_measured": predicted / measured,
        }
    print(figures, flush=True)
    for launch, found in figures.items():
        ratio = found["predicted_over_measured"]
        if not place.rehearsal and not 1 / FAR < ratio < FAR:
            raise AssertionError(f"{launch}: predicted over measured is {ratio:.2f}; {figures}")
    return figures


def _measured(place: Place, size: dict[str, int], batch: int, *, compiled: bool) -> float:
    """Return the median of seconds per step."""
    torch.manual_seed(0)
    dtype = torch.float32 if place.rehearsal else torch.bfloat16
    model = Decoder(size).to(place.device, dtype)
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    ready: nn.Module = torch.compile(model) if compiled else model
    tokens = torch.randint(size["vocabulary"], (batch, size["sequence_length"])).to(place.device)
    times = []
    for _ in range(4 if place.rehearsal else 14):
        place.synchronize()
        begun = time.perf_counter()
        optimizer.zero_grad()
        ready(tokens).backward()
        optimizer.step()
        place.synchronize()
        times.append(time.perf_counter() - begun)
    return sorted(times[3:])[len(times[3:]) // 2]


def _predicted(device: str, size: dict[str, int], batch: int, precision: str, launch: str) -> float:
    """Return what the simulator says of the step, µs."""
    scenario = {
        "schema_version": 1,
        "fabric": {
            "dimensions": [{"kind": "switch", "size": 2, "bandwidth": "25 GB/s", "latency": "2 us"}]
        },
        "workload": {
            "model": {"transformer": {**size, "tied": True}},
            "batch_per_replica": batch,
            "precision": precision,
            "parallelism": {"dp": 1},
            "optimizer": "adam",
            "compute": {"device": device, "launch": launch},
        },
    }
    return float(allrail.simulate(scenario).step_time_us)
