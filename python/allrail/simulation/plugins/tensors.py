"""Tensor schedulers of your own, in Python: a function from tasks to their order.

    # small_first.py
    import allrail

    @allrail.tensor_scheduler("small_first", credit="8 MiB")
    def small_first(tasks):
        '''Small gradients first, in partitions of 1 MiB.'''
        for task in tasks:
            task.partition("1 MiB")
        return sorted(tasks, key=lambda task: task.bytes)

It may return a function instead, which is asked what starts at every event: `choose(core)` returns
one of `core.ready`, or None to wait for the next event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from allrail import _core
from allrail.base.errors import shorten
from allrail.base.units import show_count
from allrail.simulation.plugins.answer import NoScheduleError
from allrail.simulation.plugins.function import Function
from allrail.simulation.plugins.task import CommTask, Core

_RETURN = "return the tasks, the most urgent first: `sorted(tasks, key=lambda task: task.place)`"
_CHOOSE = "return one of `core.ready`, or None to wait until something changes"
_SHOWN = 3


class TensorFunction(Function):
    """What the core calls of a tensor scheduler."""

    decorator = "tensor_scheduler"
    field = "schedule.tensor.policy"
    kind = "tensor scheduler"

    def __call__(
        self,
        told: list[tuple[str, int, int, float, float, float]],
        partition: int,
        credit: int,
        stopped: Callable[[], bool],
    ) -> tuple[list[int], list[list[int]], Chooser | None]:
        """Return the tasks' order, the sizes of their partitions, and who chooses as it goes.

        Args:
            told: Name, bytes, place and the three times of each task.
            partition: Largest size of a partition where the function says nothing else.
            credit: Bytes that may be in flight.
            stopped: Whether nobody wants the answer any more.

        Raises:
            InputError: The function raised, took too long, or returned no schedule.
        """
        tasks = [
            CommTask(
                *(name, count, place),
                ready_us=ready,
                needed_us=needed,
                time_us=alone,
                partition=partition,
            )
            for name, count, place, ready, needed, alone in told
        ]
        order, choose = self._ask(tasks, stopped)
        chooser = None if choose is None else Chooser(self, choose, tasks, credit)
        return order, [list(task._sizes) for task in tasks], chooser

    def order_of(self, tasks: list[CommTask], *, partition: int) -> list[int]:
        """Return the places of tasks in a list, the most urgent first: for ranks of a job.

        Args:
            tasks: With partitions of that size.
            partition: Into which a job cuts all of them.

        Raises:
            InputError: The function raised, took too long, or returned no order; or it cuts a task
                otherwise.
        """
        order, choose = self._ask(tasks, lambda: False)
        if choose is not None:
            why = "it chooses as it goes, and ranks of a job need one order"
            raise self.error(why, hint=_RETURN)
        for task in tasks:
            if task._sizes != (partition,):
                raise self.error(
                    f"it cuts `{task.name}` otherwise than the job, which has {partition} bytes",
                    hint="write the size as `schedule.tensor.partition` of the job file",
                )
        return order

    def _ask(
        self, tasks: list[CommTask], stopped: Callable[[], bool]
    ) -> tuple[list[int], Callable[[Core], Any] | None]:
        """Return the tasks' order, and the function that chooses as it goes."""
        forward = sorted(range(len(tasks)), key=lambda index: (tasks[index].place, index))

        def call() -> Any:
            answer = self.function([tasks[index] for index in forward])
            return answer if callable(answer) else _order(answer, tasks)

        answer = self.run(call, stopped, hint=_RETURN)
        order: list[int] = answer if isinstance(answer, list) else forward
        for place, index in enumerate(order):
            tasks[index]._tell(priority=place, _started=True)
        return order, None if isinstance(answer, list) else answer


class Chooser:
    """Asks a function what starts."""

    def __init__(
        self,
        of: TensorFunction,
        function: Callable[[Core], Any],
        tasks: list[CommTask],
        credit: int,
    ) -> None:
        self._of = of
        self._function = function
        self._tasks = tasks
        self._credit = credit
        self._index = {id(task): index for index, task in enumerate(tasks)}

    def choose(
        self,
        leg: str,
        now_us: float,
        in_flight: int,
        offers: list[tuple[int, int, int]],
        stopped: Callable[[], bool],
    ) -> int | None:
        """Return the task whose next partition starts, None to wait.

        Args:
            leg: Of the partitions.
            now_us: The time.
            in_flight: Bytes that are under way.
            offers: Task, how many of its partitions wait, and their bytes.
            stopped: Whether nobody wants the answer any more.

        Raises:
            InputError: The function raised, took too long, or chose what does not wait.
        """
        ready = []
        for index, count, left in offers:
            task = self._tasks[index]
            task._tell(waiting=count, left=left)
            ready.append(task)
        core = Core(tuple(ready), leg, in_flight, self._credit, now_us)
        offered = {index for index, _, _ in offers}

        def call() -> int | None:
            answer = self._function(core)
            if answer is None:
                return None
            index = self._index.get(id(answer))
            if index is None:
                raise NoScheduleError(f"`{_shown(answer)}` is none of `core.ready`")
            if index not in offered:
                name = self._tasks[index].name
                raise NoScheduleError(f"no partition of `{name}` waits for this {leg}")
            return index

        chosen: int | None = self._of.run_here(call, stopped, hint=_CHOOSE)
        return chosen

    def stalled(self, tensors: list[int]) -> None:
        """Tell that nothing will happen any more.

        Args:
            tensors: What is ready and not done.

        Raises:
            InputError: Always.
        """
        names = ", ".join(f"`{self._tasks[index].name}`" for index in tensors[:_SHOWN])
        more = ", ..." if len(tensors) > _SHOWN else ""
        waiting = show_count(len(tensors), "task waits", "tasks wait")
        why = f"it starts nothing, and nothing is in flight: {waiting}: {names}"
        raise self._of.error(why + more, hint=_CHOOSE)


def _order(answer: object, tasks: list[CommTask]) -> list[int]:
    """Read an answer as places in the list of tasks; of an endless one, no more than is needed."""
    if not isinstance(answer, Iterable) or isinstance(answer, (str, bytes, Mapping)):
        raise NoScheduleError(f"`{_shown(answer)}` is no list of the tasks")
    index = {id(task): place for place, task in enumerate(tasks)}
    order: dict[int, None] = {}
    for one in islice(answer, len(tasks) + 1):
        place = index.get(id(one))
        if place is None:
            raise NoScheduleError(f"`{_shown(one)}` is none of the tasks")
        if place in order:
            raise NoScheduleError(f"`{tasks[place].name}` stands twice in it")
        order[place] = None
    lost = [task for place, task in enumerate(tasks) if place not in order]
    lost.sort(key=lambda task: task.place)
    if lost:
        names = ", ".join(f"`{task.name}`" for task in lost[:_SHOWN])
        more = ", ..." if len(lost) > _SHOWN else ""
        raise NoScheduleError(f"it lost {len(lost)} of {len(tasks)} tasks: {names}{more}")
    return list(order)


def _shown(value: object) -> str:
    return shorten(str(value)) if isinstance(value, (str, int, float)) else shorten(repr(value))


def register(function: TensorFunction, *, partition: int, credit: int, barrier: bool) -> None:
    """Make the core know a tensor scheduler.

    Args:
        function: What it calls.
        partition: Largest size of a partition where a scenario says none, in bytes.
        credit: Bytes in flight where a scenario says none.
        barrier: Whether all layers of the next iteration wait for all tensors.
    """
    _core.register_tensor_policy(
        function.name,
        function.about,
        function.version,
        not barrier,
        partition,
        credit,
        function,
    )
