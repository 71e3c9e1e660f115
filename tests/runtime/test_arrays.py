"""Arrays of others as memory: what lies, raises or cannot be read is one error with a hint.

No ranks are started: `view_of` is asked.
"""

from __future__ import annotations

import array as arrays
import ctypes

import numpy as np
import pytest

from allrail.base.errors import InputError
from allrail.runtime.arrays import made_like, view_of
from allrail.runtime.dlpack import _Versioned

_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


class Foreign:
    """An array of a framework that says what it is told to.

    Args:
        given: Returned by `__dlpack__`; raised if it is an exception.
        device: Of `__dlpack_device__`, as `given`.
    """

    def __init__(self, given, device=(1, 0)):
        self._given, self._device = given, device

    def __dlpack_device__(self):
        if isinstance(self._device, BaseException):
            raise self._device
        return self._device

    def __dlpack__(self, **_):
        if isinstance(self._given, BaseException):
            raise self._given
        return self._given


def capsule(*, name=b"dltensor_versioned", major=1, **fields):
    """A capsule over eight float32, but for what `fields` change."""
    data = (ctypes.c_float * 8)(*range(8))
    shape, strides = (ctypes.c_int64 * 8)(8), (ctypes.c_int64 * 8)(1)
    whole = _Versioned(major=major, minor=0, context=None, deleter=None, flags=0)
    tensor = whole.tensor
    tensor.data, tensor.device_type, tensor.ndim = ctypes.addressof(data), 1, 1
    tensor.code, tensor.bits, tensor.lanes = 2, 32, 1
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
    for key, value in fields.items():
        if key in ("shape", "strides"):
            for place, number in enumerate(value):
                getattr(tensor, key)[place] = number
        else:
            setattr(tensor, key, value)
    KEPT.extend((data, shape, strides, whole))
    at = whole if name == b"dltensor_versioned" else tensor
    return _capsule(ctypes.addressof(at), name, None)


KEPT: list[object] = []
"""What capsules point to."""


def capsule_without(field):
    made = capsule()
    whole = KEPT[-1]
    setattr(whole.tensor, field, None)
    return made


def released():
    view = memoryview(bytearray(8))
    view.release()
    return view


BAD = {
    "raises": lambda: Foreign(RuntimeError("out of order")),
    "raises another kind": lambda: Foreign(KeyError("x")),
    "raises a type error": lambda: Foreign(TypeError("x")),
    "raises what has no text": lambda: Foreign(type("E", (Exception,), {"__str__": None})()),
    "returns nothing": lambda: Foreign(None),
    "returns a number": lambda: Foreign(3),
    "returns another capsule": lambda: Foreign(capsule(name=b"used_dltensor")),
    "device raises": lambda: Foreign(capsule(), ValueError("meta")),
    "device raises another kind": lambda: Foreign(capsule(), ZeroDivisionError()),
    "device is no pair": lambda: Foreign(capsule(), 1),
    "device is none": lambda: Foreign(capsule(), None),
    "device is text": lambda: Foreign(capsule(), ("cpu", 0)),
    "device is a GPU": lambda: Foreign(capsule(), (2, 0)),
    "device lies": lambda: Foreign(capsule(device_type=2)),
    "a version of the future": lambda: Foreign(capsule(major=2)),
    "negative strides": lambda: Foreign(capsule(strides=[-1])),
    "gaps beyond all memory": lambda: Foreign(capsule(strides=[2**61])),
    "a negative size": lambda: Foreign(capsule(shape=[-8])),
    "more than there is of memory": lambda: Foreign(capsule(shape=[2**62], strides=[1])),
    "sizes whose product is too large": lambda: Foreign(
        capsule(ndim=3, shape=[2**31] * 3, strides=[2**62, 2**31, 1])
    ),
    "negative axes": lambda: Foreign(capsule(ndim=-1)),
    "a billion axes": lambda: Foreign(capsule(ndim=2**30)),
    "no shape": lambda: Foreign(capsule_without("shape")),
    "no memory": lambda: Foreign(capsule(data=None)),
    "elements of no bits": lambda: Foreign(capsule(bits=0)),
    "elements of four bits": lambda: Foreign(capsule(bits=4)),
    "elements of another kind": lambda: Foreign(capsule(code=99)),
    "vectors": lambda: Foreign(capsule(lanes=4)),
    "an interface that raises": type("A", (), {"__array_interface__": property(lambda _: 1 / 0)}),
    "an interface of rubbish": type("A", (), {"__array_interface__": {"shape": "x"}}),
    "an interface that is none": type("A", (), {"__array_interface__": 3}),
    "attributes that raise": type("A", (), {"__getattr__": lambda *_: 1 / 0}),
    "a released buffer": released,
    "a buffer of pointers": ctypes.c_void_p * 2,
    "a buffer of texts": lambda: arrays.array("u", "ab"),
    "a number": lambda: 3,
    "nothing": lambda: None,
    "text": lambda: "text",
    "a list": lambda: [1.0, 2.0],
    "objects": lambda: np.array([object()]),
    "texts": lambda: np.array(["a"]),
    "dates": lambda: np.array(["2020-01-01"], "datetime64[D]"),
    "records": lambda: np.zeros(2, "i4,f4"),
    "another order of bytes": lambda: np.zeros(2, ">f4"),
    "a mask": lambda: np.ma.masked_array(np.zeros(2), mask=[0, 1]),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_read_is_one_error(what):
    with pytest.raises(InputError) as raised:
        view_of(BAD[what]())
    assert raised.value.field == "array"
    assert raised.value.hint
    str(raised.value).encode()


GOOD = {
    "a capsule": (lambda: Foreign(capsule()), (8,), "float32"),
    "an old capsule": (lambda: Foreign(capsule(name=b"dltensor")), (8,), "float32"),
    "without strides": (lambda: Foreign(capsule_without("strides")), (8,), "float32"),
    "without elements or memory": (lambda: Foreign(capsule(shape=[0], data=None)), (0,), "float32"),
    "a scalar": (lambda: Foreign(capsule(ndim=0)), (), "float32"),
    "bytes": (lambda: b"abc", (3,), "uint8"),
    "read-only": (lambda: np.broadcast_to(np.float32(1), ()), (), "float32"),
    "gaps": (lambda: Foreign(capsule(shape=[4], strides=[2])), (4,), "float32"),
    "numpy with negative strides": (lambda: np.zeros(8)[::-1], (8,), "float64"),
    "numpy with gaps": (lambda: np.zeros(8)[::2], (4,), "float64"),
    "empty": (lambda: np.zeros((0, 3)), (0, 3), "float64"),
    "not aligned": (lambda: np.frombuffer(bytearray(9), "f4", offset=1, count=2), (2,), "float32"),
}


@pytest.mark.filterwarnings("ignore:an array's elements do not lie:RuntimeWarning")
@pytest.mark.parametrize("what", GOOD)
def test_what_can_be_read_is(what):
    make, shape, dtype = GOOD[what]
    view = view_of(make())
    assert (view.shape, view.dtype) == (shape, dtype)


class Lying:
    """An array whose words do not fit its memory."""

    def __init__(self, **said):
        self._own = np.arange(8.0)
        self.__dict__.update(said)

    def __dlpack_device__(self):
        return self._own.__dlpack_device__()

    def __dlpack__(self, **keys):
        return self._own.__dlpack__(**keys)


LIES = {
    "narrow elements": {"dtype": "int8"},
    "objects": {"dtype": "O"},
    "no type": {"dtype": 3},
    "memory of another size": {"new_empty": lambda _: np.zeros(1)},
    "memory of another type": {"new_empty": lambda shape: np.zeros(shape, "i1")},
    "nothing": {"new_empty": lambda _: None},
    "an error": {"new_empty": lambda _: 1 / 0},
    "a namespace that raises": {"__array_namespace__": lambda: 1 / 0},
    "a namespace of nothing": {"__array_namespace__": lambda: None},
}


@pytest.mark.parametrize("what", LIES)
def test_memory_for_a_result_is_as_large_as_the_result(what):
    array = Lying(**LIES[what])
    view = view_of(array)
    into, finish = made_like(array, view, (16,))
    assert (into.nbytes, into.dtype) == (128, "float64")
    into.copy_from(view, at=64, nbytes=64)
    assert np.asarray(finish())[8:].tolist() == list(range(8))


def test_torch_says_what_it_cannot_give():
    torch = pytest.importorskip("torch")
    for tensor in (
        torch.zeros(2, requires_grad=True),
        torch.zeros(2, device="meta"),
        torch.eye(2).to_sparse(),
        torch.zeros(2, dtype=torch.complex64).conj(),
    ):
        with pytest.raises(InputError) as raised:
            view_of(tensor)
        assert raised.value.hint
    assert view_of(torch.zeros(2, dtype=torch.bfloat16)).dtype == "bfloat16"
