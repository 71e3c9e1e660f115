"""An array's memory on this host: what is exchanged, and what a result is computed in."""

from __future__ import annotations

import ctypes
import functools
import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from allrail import _core
from allrail.base.errors import InputError
from allrail.runtime.nodes import Memory


@dataclass(frozen=True, slots=True)
class View:
    """An array's memory, contiguous, in the order of its rows.

    Attributes:
        pointer: Where it begins.
        shape: Its shape.
        dtype: The type of its elements, such as `float32` or `bfloat16`.
        width: Bytes of an element.
        writable: Whether it may be written to.
        keeps: What keeps the memory where it is; of a tensor of PyTorch `_core.Memory`.
        original: Elements with gaps that the memory is a copy of, or None.
    """

    pointer: int
    shape: tuple[int, ...]
    dtype: str
    width: int
    writable: bool
    keeps: object
    original: np.ndarray[Any, Any] | None = None

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * self.width

    def memory(self, *, in_bytes: bool = False) -> Memory:
        """Return it as a node takes it; `in_bytes`: elements count as bytes."""
        held = self.keeps
        if not isinstance(held, _core.Memory):
            octets = self._bytes() if self.nbytes else np.empty(0, np.uint8)
            held = _core.Memory.of_buffer(octets, self.keeps)
        return Memory(held, "uint8" if in_bytes else self.dtype)

    def copy_from(self, other: View, *, at: int = 0, start: int = 0, nbytes: int) -> None:
        """Copy `nbytes` bytes, from byte `start` of another to byte `at` of this one."""
        ctypes.memmove(self.pointer + at, other.pointer + start, nbytes)

    def divide(self, by: int) -> None:
        """Divide every element."""
        if not self.nbytes:
            return
        numbers = self._numbers()
        if self.dtype == "bfloat16":
            numbers[:] = _rounded(np.divide(_wide(numbers), np.float32(by)))
        else:
            np.divide(numbers, by, out=numbers)

    def combine(self, every: View, op: str) -> None:
        """Make it the combination of several arrays of its size, which lie one after the other.

        Args:
            every: Those arrays.
            op: A key of `COMBINED`.
        """
        if not self.nbytes:
            return
        function, numbers = COMBINED[op], self._numbers()
        rows = every._numbers().reshape(-1, numbers.size)
        numbers[:] = rows[0]
        for row in rows[1:]:
            if self.dtype == "bfloat16":
                numbers[:] = _rounded(function(_wide(numbers), _wide(row)))
            else:
                function(numbers, row, out=numbers)

    def put_back(self) -> None:
        """Copy it to where its elements have gaps, if it is a copy of such."""
        if self.original is not None:
            self.original[...] = self._bytes().view(self.original.dtype).reshape(self.shape)

    def _bytes(self) -> np.ndarray[Any, Any]:
        held: Any = (ctypes.c_uint8 * self.nbytes).from_address(self.pointer)
        return np.frombuffer(held, np.uint8)

    def _numbers(self) -> np.ndarray[Any, Any]:
        """Its elements in one row; those of bfloat16 as their bits."""
        return self._bytes().view("uint16" if self.dtype == "bfloat16" else self.dtype)


COMBINED: dict[str, Any] = {"max": np.maximum, "min": np.minimum, "product": np.multiply}


def _wide(halves: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bits of bfloat16 as float32."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


def _rounded(wide: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """float32 as the bits of bfloat16."""
    bits = wide.astype(np.float32).view(np.uint32)
    # To the nearest, to an even one if two are as near; what is not a number stays none.
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    infinite = (bits & 0x7F800000) == 0x7F800000
    return np.where(infinite, bits >> 16, rounded).astype(np.uint16)


class _At:
    """Elements at an address, as the array interface tells of them."""

    def __init__(self, interface: dict[str, Any], keeps: object) -> None:
        self.__array_interface__ = interface
        self.keeps = keeps


def copied(
    pointer: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    kind: tuple[str, int],
    keeps: object,
    *,
    writable: bool,
) -> View:
    """A copy of elements that do not lie one after the other; strides in bytes."""
    dtype, width = kind
    interface = {
        "version": 3,
        "data": (pointer, False),
        "shape": shape,
        "strides": strides,
        "typestr": f"|V{width}",
    }
    original = np.asarray(_At(interface, keeps))
    copy = np.ascontiguousarray(original)
    # Where elements share a place there is no one place for each result.
    shared = any(stride == 0 and size > 1 for size, stride in zip(shape, strides, strict=True))
    _say_once()
    writable = writable and not shared
    return View(copy.ctypes.data, shape, dtype, width, writable, (copy, keeps), original)


@functools.cache
def _say_once() -> None:
    warnings.warn(
        "an array's elements do not lie one after the other, in the order of rows: such arrays are"
        " copied for each operation, and results are copied back; `numpy.ascontiguousarray(array)`"
        " or `tensor.contiguous()` copies once (this is said once)",
        RuntimeWarning,
        stacklevel=2,
    )


def unreadable(why: str, array: Any, field: str) -> InputError:
    """Return the error of an array whose memory cannot be read."""
    return InputError(
        f"its memory cannot be read: {why}",
        field=field,
        value=type(array).__name__,
        hint="detach a tensor that has a gradient (`tensor.detach()`), make a sparse one dense, or"
        " give a copy: `numpy.array(...)`",
    )


def words_of(error: Exception) -> str:
    """Return what an error of others says, even if saying it fails."""
    try:
        return str(error) or "it says no more"
    except Exception:  # noqa: BLE001, as of the array itself
        return "it says no more"


def on_a_device(where: str, field: str) -> InputError:
    """Return the error of an array that is not in host memory."""
    return InputError(
        f"it is in the memory of {where}",
        field=field,
        hint="give an array in host memory, such as `numpy.asarray(array)`; for tensors on a GPU"
        " under PyTorch there is `allrail.torch` with `transport='c10d'`",
    )
