"""One small model trained in several ways, and whether all end with DDP's parameters."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from place import Place
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import allrail.torch as art
from allrail.runtime.agreement import Agreement
from allrail.torch.native import Native
from allrail.torch.staging import Staged
from allrail.torch.store import store_of_job

STEPS = 8


@dataclass(frozen=True)
class Training:
    """A model that is ready to train, and its optimizer."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    done: Callable[[], None] = lambda: None


Way = Callable[["Case"], Training]


@dataclass(frozen=True)
class Case:
    """A model and an optimizer.

    Attributes:
        name: For figures.
        steps_with: The optimizer's class.
        clips: Whether gradients are clipped by their norm, which reads all of them.
    """

    name: str
    steps_with: type[torch.optim.Optimizer]
    clips: bool = False

    @staticmethod
    def all() -> list[Case]:
        """Return all cases, the cheapest first."""
        return [
            Case("sgd", steps_with=torch.optim.SGD),
            Case("adam", steps_with=torch.optim.AdamW),
            Case("adam, clipped", steps_with=torch.optim.AdamW, clips=True),
        ]

    def model(self, place: Place) -> nn.Module:
        """Return the model, with the same values on all ranks and in all ways."""
        torch.manual_seed(0)
        layers: list[nn.Module] = [nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256)]
        layers += [
            layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.ReLU(), nn.LayerNorm(256))
        ]
        return nn.Sequential(*layers, nn.Linear(256, 16)).to(place.device)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return its optimizer."""
        return self.steps_with(model.parameters(), lr=1e-2)


def scheduled(place: Place, transport: str) -> Way:
    """Return the way that calls `allrail.torch.schedule`."""

    def made(case: Case) -> Training:
        model = case.model(place)
        carrier: Any = transport
        if place.rehearsal:
            store, rank, ranks = store_of_job()
            agreement = Agreement(store, rank, ranks, f"rehearsal {case.name}")
            carrier = Staged(Native(rank, ranks, agreement), place.staging())
        model, optimizer = art.schedule(model, case.optimizer(model), transport=carrier)
        return Training(model, optimizer, lambda: art.release(model))

    return made


def compare(place: Place, ways: dict[str, Way], cases: list[Case]) -> dict[str, Any]:
    """Train in each way and over DDP; raise where parameters differ, else return ms per step."""
    figures: dict[str, Any] = {}
    for case in cases:
        model = case.model(place)
        wanted, slow = _trained(
            place, case, Training(DistributedDataParallel(model), case.optimizer(model))
        )
        for name, way in ways.items():
            training = way(case)
            found, took = _trained(place, case, training)
            training.done()
            for key, value in wanted.items():
                mine = found[key.removeprefix("module.")] if key not in found else found[key]
                if not torch.equal(value, mine):
                    off = (value - mine).abs().max().item()
                    raise AssertionError(f"{name}, {case.name}: `{key}` differs by {off:.3g}")
            figures[f"{name}, {case.name}"] = {"ms": 1e3 * took, "ddp_ms": 1e3 * slow}
    return figures


def _trained(place: Place, case: Case, training: Training) -> tuple[dict[str, torch.Tensor], float]:
    """Return parameters after some steps, and seconds per step without the first two."""
    rank = dist.get_rank()
    times = []
    for step in range(STEPS):
        torch.manual_seed(100 * step + rank)
        inputs = torch.randn(32, 64).to(place.device)
        begun = time.perf_counter()
        place.delay(1)
        training.optimizer.zero_grad()
        training.model(inputs).square().mean().backward()
        if case.clips:
            nn.utils.clip_grad_norm_(training.model.parameters(), 0.1)
        training.optimizer.step()
        place.synchronize()
        times.append(time.perf_counter() - begun)
    values = {key: value.detach().clone() for key, value in training.model.state_dict().items()}
    return values, sorted(times[2:])[len(times[2:]) // 2]
