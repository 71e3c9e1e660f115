"""Arrays of any framework as memory of this host: by DLPack, the array interface, or as a buffer.

Nothing is imported that the caller has not: an array is asked for what it is. numpy reads arrays of
its own kind and buffers; DLPack is read here, since numpy has no bfloat16.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import sys
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from allrail import _core
from allrail.base.errors import InputError
from allrail.runtime.nodes import Memory
from allrail.runtime.resizes import guard_resizes

# Device types of DLPack whose memory the host reads: its own, and what is pinned for a GPU.
_HOST = (1, 3, 11)
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
_BITS = (8, 16, 32, 64, 128)
_READ_ONLY = 1
_NEWEST = (1, 0)
_MAX_AXES = 64
_MAX_BYTES = 1 << 62


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
        """Copy so many bytes, from byte `start` of another to byte `at` of this one."""
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


def view_of(array: Any, *, field: str = "array") -> View:
    """Return the memory of an array.

    Args:
        array: Anything that speaks DLPack, the array interface or the buffer protocol.
        field: What an error calls it.

    Raises:
        InputError: It is no array, not on the host, or has gaps.
    """
    try:
        return _view_of(array, field)
    except InputError:
        raise
    except Exception as error:
        if type(error) is TypeError and not _speaks(array):
            raise InputError(
                "it is no array",
                field=field,
                value=type(array).__name__,
                hint="give an array of numpy, JAX, PyTorch or another framework that speaks DLPack,"
                " or a buffer; `numpy.asarray(...)` makes one of numbers",
            ) from None
        raise _unreadable(f"{type(error).__name__}: {_words(error)}", array, field) from error


def _view_of(array: Any, field: str) -> View:
    if isinstance(array, np.ndarray):
        if isinstance(array, np.ma.MaskedArray):
            raise InputError(
                "it is a masked array, and its mask would not be exchanged",
                field=field,
                hint="give its numbers, such as `array.filled(0)`",
            )
        return _of_numpy(array, array, field)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _of_dlpack(array, field)
    if hasattr(array, "__cuda_array_interface__"):
        raise _on_a_device("a GPU", field)
    if hasattr(array, "__array_interface__"):
        return _of_numpy(np.asarray(array), array, field)
    return _of_numpy(np.asarray(memoryview(array)), array, field)


def _speaks(array: Any) -> bool:
    """Whether an array says that it is one."""
    names = ("__dlpack__", "__cuda_array_interface__", "__array_interface__")
    return any(hasattr(type(array), name) for name in names)


def _words(error: Exception) -> str:
    try:
        return str(error) or "it says no more"
    except Exception:  # noqa: BLE001, as of the array itself
        return "it says no more"


def _unreadable(why: str, array: Any, field: str) -> InputError:
    return InputError(
        f"its memory cannot be read: {why}",
        field=field,
        value=type(array).__name__,
        hint="detach a tensor that has a gradient (`tensor.detach()`), make a sparse one dense, or"
        " give a copy: `numpy.array(...)`",
    )


def made_like(array: Any, view: View, shape: tuple[int, ...]) -> tuple[View, Callable[[], Any]]:
    """Return memory for a result, and what makes an array of the same framework of it.

    Where the framework has no way to do so, it is an array of numpy.

    Args:
        array: What the result is to be like.
        view: Its memory.
        shape: The result's.
    """
    # What an array of others says of itself is believed only where it fits its memory.
    with contextlib.suppress(Exception):
        if hasattr(array, "new_empty"):  # PyTorch's way, for any type of its
            made = array.new_empty(shape)
            into = view_of(made)
            if into.writable and _fits(into, view, shape):
                return into, lambda: made
    memory = None
    with contextlib.suppress(Exception):
        own = np.empty(shape, getattr(array, "dtype", view.dtype))
        memory = own if _fits(_of_numpy(own, own, "result"), view, shape) else None
    if memory is None:
        memory = np.empty(shape, _dtype_named(view.dtype))
    finish: Callable[[], Any] = lambda: memory  # noqa: E731
    if not isinstance(array, np.ndarray):
        with contextlib.suppress(Exception):
            namespace = array.__array_namespace__()
            finish = lambda: _made_of(namespace, memory)  # noqa: E731
    return _of_numpy(memory, memory, "result"), finish


def _fits(into: View, view: View, shape: tuple[int, ...]) -> bool:
    """Whether memory for a result is of the shape that was asked for, and of the same elements."""
    return (into.shape, into.width, into.dtype) == (tuple(shape), view.width, view.dtype)


def _made_of(namespace: Any, memory: Any) -> Any:
    """An array of a framework of memory; the memory where it makes none."""
    try:
        return namespace.asarray(memory)
    except Exception:  # noqa: BLE001, of another framework: the result is here all the same
        return memory


def was_written(array: Any) -> None:
    """Tell autograd that an array was written to behind its back, if it is one of PyTorch's."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        torch.autograd.graph.increment_version(array)


def _dtype_named(name: str) -> Any:
    """A type of numpy; bfloat16 is one where a framework has brought it."""
    try:
        return np.dtype(name)
    except TypeError:
        brought = sys.modules.get("ml_dtypes")
        if brought is not None and hasattr(brought, name):
            return np.dtype(getattr(brought, name))
        raise InputError(
            f"numpy has no elements of type {name} to make a result of",
            field="array",
            hint="install `ml_dtypes`, which adds them, and import it",
        ) from None


def _of_numpy(array: np.ndarray[Any, Any], keeps: object, field: str) -> View:
    dtype = array.dtype
    known = dtype.kind in "biufc" or (dtype.name.startswith(("bfloat", "float8", "int", "uint")))
    if not known or not dtype.isnative:
        raise InputError(
            "its elements are no numbers" if not known else "its bytes are in another order",
            field=field,
            value=str(dtype),
            hint="give numbers in this host's order, such as `array.astype('float32')`",
        )
    # A scalar of numpy's is copied when it is made an array.
    writable = array.flags.writeable and not isinstance(keeps, np.generic)
    if not array.flags.c_contiguous:
        pointer = array.ctypes.data
        return _copied(
            pointer,
            array.shape,
            array.strides,
            (dtype.name, dtype.itemsize),
            keeps,
            writable=writable,
        )
    # An array that something refers to weakly is not resized, whatever numpy was told to check.
    owner, watched = array, [weakref.ref(array)]
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
        watched.append(weakref.ref(owner))
    keeps = (keeps, array, watched)
    return View(array.ctypes.data, array.shape, dtype.name, dtype.itemsize, writable, keeps)


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_is_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _of_dlpack(array: Any, field: str) -> View:
    try:
        device, _ = array.__dlpack_device__()
        device = int(device)
    except Exception as error:
        raise _on_a_device("another device", field) from error
    if device not in _HOST:
        raise _on_a_device("a GPU or another device", field)
    for lazily in ("is_neg", "is_conj"):  # of torch, whose DLPack takes no notice of the first
        if hasattr(array, lazily) and getattr(array, lazily)():
            raise InputError(
                "its numbers are negated or conjugated as they are read, and its memory has others",
                field=field,
                hint="give `tensor.resolve_conj().resolve_neg()`",
            )
    try:
        capsule = _capsule_of(array)
    except Exception as error:
        raise InputError(
            f"it cannot be read by DLPack: {_words(error)}",
            field=field,
            hint="detach a tensor that has a gradient (`tensor.detach()`); make a sparse one dense",
        ) from error
    if _is_capsule(capsule, b"dltensor_versioned"):
        whole = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if whole.major != _NEWEST[0]:
            raise _unreadable(f"it is of version {whole.major} of DLPack", array, field)
        tensor, writable = whole.tensor, not whole.flags & _READ_ONLY
    elif not _is_capsule(capsule, b"dltensor"):
        why = "`__dlpack__` returns no capsule, or one that was used before"
        raise _unreadable(why, array, field)
    else:
        # An old capsule says nothing of it. Frameworks whose arrays never change forbid it.
        tensor = _Tensor.from_address(_pointer(capsule, b"dltensor"))
        writable = hasattr(array, "data_ptr")
    if tensor.device_type not in _HOST:
        raise _on_a_device("a GPU or another device", field)
    if not 0 <= tensor.ndim <= _MAX_AXES or (tensor.ndim and not tensor.shape):
        raise _unreadable(f"it has {tensor.ndim} axes, or no shape", array, field)
    shape = tuple(tensor.shape[: tensor.ndim])
    nbytes = math.prod(shape) * (tensor.bits // 8)
    if min(shape, default=0) < 0 or nbytes > _MAX_BYTES or (nbytes and not tensor.data):
        raise _unreadable(f"it has the shape {shape}, or no memory", array, field)
    if tensor.code not in _KINDS or tensor.lanes != 1 or tensor.bits not in _BITS:
        raise InputError(
            "its elements are of a type that is not known here",
            field=field,
            value=str(getattr(array, "dtype", "")) or None,
            hint="cast it to float32, float64, float16, bfloat16, or an integer type",
        )
    kind = _KINDS[tensor.code]
    dtype = kind if kind == "bool" else f"{kind}{tensor.bits}"
    pointer, width = (tensor.data or 0) + tensor.byte_offset, tensor.bits // 8
    if tensor.strides and not _is_contiguous(shape, tensor.strides[: tensor.ndim]):
        strides = tuple(width * stride for stride in tensor.strides[: tensor.ndim])
        reach = sum(max(size - 1, 0) * step for size, step in zip(shape, strides, strict=True))
        if min(strides) < 0 or reach > _MAX_BYTES:
            raise _unreadable("its strides lead out of memory", array, field)
        return _copied(pointer, shape, strides, (dtype, width), (array, capsule), writable=writable)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        # A capsule holds the tensor, which may be given another storage meanwhile.
        guard_resizes(torch)
        held = _core.Memory.of_tensor(array)
        return View(pointer, shape, dtype, width, writable, held)
    return View(pointer, shape, dtype, width, writable, (array, capsule))


def _capsule_of(array: Any) -> Any:
    try:
        return array.__dlpack__(max_version=_NEWEST)
    except TypeError:  # it was written before there were versions
        return array.__dlpack__()


def _is_contiguous(shape: tuple[int, ...], strides: list[int]) -> bool:
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step:
            return math.prod(shape) == 0
        step *= size
    return True


class _At:
    """Elements at an address, as the array interface tells of them."""

    def __init__(self, interface: dict[str, Any], keeps: object) -> None:
        self.__array_interface__ = interface
        self.keeps = keeps


def _copied(
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


def _on_a_device(where: str, field: str) -> InputError:
    return InputError(
        f"it is in the memory of {where}",
        field=field,
        hint="give an array in host memory, such as `numpy.asarray(array)`; for tensors on a GPU"
        " under PyTorch there is `allrail.torch` with `transport='c10d'`",
    )
