"""Models whose computation is a wait: real gradients of real sizes, and a CPU that stays free.

A layer has one parameter of as many elements as the layer of the real model has, divided by a
scale; its forward and backward passes sleep, and the backward pass makes a gradient that tells the
rank, so that what the ranks average can be checked to the last element. So a step on a CPU has the
shape that it has on an accelerator: computing costs time, not cores.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

_PASSES = 3
"""A backward pass takes twice as long as a forward pass; together three forward passes."""


@dataclass(frozen=True)
class LayerSize:
    """One layer.

    Attributes:
        name: As in tables.
        parameters: Elements of its parameter.
        operations: Multiply-adds of one sample's forward pass: the layer's share of the time.
    """

    name: str
    parameters: int
    operations: int


def vgg16() -> list[LayerSize]:
    """VGG-16 on images of 224 × 224 (Simonyan and Zisserman, ICLR'15, table 1, D)."""
    layers, channels, edge = [], 3, 224
    for block, (count, outputs) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))):
        for i in range(count):
            weights = 9 * channels * outputs
            name = f"conv{block + 1}.{i + 1}"
            layers.append(LayerSize(name, weights + outputs, weights * edge * edge))
            channels = outputs
        edge //= 2
    for i, (inputs, outputs) in enumerate(((512 * 49, 4096), (4096, 4096), (4096, 1000))):
        layers.append(LayerSize(f"fc{i + 6}", (inputs + 1) * outputs, inputs * outputs))
    return layers


def bert_base() -> list[LayerSize]:
    """BERT-base on sequences of 128 (Devlin et al., NAACL'19): 12 blocks of 768, 30,522 words.

    The embedding is looked up, so it takes no time worth counting.
    """
    width, sequence, words = 768, 128, 30522
    layers = [LayerSize("embedding", (words + 512 + 2) * width, 0)]
    for block in range(12):
        attention, feed = 4 * width * width, 8 * width * width
        scores = 2 * sequence * width
        layers.append(LayerSize(f"block{block}.attention", attention, attention + scores))
        layers.append(LayerSize(f"block{block}.feed_forward", feed, feed))
    layers.append(LayerSize("pooler", width * width, width * width // sequence))
    return layers


def resnet50() -> list[LayerSize]:
    """ResNet-50 on images of 224 × 224 (He et al., CVPR'16, table 1)."""
    layers = [LayerSize("conv1", 9408, 9408 * 112 * 112)]
    channels = 64
    for stage, (blocks, width, edge) in enumerate(
        ((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7))
    ):
        for block in range(blocks):
            parts = [channels * width, 9 * width * width, 4 * width * width]
            if block == 0:
                parts.append(4 * channels * width)
            for i, weights in enumerate(parts):
                name = f"conv{stage + 2}.{block + 1}.{i + 1}"
                layers.append(LayerSize(name, weights, weights * edge * edge))
            channels = 4 * width
    layers.append(LayerSize("fc", 2048 * 1000 + 1000, 2048 * 1000))
    return layers


MODELS = {"vgg16": vgg16, "bert_base": bert_base, "resnet50": resnet50}
"""The models by name."""


class _Wait(torch.autograd.Function):
    """Passes its input on; takes the layer's time, and says what its parameter's gradient is."""

    @staticmethod
    def forward(ctx: Any, value: Any, weight: Any, layer: Emulated) -> Any:
        ctx.layer = layer
        ctx.save_for_backward(weight)
        layer.rest(1)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (weight,) = ctx.saved_tensors
        ctx.layer.rest(2)
        return gradients[0], torch.full_like(weight, ctx.layer.gradient()), None


class Emulated(nn.Module):
    """One layer.

    Args:
        size: What it stands for.
        scale: Its parameter has this part of the elements, one at least.
        seconds: Of its forward pass; the backward pass takes twice as long.
        job: What it is part of.
    """

    def __init__(self, size: LayerSize, *, scale: int, seconds: float, job: EmulatedModel) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(max(1, size.parameters // scale)))
        self.seconds = seconds
        self._job = [job]  # in a list: it is no child of its own child

    def forward(self, value: Any) -> Any:
        """Return the input, after a while."""
        return _Wait.apply(value, self.weight, self)

    def rest(self, times: int) -> None:
        """Take so many times the forward pass's time."""
        if self.seconds:
            time.sleep(times * self.seconds)

    def gradient(self) -> float:
        """Return what every element of a gradient is on this rank."""
        return float(self._job[0].rank + 1)


class EmulatedModel(nn.Module):
    """A model of such layers. `model(x)` returns one number; its backward pass makes all gradients.

    Args:
        sizes: Its layers, in forward order.
        scale: Parameters are divided by this.
        seconds: Computing takes this long in a step, forward and backward.
        rank: Of this process.
    """

    def __init__(self, sizes: list[LayerSize], *, scale: int, seconds: float, rank: int) -> None:
        super().__init__()
        self.rank = rank
        operations = sum(size.operations for size in sizes)
        forward = seconds / _PASSES
        self.layers = nn.ModuleList(
            Emulated(size, scale=scale, seconds=forward * size.operations / operations, job=self)
            for size in sizes
        )

    def forward(self, value: Any) -> Any:
        """Return the sum of the input, after all layers."""
        for layer in self.layers:
            value = layer(value)
        return value.sum()

    def expected(self, ranks: int, steps: int, rate: float) -> float:
        """Return what every element of every parameter is after steps of plain SGD.

        Args:
            ranks: How many averaged their gradients.
            steps: How many were made.
            rate: The learning rate.
        """
        return -rate * steps * (ranks + 1) / 2
