"""Pickles of plain data, such as dumps of torch's Flight Recorder: nothing in them is ever called.

A pickle is a program, and `pickle.load` runs it: whoever reads a stranger's file that way runs
their code. Here only the instructions are known that build numbers, texts, lists, tuples and
dicts; a file with any other is refused where it comes. (Lists that C++ writes may name a function
of torch that builds them, which is answered with the list itself.)
"""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
from typing import Any

from allrail.errors import InputError

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


class _Plain(_Unpickler):  # type: ignore[misc]
    dispatch = {  # noqa: RUF012, as its base has it
        code: run for code, run in _Unpickler.dispatch.items() if _NAMES[chr(code)] in _PLAIN
    }

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch.jit._pickle" and name in _BUILDERS:
            return _same
        raise _RefusedError(f"{module}.{name}")


def load_plain(data: bytes, *, source: str) -> Any:
    """Return the plain data of a pickle.

    Args:
        data: The file.
        source: Its name, for messages.

    Raises:
        InputError: It is no whole pickle, or holds more than plain data.
    """
    try:
        return _Plain(io.BytesIO(data)).load()
    except _RefusedError as refused:
        raise _strange(f"it names `{refused}`", source) from None
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
