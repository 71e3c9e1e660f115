"""A function of somebody's own: its name, its time limit, and how its failures are told."""

from __future__ import annotations

import hashlib
import json
import marshal
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import unwrap
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, ClassVar

from allrail import _core
from allrail.base.errors import InputError, shorten
from allrail.simulation.plugins.answer import NoScheduleError
from allrail.simulation.plugins.call import LOOK_S, Call, LateError, UnwantedError, here

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class Function:
    """A function that was registered under a name, called in a thread of its own.

    Args:
        name: What scenarios call it.
        function: What is called.
        limit_s: Seconds that one call may take.

    Attributes:
        decorator: What stands above it in its file.
        field: The key that names it.
        kind: What it is, in sentences.
        source: The file that it is from.
        line: Where in it.
        about: The first line of its docstring.
        version: A number that changes with its source.
    """

    decorator: ClassVar[str]
    field: ClassVar[str]
    kind: ClassVar[str]

    def __init__(self, name: str, function: Callable[..., Any], limit_s: float) -> None:
        code = getattr(unwrap(function), "__code__", None)
        if not isinstance(code, CodeType):
            hint = f"write `@allrail.{self.decorator}(...)` above a `def`"
            raise InputError("it is not a function", hint=hint, value=repr(function))
        self.name = name
        self.function = function
        self.limit_s = limit_s
        self.source = code.co_filename
        self.line = code.co_firstlineno
        text = (function.__doc__ or "").strip() or f"written in Python, in {self.source}"
        self.about = text.splitlines()[0].rstrip(".")
        self.version = _version(code)

    def check_name(self, other: Function | None, known: list[str]) -> None:
        """Refuse a name that cannot be written in a scenario, or means another scheduler.

        Args:
            other: Of this kind, the one that has the name now.
            known: The names of its kind, allrail's own among them.

        Raises:
            InputError: It is not a name, or is taken.
        """
        if not _NAME.fullmatch(str(self.name)):
            hint = "letters, digits, `_` and `-`, a letter first"
            raise InputError("it is not a name", hint=hint, field="name", value=str(self.name))
        if other is None and self.name in known:
            why = f"allrail has a {self.kind} of this name"
        elif other is not None and _two_files(other.source, self.source):
            why = f"`{other.source}` has a {self.kind} of this name"
        else:
            return
        raise InputError(why, hint="take another name", field="name", value=self.name)

    def run(self, call: Callable[[], Any], stopped: Callable[[], bool], *, hint: str = "") -> Any:
        """Return what a call of the function gives, once it is its turn.

        Args:
            call: Calls it and reads its answer.
            stopped: Whether nobody wants the answer any more.
            hint: What to return instead of an answer that is none.

        Raises:
            InputError: It raised, took too long, or returned no answer of the right form.
        """
        with self._turn(stopped):
            return self._run(Call(call), stopped, hint)

    def run_here(
        self, call: Callable[[], Any], stopped: Callable[[], bool], *, hint: str = ""
    ) -> Any:
        """Return what a call of the function gives, made in this thread: thousands take no time.

        Args:
            call: Calls it and reads its answer.
            stopped: Whether nobody wants the answer any more.
            hint: What to return instead of an answer that is none.

        Raises:
            InputError: It raised, took too long, or returned no answer of the right form.
        """
        with self._turn(stopped):
            try:
                return here(call, self.limit_s, stopped)
            except LateError:
                raise self._late() from None
            except UnwantedError:
                raise self.error(_UNWANTED) from None
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001, whatever it is is told
                raise self._failed(error, hint) from None

    @contextmanager
    def _turn(self, stopped: Callable[[], bool]) -> Iterator[None]:
        """Wait until no other function runs."""
        while not _one_at_a_time.acquire(timeout=LOOK_S):
            if stopped():
                raise self.error(_UNWANTED)
        try:
            yield
        finally:
            _one_at_a_time.release()

    def _run(self, call: Call, stopped: Callable[[], bool], hint: str) -> Any:
        end = time.monotonic() + self.limit_s
        call.start()
        try:
            while call.is_alive():
                call.join(LOOK_S)
                if call.is_alive() and stopped():
                    raise self.error(_UNWANTED)
                if call.is_alive() and time.monotonic() > end:
                    raise self._late()
        finally:
            if call.is_alive():
                call.stop()
        if call.error is not None:
            raise self._failed(call.error, hint) from None
        return call.answer

    def _late(self) -> InputError:
        return self.error(
            f"it has not answered for {self.limit_s:g} s",
            hint=f"it may take longer if you write `@allrail.{self.decorator}("
            f'"{self.name}", time_limit="{10 * self.limit_s:g} s")`',
        )

    def _failed(self, error: BaseException, hint: str) -> InputError:
        if isinstance(error, NoScheduleError):
            return self.error(f"it returned no schedule: {error}", hint=hint)
        line = line_in(error.__traceback__, self.source)
        return self.error(f"it raised {told(error)}", line=line)

    def error(self, why: str, *, hint: str = "", line: int | None = None) -> InputError:
        """Return what says that the function did something wrong.

        Args:
            why: What it did.
            hint: What to do instead.
            line: Where, if that is known.
        """
        return InputError(
            why,
            hint=hint,
            source=self.source,
            line=line or self.line,
            field=self.field,
            value=self.name,
        )


_UNWANTED = "its answer was no longer wanted"
_one_at_a_time = threading.Lock()
"""Functions share the interpreter: side by side, each would have a part of its time only."""


def told(error: BaseException) -> str:
    """Return an exception in words.

    Args:
        error: The exception.
    """
    text = str(error)
    return f"{type(error).__name__}: {shorten(text)}" if text else type(error).__name__


def line_in(trace: TracebackType | None, source: str) -> int | None:
    """Return the innermost line of a file that an exception passed.

    Args:
        trace: Of the exception.
        source: The file.
    """
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == source:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def seconds(text: str) -> float:
    """Return a time limit in seconds.

    Args:
        text: Such as `"10 s"`.

    Raises:
        InputError: It is no time, or zero.
    """
    try:
        limit = _core.parse_quantity("time", text) / 1e12
    except (_core.InputError, UnicodeEncodeError) as error:
        given = json.loads(error.args[0]) if isinstance(error, _core.InputError) else {}
        raise InputError(
            given.get("why", "a time is a number with a unit"),
            hint=given.get("hint") or 'write it as `time_limit="10 s"`',
            field="time_limit",
            value=str(text),
        ) from None
    if limit == 0:
        hint = 'write it as `time_limit="10 s"`'
        raise InputError("it is zero", hint=hint, field="time_limit", value=text)
    return limit


def _version(code: CodeType) -> int:
    """Return a number that changes with the source: of its file, or of the function alone."""
    try:
        text = Path(code.co_filename).read_bytes()
    except OSError:
        text = marshal.dumps(code)
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big")


def _two_files(one: str, other: str) -> bool:
    """Whether both are files, and not the same: a cell of a notebook that is run again is none."""
    first, second = Path(one), Path(other)
    return first.exists() and second.exists() and not first.samefile(second)
