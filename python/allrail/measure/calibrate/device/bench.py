"""A device's kernels as calls of PyTorch, and how long they take there.

Operands take turns, as many as no cache holds; on a GPU they are random, since its clock depends on
the bits that it multiplies. `clock.py` says how time is taken, `starts.py` what starting costs.

Nothing of this has run on a GPU yet (see `docs/guides/devices.md`).
"""

from __future__ import annotations

import itertools
import math
import os
import platform
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from allrail.measure.calibrate.device.clock import Batch, Clock
from allrail.measure.calibrate.device.points import KINDS, Attention, Means, Point, Product, Stream
from allrail.measure.calibrate.device.starts import STARTS

_BACKENDS = {"flash_2": "FLASH_ATTENTION", "flash_3": "CUDNN_ATTENTION"}
"""What PyTorch calls it. cuDNN's is as fast as FlashAttention-3, and newer versions are that."""
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_FIRST = 0.002
"""Seconds of a first product, by which the grid is chosen."""
_TURNS = 8
"""Operands that take turns, at most."""
_COMPILE = 60.0
"""Compiling takes half a minute: measured where there is as much time."""


class Bench:
    """A device of PyTorch.

    Attributes:
        device: Which.
        name: As a tag: letters, digits and underscores.
        about: As its maker calls it.
        units: Streaming multiprocessors, or threads that PyTorch computes with.
        memory: Bytes that it has.
        cache: Bytes of its largest cache.
        lasts: Seconds that a time takes at least.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._gpu = device.type == "cuda"
        self._clock = Clock(device)
        if self._gpu:
            torch.cuda.set_device(device)
            found = torch.cuda.get_device_properties(device)
            self.about = str(found.name)
            self.units = int(found.multi_processor_count)
            self.memory = int(found.total_memory)
            self.cache = int(getattr(found, "L2_cache_size", 0)) or 64 << 20
        else:
            self.units = torch.get_num_threads()
            self.about = f"{_processor()}, {self.units} thread{'s' if self.units > 1 else ''}"
            self.memory = _memory()
            self.cache = _cache()
        words = "".join(c if c.isalnum() else " " for c in self.about.lower()).split()
        self.name = "_".join(words)
        self.lasts = 0.005

    def means(self, seconds: float) -> Means:
        """Return what there is to measure in a time, from a first look.

        Args:
            seconds: For all of it.
        """
        shortest = 2e-5 if self._gpu else 1e-4
        longest = min(0.1, max(0.002, seconds / 300))
        rates: dict[str, float] = {}
        for name in ("fp32", "bf16", *(["fp8"] if self._has_fp8() else [])):
            rate = self._first(name, longest)
            if rate is not None:
                rates[name] = rate
        attends = {kind: self._first_attention(kind) for kind in KINDS}
        kinds = {kind: rate for kind, rate in attends.items() if rate is not None}
        compiles = ("compiled",) if seconds >= _COMPILE else ()
        modes = (
            ("device", "eager", *compiles, "graph", "blocking")
            if self._gpu
            else ("eager", *compiles)
        )
        heads = 4 if seconds >= 20 else 2
        free = torch.cuda.mem_get_info(self.device)[0] if self._gpu else self.memory
        return Means(rates, kinds, modes, free // 4, self.cache, shortest, longest, heads)

    def batch(self, point: Point) -> Batch:
        """Return what measures a point.

        Args:
            point: Of a grid.

        Raises:
            RuntimeError: The device, or this PyTorch, does not do it.
        """
        if isinstance(point, Product):
            return self._clock.on_device(self._product(point))
        if isinstance(point, Attention):
            return self._attention(point)
        if isinstance(point, Stream):
            return self._clock.on_device(self._stream(point))
        return STARTS[point.mode](self._clock)

    def busy(self) -> list[str]:
        """Return why others may be at work here."""
        told = []
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
        if load > 0.5 * cores:
            told.append(
                f"the machine is busy: {load:.1f} processes ran in the last minute, on {cores}"
                f" {'core' if cores == 1 else 'cores'}"
            )
        if self._gpu:
            free, whole = torch.cuda.mem_get_info(self.device)
            if free < 0.9 * whole:
                told.append(f"{100 * (1 - free / whole):.0f} % of the GPU's memory is taken")
        return told

    def how(self) -> str:
        """Return by what it is measured, in a line."""
        told = f"PyTorch {torch.__version__}"
        if self._gpu:
            told += f", CUDA {torch.version.cuda}" if torch.version.cuda else ""
            told += f", ROCm {torch.version.hip}" if getattr(torch.version, "hip", None) else ""
        return f"{told}, Python {platform.python_version()}, {platform.platform(terse=True)}"

    def _filled(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        if self._gpu:
            return torch.randn(*shape, device=self.device, dtype=torch.bfloat16).to(dtype)
        # Random numbers take a CPU longer than the product.
        return torch.full(shape, 0.5, dtype=dtype)

    def _product(self, one: Product) -> Callable[[], Any]:
        turns = max(1, min(_TURNS, math.ceil(2 * self.cache / one.bytes)))
        if one.format == "fp8":
            pairs = [self._pair_of_fp8(one) for _ in range(turns)]
            scale = torch.ones((), device=self.device)
            scaled = partial(
                torch._scaled_mm, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16
            )
            each = [partial(scaled, *pair) for pair in pairs]
        else:
            dtype = _DTYPES[one.format]
            each = [
                partial(
                    torch.mm,
                    self._filled(one.rows, one.inputs, dtype=dtype),
                    self._filled(one.inputs, one.outputs, dtype=dtype),
                    out=torch.empty(one.rows, one.outputs, dtype=dtype, device=self.device),
                )
                for _ in range(turns)
            ]
        turns_of = itertools.cycle(each)

        def call() -> Any:
            return next(turns_of)()

        return call

    def _pair_of_fp8(self, one: Product) -> tuple[torch.Tensor, torch.Tensor]:
        """The second operand lies by columns, as tensor cores read it."""
        dtype = torch.float8_e4m3fn
        left = self._filled(one.rows, one.inputs, dtype=dtype)
        return left, self._filled(one.outputs, one.inputs, dtype=dtype).t()

    def _stream(self, one: Stream) -> Callable[[], Any]:
        out, left = (self._filled(one.elements, dtype=torch.float32) for _ in range(2))
        if one.operation == "copy":
            return partial(out.copy_, left)
        if one.operation == "scale":
            return partial(torch.mul, left, 2.0, out=out)
        right = self._filled(one.elements, dtype=torch.float32)
        return partial(torch.add, left, right, out=out)

    def _attention(self, one: Attention) -> Batch:
        backend = getattr(SDPBackend, _BACKENDS[one.kind], None)
        if backend is None:
            raise RuntimeError(f"this PyTorch has no {_BACKENDS[one.kind]}")
        shape = (one.samples, one.heads, one.tokens, one.head)
        inputs = [self._filled(*shape, dtype=torch.bfloat16) for _ in range(3)]
        if not one.backward:
            timed = self._clock.on_device(lambda: _attend(inputs))

            def forward(count: int) -> float:
                with sdpa_kernel(backend), torch.no_grad():
                    return timed(count)

            return forward
        for each in inputs:
            each.requires_grad_()
        with sdpa_kernel(backend):
            found = _attend(inputs)
        gradient = self._filled(*shape, dtype=torch.bfloat16)
        return self._clock.on_device(
            partial(torch.autograd.grad, found, inputs, gradient, retain_graph=True)
        )

    def _first(self, name: str, longest: float) -> float | None:
        """FLOP/s of a product that takes a while; None where there is none of the format."""
        side, rate = 256, None
        while side <= 8192:
            one = Product(side, side, side, name)
            try:
                batch = self.batch(one)
                batch(1)
                seconds = max(min(batch(1) for _ in range(5)), 1e-9)
            except (RuntimeError, NotImplementedError):  # no such kernel, or no memory for it
                return rate
            rate = one.flops / seconds
            if seconds >= min(_FIRST, longest / 8):
                break
            side *= 2
        return rate

    def _has_fp8(self) -> bool:
        return self._gpu and bool(torch.cuda.get_device_capability(self.device) >= (8, 9))

    def _first_attention(self, kind: str) -> float | None:
        """FLOP/s of little attention; None where there is none of the kind."""
        one = Attention(kind, 1, 8, 64, 256, backward=False)
        try:
            batch = self.batch(one)
            batch(1)
            return one.flops / max(min(batch(1) for _ in range(5)), 1e-9)
        except (RuntimeError, NotImplementedError):  # no such kernel here
            return None


def _attend(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    query, key, value = inputs
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _memory() -> int:
    """Of the machine, or of the container that this runs in."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8").strip()
    except OSError:
        return found
    return min(found, int(limit)) if limit.isdigit() else found


def _cache() -> int:
    """The largest that the first core reads through; 32 MiB where nothing says."""
    found = 32 << 20
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text(encoding="utf-8").strip()
        if text.endswith("K") and text[:-1].isdigit():
            sizes.append(int(text[:-1]) << 10)
    return max(sizes, default=found)
