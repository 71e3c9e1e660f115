"""Chunk schedulers of your own, in Python: a function from a problem to the stages of every chunk.

    # rotate.py
    import allrail

    @allrail.chunk_scheduler("rotate")
    def rotate(problem):
        '''Chunk i starts at dimension i.'''
        turn = len(problem.dimensions)
        return [
            problem.visit(problem.dimensions[i % turn :] + problem.dimensions[: i % turn])
            for i in range(len(problem.chunks))
        ]

`allrail compare scenario.yaml --policy themis,rotate --plugin rotate.py` compares it; in Python the
decorator alone makes the name known. The answer is checked as that of any other chunk scheduler.

The function runs in a thread of its own, one call at a time, within a time limit; Ctrl-C ends it.
It must depend on its problem alone: two versions of it differ by the source of their files, by
nothing else. What it makes is never kept on disk. Not stopped: code outside Python that does not
let go of the interpreter.

- `problem`: what a function is given, and stages; `answer`: reads what it returns;
- `call`: one call of it, in a thread that can be ended.
"""

from __future__ import annotations

import hashlib
import marshal
import re
import sys
import threading
import time
from collections.abc import Callable
from inspect import unwrap
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from allrail import _core
from allrail.arguments import KINDS, check, checked
from allrail.errors import InputError, did_you_mean, shorten
from allrail.plugins.answer import NoScheduleError
from allrail.plugins.call import LOOK_S, Call
from allrail.plugins.problem import Problem, Stage, StageTime

if TYPE_CHECKING:
    import os

__all__ = [
    "Problem",
    "Stage",
    "StageTime",
    "chunk_scheduler",
    "forget",
    "load_plugin",
    "registered",
]

Function = TypeVar("Function", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_RETURN = "return the stages of each chunk: `[problem.visit(order) for _ in problem.chunks]`"
_VISIT = "`problem.visit(order)` makes all stages of a chunk that visits the dimensions in an order"


def chunk_scheduler(
    name: str, *, order: str = "fifo", time_limit: str = "10 s"
) -> Callable[[Function], Function]:
    """Make a function a chunk scheduler that scenarios can name as `schedule.policy`.

    The function takes a `Problem` and returns a list of `Stage`s for each chunk. The first line of
    its docstring says what it does.

    Args:
        name: What scenarios call it.
        order: The `schedule.order` that suits it, taken where a scenario names none.
        time_limit: How long it may take for one collective, such as `"1 s"`.

    Raises:
        InputError: The name is not one, or is taken; there is no such order; the limit is no time.
    """
    for field, value, example in (
        ("name", name, '"least_loaded"'),
        ("order", order, '"fifo"'),
        ("time_limit", time_limit, '"10 s"'),
    ):
        check(field, value, kind=KINDS["name"]._replace(example=example))
    limit_s = _limit(time_limit)
    known = [row["name"] for row in _table("orders")]
    if order not in known:
        hint = did_you_mean(str(order), known)
        raise InputError("it is not an order", hint=hint, field="order", value=str(order))

    def register(function: Function) -> Function:
        code = getattr(unwrap(function), "__code__", None)
        if not isinstance(code, CodeType):
            hint = "write `@allrail.chunk_scheduler(...)` above a `def`"
            raise InputError("it is not a function", hint=hint, value=repr(function))
        scheduler = _Scheduler(name, function, limit_s, code.co_filename, code.co_firstlineno)
        scheduler.check_name()
        text = (function.__doc__ or "").strip() or f"written in Python, in {scheduler.source}"
        about = text.splitlines()[0].rstrip(".")
        _core.register_policy(name, about, _version(code), order, scheduler)
        _registered[name] = scheduler
        _forget_tables()
        return function

    return register


@checked
def load_plugin(path: str | os.PathLike[str]) -> list[str]:
    """Run a Python file and return the names of the chunk schedulers that it registers.

    Args:
        path: The file.

    Raises:
        InputError: It cannot be read, raises, or registers nothing.
    """
    from allrail.scenario.text import read_bytes

    return load_text(str(path), read_bytes(Path(path)))


def load_text(source: str, text: str) -> list[str]:
    """Run the text of a plugin, as `load_plugin` does with a file.

    Args:
        source: Which file it is from.
        text: What that holds.

    Raises:
        InputError: It raises, or registers nothing.
    """
    module = ModuleType(f"allrail_plugin_{Path(source).stem}")
    module.__file__ = str(Path(source).absolute())
    sys.modules[module.__name__] = module
    before = dict(_registered)
    try:
        exec(compile(text, source, "exec"), module.__dict__)  # noqa: S102, it is what was asked for
    except SyntaxError as error:
        raise InputError(
            f"it is not Python: {error.msg}", source=source, line=error.lineno
        ) from None
    except InputError as error:
        error.source, error.line = source, _line(error.__traceback__, source) or error.line
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001, whatever it is is told
        line = _line(error.__traceback__, source)
        raise InputError(f"it raised {_told(error)}", source=source, line=line) from None
    names = [name for name, one in _registered.items() if before.get(name) is not one]
    if not names:
        raise InputError(
            "it registers no chunk scheduler",
            hint='write `@allrail.chunk_scheduler("name")` above a function',
            source=source,
        )
    _loaded[source] = text
    return names


def loaded() -> dict[str, str]:
    """Return the text of each plugin that was loaded, by its file: what another process needs."""
    return dict(_loaded)


def only_here() -> list[str]:
    """Return the chunk schedulers of no plugin's file, which no other process can have."""
    return [name for name, one in _registered.items() if one.source not in _loaded]


def registered() -> list[str]:
    """Return the names of all chunk schedulers that were registered."""
    return list(_registered)


def forget(name: str) -> None:
    """Forget a chunk scheduler that was registered.

    Args:
        name: What scenarios call it; nothing happens if there is none of that name.
    """
    _registered.pop(name, None)
    _core.forget_policy(name)
    _forget_tables()


class _Scheduler:
    """What the core calls: the function, its limits, and how its failures are told."""

    def __init__(
        self, name: str, function: Callable[..., Any], limit_s: float, source: str, line: int
    ) -> None:
        self.name = name
        self.function = function
        self.limit_s = limit_s
        self.source = source
        self.line = line

    def check_name(self) -> None:
        """Refuse a name that cannot be written in a scenario, or means another scheduler."""
        if not _NAME.fullmatch(str(self.name)):
            hint = "letters, digits, `_` and `-`, a letter first"
            raise InputError("it is not a name", hint=hint, field="name", value=str(self.name))
        other = _registered.get(self.name)
        if other is None and self.name in (row["name"] for row in _table("policies")):
            why = "allrail has a chunk scheduler of this name"
        elif other is not None and _two_files(other.source, self.source):
            why = f"`{other.source}` has a chunk scheduler of this name"
        else:
            return
        raise InputError(why, hint="take another name", field="name", value=self.name)

    def __call__(
        self, asked: _core.PolicyProblem, stopped: Callable[[], bool]
    ) -> list[list[tuple[str, int]]]:
        """Return the stages of every chunk.

        Args:
            asked: The problem.
            stopped: Whether nobody wants the answer any more.

        Raises:
            InputError: The function raised, took too long, or returned no schedule.
        """
        while not _one_at_a_time.acquire(timeout=LOOK_S):
            if stopped():
                raise self._error("its answer was no longer wanted")
        try:
            answer = self._ask(Problem.of(asked), stopped)
        finally:
            _one_at_a_time.release()
        try:
            asked.check(answer)
        except ValueError as error:
            raise self._error(f"it returned no schedule: {error}", hint=_VISIT) from None
        return answer

    def _ask(self, problem: Problem, stopped: Callable[[], bool]) -> list[list[tuple[str, int]]]:
        call = Call(self.function, problem)
        end = time.monotonic() + self.limit_s
        call.start()
        try:
            while call.is_alive():
                call.join(LOOK_S)
                if call.is_alive() and stopped():
                    raise self._error("its answer was no longer wanted")
                if call.is_alive() and time.monotonic() > end:
                    raise self._error(
                        f"it has not answered for {self.limit_s:g} s",
                        hint=f"it may take longer if you write `@allrail.chunk_scheduler("
                        f'"{self.name}", time_limit="{10 * self.limit_s:g} s")`',
                    )
        finally:
            if call.is_alive():
                call.stop()
        error = call.error
        if isinstance(error, NoScheduleError):
            raise self._error(f"it returned no schedule: {error}", hint=_RETURN) from None
        if error is not None:
            line = _line(error.__traceback__, self.source)
            raise self._error(f"it raised {_told(error)}", line=line) from None
        return call.answer

    def _error(self, why: str, *, hint: str = "", line: int | None = None) -> InputError:
        return InputError(
            why,
            hint=hint,
            source=self.source,
            line=line or self.line,
            field="schedule.policy",
            value=self.name,
        )


_registered: dict[str, _Scheduler] = {}
_loaded: dict[str, str] = {}
_one_at_a_time = threading.Lock()
"""Functions share the interpreter: side by side, each would have a part of its time only."""


def _told(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {shorten(text)}" if text else type(error).__name__


def _line(trace: TracebackType | None, source: str) -> int | None:
    """Return the innermost line of `source` that an exception passed."""
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == source:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _limit(text: str) -> float:
    import json

    try:
        limit = _core.parse_quantity("time", text) / 1e12
    except (_core.InputError, UnicodeEncodeError) as error:
        told = json.loads(error.args[0]) if isinstance(error, _core.InputError) else {}
        raise InputError(
            told.get("why", "a time is a number with a unit"),
            hint=told.get("hint") or 'write it as `time_limit="10 s"`',
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


def _table(name: str) -> tuple[dict[str, Any], ...]:
    import json

    return tuple(json.loads(getattr(_core, name)()))


def _forget_tables() -> None:
    """Make scenarios look the names up anew, if they did before."""
    fields = sys.modules.get("allrail.scenario.fields")
    if fields is not None:
        fields.table.cache_clear()
