"""Pickles of plain data, such as dumps of torch's Flight Recorder: nothing in them is ever called.

A pickle is a program, and `pickle.load` runs it: whoever reads a stranger's file that way runs
their code. Here only the instructions are known that build numbers, texts, lists, tuples and
dicts; a file with any other is refused where it comes. (Lists that C++ writes may name a function
of torch that builds them, which is answered with the list itself.)

A pickle may name one list many times, so a small file may hold a tree that nobody can walk through,
or one that holds itself. Both are refused, and so is a key that is no number or text: hashing a
tuple of tuples takes as long as walking through it.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
from typing import Any

from allrail.base.errors import InputError

_PLAIN = (
    *("PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP"),
    *("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES"),
    *("EMPTY_LIST", "EMPTY_TUPLE", "EMPTY_DICT", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
    *("APPEND", "APPENDS", "SETITEM", "SETITEMS"),
    *("BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "MEMOIZE"),
    *("GLOBAL", "REDUCE"),
)
"""Instructions that are run. `GLOBAL` finds the builders of lists alone, so `REDUCE` calls nothing
else."""
_BUILDERS = ("build_intlist", "build_tensorlist", "build_doublelist", "build_boollist")
_NAMES = {opcode.code: opcode.name for opcode in pickletools.opcodes}
# The one in Python: it keeps what is remembered in a dict, where that in C takes as much memory as
# the largest number that a file names.
_Unpickler: Any = pickle._Unpickler


_BROKEN = (
    *(EOFError, ValueError, TypeError, IndexError, AttributeError, OverflowError, MemoryError),
    *(struct.error, pickle.UnpicklingError, NotImplementedError),
)
"""What a pickle that is cut off or garbled makes of its stack."""


class _RefusedError(Exception):
    """An instruction that builds no plain data."""


def _same(items: Any) -> Any:
    return items


_MOST = 1 << 26
"""Values of a tree, those that are named several times counted each time."""
_TREES = (list, tuple, dict)


class _Plain(_Unpickler):  # type: ignore[misc]
    dispatch = {  # noqa: RUF012, as its base has it
        code: run for code, run in _Unpickler.dispatch.items() if _NAMES[chr(code)] in _PLAIN
    }

    def _check_key_of_one(self) -> None:
        _check_keys(self.stack[-2:-1])
        self.load_setitem()

    def _check_keys_of_many(self) -> None:
        _check_keys(self.stack[::2])
        self.load_setitems()

    dispatch[pickle.SETITEM[0]] = _check_key_of_one
    dispatch[pickle.SETITEMS[0]] = _check_keys_of_many

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch.jit._pickle" and name in _BUILDERS:
            return _same
        raise _RefusedError(f"the name `{module}.{name}`")


def load_plain(data: bytes, *, source: str) -> Any:
    """Return the plain data of a pickle.

    Args:
        data: The file.
        source: Its name, for messages.

    Raises:
        InputError: It is no whole pickle, or holds more than plain data.
    """
    try:
        return _of_a_size(_Plain(io.BytesIO(data)).load())
    except _RefusedError as refused:
        raise _strange(f"it has {refused}", source) from None
    except KeyError as error:
        code = error.args[0]
        # Of instructions, or of what was never remembered.
        known = isinstance(code, int) and chr(code) in _NAMES
        name = _NAMES[chr(code)] if known and code not in _Plain.dispatch else None
        if name is not None:
            raise _strange(f"it has the instruction `{name}`", source) from None
        raise _broken(source) from None
    except _BROKEN:
        raise _broken(source) from None


def _check_keys(keys: list[Any]) -> None:
    for key in keys:
        if isinstance(key, _TREES):
            raise _RefusedError("a list or a dict as a key")


def _of_a_size(tree: Any) -> Any:
    """The tree; refused where it holds itself, or has more than `_MOST` values on a walk."""
    sizes: dict[int, int] = {}
    above: set[int] = set()
    left = [(tree, False)]
    while left:
        one, counted = left.pop()
        if not isinstance(one, _TREES) or (id(one) in sizes and not counted):
            continue
        inner = list(one.values()) if isinstance(one, dict) else one
        if counted:
            above.discard(id(one))
            sizes[id(one)] = 1 + sum(sizes.get(id(value), 1) for value in inner)
            if sizes[id(one)] > _MOST:
                raise _RefusedError("a tree without an end")
            continue
        if id(one) in above:
            raise _RefusedError("a list that holds itself")
        above.add(id(one))
        left.append((one, True))
        nested = {id(value): value for value in inner if isinstance(value, _TREES)}
        left.extend((value, False) for value in nested.values())
    return tree


def _strange(why: str, source: str) -> InputError:
    return InputError(
        f"this pickle holds more than plain data, and is not run: {why}",
        source=source,
        hint="give a dump of torch's Flight Recorder as torch wrote it",
    )


def _broken(source: str) -> InputError:
    return InputError(
        "it is no whole pickle", source=source, hint="copy it again; was the job ended meanwhile?"
    )
