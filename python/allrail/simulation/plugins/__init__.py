"""Chunk and tensor schedulers of your own, in Python: functions that scenarios can name.

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

A function runs in a thread of its own, one call at a time, within a time limit; Ctrl-C ends it. One
that chooses as it goes is asked in the thread of the simulation, under the same limit.
It must depend on what it is given alone: two versions of it differ by the source of their files, by
nothing else. What it makes is never kept on disk. Not stopped: code outside Python that does not
let go of the interpreter.

- `chunks`, `problem`, `answer`: chunk schedulers, what they are given, what they return;
- `tensors`, `task`: tensor schedulers, and what they are given;
- `function`, `call`: one of either, and one call of it, in a thread that can be ended.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from allrail import _core
from allrail.base.arguments import KINDS, check, checked
from allrail.base.errors import InputError, did_you_mean
from allrail.scenario.text import read_bytes
from allrail.simulation.plugins.chunks import ChunkFunction
from allrail.simulation.plugins.function import Function, line_in, seconds, told
from allrail.simulation.plugins.problem import Problem, Stage, StageTime
from allrail.simulation.plugins.task import CommTask, Core
from allrail.simulation.plugins.tensors import TensorFunction
from allrail.simulation.plugins.tensors import register as register_tensor

if TYPE_CHECKING:
    import os

__all__ = [
    "CommTask",
    "Core",
    "Problem",
    "Stage",
    "StageTime",
    "chunk_scheduler",
    "forget",
    "load_plugin",
    "registered",
    "tensor_scheduler",
]

Of = TypeVar("Of", bound=Callable[..., Any])


def chunk_scheduler(
    name: str, *, order: str = "fifo", time_limit: str = "10 s"
) -> Callable[[Of], Of]:
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
    _check_text(name=(name, '"least_loaded"'), order=(order, '"fifo"'))
    limit_s = _limit(time_limit)
    known = [row["name"] for row in _table("orders")]
    if order not in known:
        hint = did_you_mean(str(order), known)
        raise InputError("it is not an order", hint=hint, field="order", value=str(order))

    def register(function: Of) -> Of:
        one = ChunkFunction(name, function, limit_s)
        _check_name(one, "policies")
        _core.register_policy(name, one.about, one.version, order, one)
        _keep(one)
        return function

    return register


def tensor_scheduler(
    name: str,
    *,
    partition: str = "4 MiB",
    credit: str = "16 MiB",
    barrier: bool = False,
    time_limit: str = "10 s",
) -> Callable[[Of], Of]:
    """Make a function a tensor scheduler that scenarios can name as `schedule.tensor.policy`.

    The function takes a list of `CommTask`s in the order of the forward pass, may cut them by
    `CommTask.partition`, and returns them with the most urgent first: partitions start in that
    order, up to a credit in flight, and travel in it. Or it returns a function that takes a `Core`
    and returns the task whose next partition starts, or None to wait for the next event. The first
    line of its docstring says what it does.

    Args:
        name: What scenarios call it.
        partition: Largest size of a partition, where neither a scenario's
            `schedule.tensor.partition` nor the function says another.
        credit: Bytes that may be in flight, where `schedule.tensor.credit` says nothing else.
        barrier: Whether all layers of the next iteration wait for all gradients of this one.
        time_limit: How long one call may take, such as `"1 s"`.

    Raises:
        InputError: The name is not one, or is taken; a size is none; the limit is no time.
    """
    _check_text(name=(name, '"small_first"'))
    sizes = [_size(key, one) for key, one in (("partition", partition), ("credit", credit))]
    check("barrier", barrier)
    limit_s = _limit(time_limit)

    def register(function: Of) -> Of:
        one = TensorFunction(name, function, limit_s)
        _check_name(one, "tensor_policies")
        register_tensor(one, partition=sizes[0], credit=sizes[1], barrier=barrier)
        _keep(one)
        return function

    return register


@checked
def load_plugin(path: str | os.PathLike[str]) -> list[str]:
    """Run a Python file and return the names of the schedulers that it registers.

    Args:
        path: The file.

    Raises:
        InputError: It cannot be read, raises, or registers nothing.
    """
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
        error.source, error.line = source, line_in(error.__traceback__, source) or error.line
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001, whatever it is is told
        line = line_in(error.__traceback__, source)
        raise InputError(f"it raised {told(error)}", source=source, line=line) from None
    names = [one.name for key, one in _registered.items() if before.get(key) is not one]
    if not names:
        raise InputError(
            "it registers no scheduler",
            hint='write `@allrail.chunk_scheduler("name")` or `@allrail.tensor_scheduler("name")`'
            " above a function",
            source=source,
        )
    _loaded[source] = text
    return names


def loaded() -> dict[str, str]:
    """Return the text of each plugin that was loaded, by its file: what another process needs."""
    return dict(_loaded)


def only_here() -> list[str]:
    """Return the schedulers of no plugin's file, which no other process can have."""
    return [one.name for one in _registered.values() if one.source not in _loaded]


def registered(kind: str = "") -> list[str]:
    """Return the names of the schedulers that were registered.

    Args:
        kind: Of these alone: `chunk scheduler` or `tensor scheduler`.
    """
    return [one.name for one in _registered.values() if kind in ("", one.kind)]


def tensor_function(name: str) -> TensorFunction | None:
    """Return the tensor scheduler that was registered under a name.

    Args:
        name: What scenarios call it.
    """
    found = _registered.get((TensorFunction.kind, name))
    return found if isinstance(found, TensorFunction) else None


def forget(name: str) -> None:
    """Forget the schedulers of a name that were registered.

    Args:
        name: What scenarios call them; nothing happens if there is none of that name.
    """
    for key in [key for key, one in _registered.items() if one.name == name]:
        del _registered[key]
    _core.forget_policy(name)
    _core.forget_tensor_policy(name)
    _forget_tables()


_registered: dict[tuple[str, str], Function] = {}
"""By kind and name."""
_loaded: dict[str, str] = {}


def _check_text(**given: tuple[object, str]) -> None:
    for field, (value, example) in given.items():
        check(field, value, kind=KINDS["name"]._replace(example=example))


def _limit(text: str) -> float:
    _check_text(time_limit=(text, '"10 s"'))
    return seconds(text)


def _size(field: str, text: str) -> int:
    """Return a size in bytes."""
    _check_text(**{field: (text, '"4 MiB"')})
    try:
        size = _core.parse_quantity("size", text)
    except (_core.InputError, UnicodeEncodeError) as error:
        given = json.loads(error.args[0]) if isinstance(error, _core.InputError) else {}
        why = given.get("why", "a size is a number with a unit")
        hint = given.get("hint") or f'write it as `{field}="4 MiB"`'
        raise InputError(why, hint=hint, field=field, value=text) from None
    if size == 0:
        hint = f'write it as `{field}="4 MiB"`'
        raise InputError("it is zero", hint=hint, field=field, value=text)
    return size


def _check_name(one: Function, table: str) -> None:
    other = _registered.get((one.kind, one.name))
    one.check_name(other, [row["name"] for row in _table(table)])


def _keep(one: Function) -> None:
    _registered[one.kind, one.name] = one
    _forget_tables()


def _table(name: str) -> tuple[dict[str, Any], ...]:
    return tuple(json.loads(getattr(_core, name)()))


def _forget_tables() -> None:
    """Make scenarios look the names up anew, if they did before."""
    fields = sys.modules.get("allrail.scenario.fields")
    if fields is not None:
        fields.table.cache_clear()
    policies = sys.modules.get("allrail.scenario.policies")
    if policies is not None:
        policies._rows.cache_clear()
