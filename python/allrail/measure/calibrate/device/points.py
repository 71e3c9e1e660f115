"""What is measured of a device: single kernels over a grid of shapes, and what starting one costs.

The grid is chosen before anything is seen of how well the model does, by how long a call takes: a
call is long enough for the clock, and short enough for the time that there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MODES = ("device", "eager", "compiled", "graph", "blocking")
"""Costs of starting a kernel, by the keys of a device's file."""
KINDS = ("flash_2", "flash_3")
"""Kinds of fused attention that PyTorch can be asked for by name."""
HEADS = (64, 128, 96, 256)
"""Elements of a head, the most usual first."""

_WIDTH = {"fp32": 4, "bf16": 2, "fp8": 1}
_SIDES = (256, 512, 1024, 2048, 4096, 8192, 16384)
_LARGEST = 3
"""Of so many sides, the largest that there is time for."""
_TOKENS = (256, 512, 1024, 2048, 4096, 8192)
_MOST_HEADS = 64
_ENOUGH = 0.03
"""Seconds of a call that are enough for half a gigabyte."""


@dataclass(frozen=True, slots=True)
class Product:
    """`rows` × `inputs` times `inputs` × `outputs`.

    Attributes:
        rows: Of the result.
        inputs: The inner dimension.
        outputs: Columns of the result.
        format: Of the operands: `fp32`, `bf16` or `fp8`.
    """

    rows: int
    inputs: int
    outputs: int
    format: str

    @property
    def flops(self) -> float:
        """Of one call."""
        return 2.0 * self.rows * self.inputs * self.outputs

    @property
    def bytes(self) -> int:
        """Of operands and result."""
        operands = self.rows * self.inputs + self.inputs * self.outputs
        width = _WIDTH[self.format]
        return operands * width + self.rows * self.outputs * max(2, width)

    def kernel(self) -> dict[str, Any]:
        """Return it as the core takes it."""
        sizes = {"rows": self.rows, "inputs": self.inputs, "outputs": self.outputs}
        return {"kernel": "product", **sizes, "format": self.format}

    def __str__(self) -> str:
        """Return rows, inputs and outputs."""
        return f"{self.rows}x{self.inputs}x{self.outputs}"


@dataclass(frozen=True, slots=True)
class Attention:
    """Fused causal attention in 16 bits, or its gradient; as many keys as queries.

    Attributes:
        kind: Of `KINDS`.
        samples: In a batch.
        heads: Of a sample.
        head: Elements of a head.
        tokens: Of a sample.
        backward: Whether it is the gradient.
    """

    kind: str
    samples: int
    heads: int
    head: int
    tokens: int
    backward: bool

    @property
    def flops(self) -> float:
        """Of one call; what the mask hides is not counted."""
        forward = 2.0 * self.samples * self.heads * self.head * self.tokens**2
        return 2.5 * forward if self.backward else forward

    @property
    def bytes(self) -> int:
        """Of queries, keys, values and the result; of a gradient twice as many."""
        one = 2 * self.samples * self.heads * self.head * self.tokens
        return one * (8 if self.backward else 4)

    def kernel(self) -> dict[str, Any]:
        """Return it as the core takes it."""
        names = ("kind", "samples", "heads", "head", "tokens", "backward")
        return {"kernel": "attention", **{name: getattr(self, name) for name in names}}

    def __str__(self) -> str:
        """Return samples, heads, tokens and elements of a head."""
        way = "backward" if self.backward else "forward"
        return f"{self.samples}x{self.heads}x{self.tokens}x{self.head}_{way}"


@dataclass(frozen=True, slots=True)
class Stream:
    """Elementwise work in 4 bytes.

    Attributes:
        operation: `copy`, `scale` or `add`.
        elements: Of each tensor.
    """

    operation: str
    elements: int

    @property
    def bytes(self) -> int:
        """Read and written, as a program sees it: a cache may read what is written, too."""
        return 4 * self.elements * (3 if self.operation == "add" else 2)

    def kernel(self) -> dict[str, Any]:
        """Return it as the core takes it."""
        return {"kernel": "stream", "bytes": self.bytes}

    def __str__(self) -> str:
        """Return the operation and how much it moves."""
        return f"{self.operation}_of_{self.bytes / 1e6:.4g}_MB"


@dataclass(frozen=True, slots=True)
class Start:
    """What it costs to start a kernel that does next to nothing.

    Attributes:
        mode: Of `MODES`: `device` is from one kernel's end to the next one's work, the others are
            times of the host.
    """

    mode: str

    def __str__(self) -> str:
        """Return the mode."""
        return self.mode


Point = Product | Attention | Stream | Start


@dataclass(frozen=True, slots=True)
class Measured:
    """A point, and how long it took.

    Attributes:
        point: What was measured.
        seconds: The median.
        best: The shortest.
        spread: Half of all were nearer to the median than this, over it.
        count: How many times were taken, each the mean of some calls.
    """

    point: Point
    seconds: float
    best: float
    spread: float
    count: int


@dataclass(frozen=True, slots=True)
class Means:
    """What a device has and how much there is time for; the grid follows from it.

    Attributes:
        rates: FLOP/s of a first product, by format; formats that are not there do not work.
        kinds: FLOP/s of a first attention, by kind; kinds that are not there do not work.
        modes: Ways to start a kernel that there are.
        memory: Bytes that may be taken.
        cache: Bytes of the largest cache.
        shortest: Seconds of a call, at least.
        longest: Seconds of a call, at most.
        heads: How many sizes of a head.
    """

    rates: Mapping[str, float]
    kinds: Mapping[str, float]
    modes: tuple[str, ...]
    memory: int
    cache: int
    shortest: float
    longest: float
    heads: int = len(HEADS)


def grid(means: Means) -> list[Point]:
    """Return what is measured, what all else depends on first.

    Args:
        means: What there is.
    """
    points: list[Point] = [Start(mode) for mode in MODES if mode in means.modes]
    points += streams(means)
    for name in means.rates:
        points += _products(name, means)
    for kind in means.kinds:
        for head in HEADS[: means.heads]:
            points += _attention(kind, head, means)
    return points


def streams(means: Means) -> list[Stream]:
    """Return copies and elementwise work of what no cache holds, and a copy of what one does.

    Args:
        means: What there is.
    """
    # Of two tensors that no cache holds; twice that where there is time.
    sides = [1, 2] if means.longest >= _ENOUGH else [1]
    large = min(max(2 * means.cache, 64 << 20), means.memory // 6) // 4
    beyond = [
        Stream(operation, large * side)
        for side in reversed(sides)
        for operation in ("copy", "scale", "add")
    ]
    return [*beyond, Stream("copy", max(1 << 16, means.cache // 32))]


def is_beyond(stream: Stream, cache: int) -> bool:
    """Return whether no cache holds what it moves.

    Args:
        stream: One of a grid.
        cache: Bytes of the largest one.
    """
    return stream.bytes >= 4 * cache


def _products(name: str, means: Means) -> Iterator[Product]:
    """Squares, wide and narrow ones, one with a long inner dimension, one of an odd many tiles."""
    rate = means.rates[name]

    def fits(one: Product) -> bool:
        return one.flops / rate <= means.longest and one.bytes <= means.memory

    # What takes too long at any size is measured at the smallest.
    fitting = [side for side in _SIDES if fits(Product(side, side, side, name))] or [_SIDES[0]]
    found: dict[Product, None] = {}
    for side in reversed(fitting[-_LARGEST:]):
        for rows, inputs, outputs in (
            (side, side, side),
            (side // 2, 8 * side, side // 2),
            (side, side, 4 * side),
            (side, 4 * side, side),
            (side + side // 8, side, side),
            (16, 2 * side, 2 * side),
        ):
            one = Product(rows, inputs, outputs, name)
            # What is shorter than a call should be says more of the clock than of the device.
            large = one.flops / rate >= means.shortest
            if (fits(one) and large) or rows == inputs == outputs == fitting[-1]:
                found[one] = None
    return iter(found)


def _attention(kind: str, head: int, means: Means) -> Iterator[Attention]:
    most = means.longest * means.kinds[kind]
    for backward in (False, True):
        found = []
        for tokens in _TOKENS:
            one = Attention(kind, 1, 8, head, tokens, backward)
            if one.flops > most or one.bytes > means.memory:
                continue
            # Enough heads that the device is full, as far as there is time.
            heads = 8
            while heads < _MOST_HEADS and one.flops * 2 * heads / 8 <= most:
                heads *= 2
            found.append(Attention(kind, 1, heads, head, tokens, backward))
        yield from found[-_LARGEST:] or [Attention(kind, 1, 8, head, _TOKENS[0], backward)]
