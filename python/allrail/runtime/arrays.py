"""Arrays of any framework as memory of this host: by DLPack, the array interface, or as a buffer.

Nothing is imported that the caller has not: an array is asked for what it is. numpy reads arrays of
its own kind and buffers (`dlpack.py` the others).
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from allrail.base.errors import InputError
from allrail.runtime.dlpack import of_dlpack
from allrail.runtime.view import View, copied, on_a_device, unreadable, words_of


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
        raise unreadable(f"{type(error).__name__}: {words_of(error)}", array, field) from error


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
        return of_dlpack(array, field)
    if hasattr(array, "__cuda_array_interface__"):
        raise on_a_device("a GPU", field)
    if hasattr(array, "__array_interface__"):
        return _of_numpy(np.asarray(array), array, field)
    return _of_numpy(np.asarray(memoryview(array)), array, field)


def _speaks(array: Any) -> bool:
    """Whether an array says that it is one."""
    names = ("__dlpack__", "__cuda_array_interface__", "__array_interface__")
    return any(hasattr(type(array), name) for name in names)


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


def in_place(array: Any, view: View) -> tuple[View, Callable[[], Any]]:
    """Return the array itself where it may be written to, else a copy; and what the result is.

    Args:
        array: The array.
        view: Its memory.
    """
    if not view.writable:
        into, finish = made_like(array, view, view.shape)
        into.copy_from(view, nbytes=view.nbytes)
        return into, finish

    def written() -> Any:
        view.put_back()
        _was_written(array)
        return array

    return view, written


def _was_written(array: Any) -> None:
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
        return copied(
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
