"""The networks whose gradients Horovod exchanges: the presets' layers as tensors, and their times.

A layer's parameters are as many tensors as frameworks make of them: its weights, its bias, scale
and offset of its norm. A backward pass takes two thirds of a step's computing, and of it each layer
takes its part of the FLOPs; a layer's gradients are ready together, the last layer's first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from math import prod
from typing import Any

from allrail.scenario.models import load_model

TENSOR_CORES = 125e12 / 2
"""FLOP/s: half of a V100's peak in FP16, the default of `workload.compute.efficiency`."""
V100_IMAGES = 360.0
"""ResNet-50 in FP32 on one V100, images/s, as benchmarks of that time print it."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """Its tensors' elements, and the FLOPs of its forward pass for one sample."""

    tensors: tuple[int, ...]
    flops: float


@cache
def _layers(preset: str) -> tuple[_Layer, ...]:
    return tuple(_expanded(load_model(preset)["layers"]))


def parameters(preset: str) -> int:
    """Return how many parameters a preset of layers has.

    Args:
        preset: Its name.
    """
    return sum(n for layer in _layers(preset) for n in layer.tensors)


def _expanded(layers: list[Mapping[str, Any]]) -> Iterator[_Layer]:
    """Every layer, in order, as often as it is repeated."""
    for layer in layers:
        for _ in range(layer.get("repeat", 1)):
            if "layers" in layer:
                yield from _expanded(layer["layers"])
            elif "dense" in layer:
                sizes = layer["dense"]["inputs"], layer["dense"]["outputs"]
                yield _Layer((prod(sizes), sizes[1]), 2.0 * prod(sizes))
            else:
                yield _convolution(layer["convolution"])


def _convolution(keys: Mapping[str, Any]) -> _Layer:
    weights, outputs = prod(keys["kernel"]) * prod(keys["channels"]), keys["channels"][1]
    normed = keys.get("normalised_channels") or (outputs if keys.get("normalised") else 0)
    tensors = [weights, outputs if keys.get("bias") else 0, normed, normed]
    return _Layer(tuple(n for n in tensors if n), 2.0 * weights * prod(keys["output"]))


@dataclass(frozen=True)
class Model:
    """A network whose gradients are exchanged.

    Attributes:
        name: For tables.
        preset: Whose layers.
        batch: Samples of a GPU.
        width: Bytes of a parameter.
        rate: Samples/s of a GPU; from the FLOPs at `TENSOR_CORES` if None.
    """

    name: str
    preset: str
    batch: int
    width: int
    rate: float | None = None

    @cached_property
    def flops(self) -> float:
        """Of a step on one GPU: a backward pass has twice those of a forward pass."""
        return 3 * self.batch * sum(layer.flops for layer in _layers(self.preset))

    @cached_property
    def compute_us(self) -> float:
        """What a GPU computes in a step."""
        if self.rate is not None:
            return 1e6 * self.batch / self.rate
        return 1e6 * self.flops / TENSOR_CORES

    @cached_property
    def tensors(self) -> list[int]:
        """Bytes of every gradient, in the order in which the backward pass makes them."""
        layers = reversed(_layers(self.preset))
        return [self.width * n for layer in layers for n in layer.tensors]

    @cached_property
    def ready_us(self) -> list[float]:
        """When each gradient is ready, after the step's begin."""
        layers = _layers(self.preset)
        whole = sum(layer.flops for layer in layers)
        at, moments = self.compute_us / 3, []
        for layer in reversed(layers):
            at += 2 / 3 * self.compute_us * layer.flops / whole
            moments += [min(at, self.compute_us)] * len(layer.tensors)
        return moments


RESNET = Model("ResNet-50", "resnet50", 64, 4, V100_IMAGES)
STEMDL = Model("STEMDL", "stemdl_fc_densenet", 1, 2)
