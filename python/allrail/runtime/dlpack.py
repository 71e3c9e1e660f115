"""Arrays that speak DLPack, read here: numpy has no bfloat16."""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Any

from allrail import _core
from allrail.base.errors import InputError
from allrail.runtime.resizes import guard_resizes
from allrail.runtime.view import View, copied, on_a_device, unreadable, words_of

# Device types of DLPack whose memory the host reads: its own, and what is pinned for a GPU.
_HOST = (1, 3, 11)
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
_BITS = (8, 16, 32, 64, 128)
_READ_ONLY = 1
_NEWEST = (1, 0)
_MAX_AXES = 64
_MAX_BYTES = 1 << 62


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


def of_dlpack(array: Any, field: str) -> View:
    """Return the memory of an array that has `__dlpack__`.

    Args:
        array: The array.
        field: What an error calls it.

    Raises:
        InputError: Its memory is not on the host, or its elements are not numbers.
    """
    try:
        device, _ = array.__dlpack_device__()
        device = int(device)
    except Exception as error:
        raise on_a_device("another device", field) from error
    if device not in _HOST:
        raise on_a_device("a GPU or another device", field)
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
            f"it cannot be read by DLPack: {words_of(error)}",
            field=field,
            hint="detach a tensor that has a gradient (`tensor.detach()`); make a sparse one dense",
        ) from error
    if _is_capsule(capsule, b"dltensor_versioned"):
        whole = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if whole.major != _NEWEST[0]:
            raise unreadable(f"it is of version {whole.major} of DLPack", array, field)
        tensor, writable = whole.tensor, not whole.flags & _READ_ONLY
    elif not _is_capsule(capsule, b"dltensor"):
        why = "`__dlpack__` returns no capsule, or one that was used before"
        raise unreadable(why, array, field)
    else:
        # An old capsule says nothing of it. Frameworks whose arrays never change forbid it.
        tensor = _Tensor.from_address(_pointer(capsule, b"dltensor"))
        writable = hasattr(array, "data_ptr")
    if tensor.device_type not in _HOST:
        raise on_a_device("a GPU or another device", field)
    if not 0 <= tensor.ndim <= _MAX_AXES or (tensor.ndim and not tensor.shape):
        raise unreadable(f"it has {tensor.ndim} axes, or no shape", array, field)
    shape = tuple(tensor.shape[: tensor.ndim])
    nbytes = math.prod(shape) * (tensor.bits // 8)
    if min(shape, default=0) < 0 or nbytes > _MAX_BYTES or (nbytes and not tensor.data):
        raise unreadable(f"it has the shape {shape}, or no memory", array, field)
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
            raise unreadable("its strides lead out of memory", array, field)
        return copied(pointer, shape, strides, (dtype, width), (array, capsule), writable=writable)
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
