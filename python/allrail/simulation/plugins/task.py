"""What a tensor scheduler is given: a task for each gradient, and the core that starts them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from allrail import _core
from allrail.base.errors import shorten

MAX_PARTITIONS = 1 << 20
"""Partitions that a task may have."""


class CommTask:
    """The communication of one gradient: ByteScheduler's CommTask (SOSP'19, section 3).

    A task has a tensor, a priority and partitions. In every iteration it waits until its tensor is
    there on all ranks (ByteScheduler's `notify_ready`); then its partitions start (`start`), in
    order, each when it is its turn; the task is done when the last one has finished
    (`notify_finish`). With parameter servers each partition is pushed and then pulled.

    Make some to try a scheduler without a simulation: `mine([CommTask("fc", 4_000_000, 0)])`. Its
    attributes are read only; `partition` may be called until the function returns.

    Args:
        name: Of the gradient, as in the step graph.
        bytes: How large it is.
        place: Of its layer in the forward pass, 0 first.
        ready_us: When the backward pass has made it, in µs from the begin of an iteration that
            waits for nothing.
        needed_us: When the next forward pass needs it, in µs from the begin of that.
        time_us: How long its exchange takes alone, about: the bytes of the busiest dimension over
            its bandwidth.
        partition: Largest size of a partition, in bytes.

    Attributes:
        priority: Its place in the order that the scheduler returned, 0 for the most urgent; None
            before that.
        waiting: How many partitions wait for `Core.leg`, when the core asks.
        left: The bytes of these.
    """

    name: str
    bytes: int
    place: int
    ready_us: float
    needed_us: float
    time_us: float
    priority: int | None
    waiting: int
    left: int
    _sizes: tuple[int, ...]
    _started: bool

    __slots__ = (
        "_sizes",
        "_started",
        "bytes",
        "left",
        "name",
        "needed_us",
        "place",
        "priority",
        "ready_us",
        "time_us",
        "waiting",
    )

    def __init__(
        self,
        name: str,
        bytes: int,  # noqa: A002, what it is called everywhere
        place: int,
        *,
        ready_us: float = 0.0,
        needed_us: float = 0.0,
        time_us: float = 0.0,
        partition: int = 4 << 20,
    ) -> None:
        self._tell(
            name=name,
            bytes=bytes,
            place=place,
            ready_us=ready_us,
            needed_us=needed_us,
            time_us=time_us,
            priority=None,
            waiting=0,
            left=0,
            _sizes=(partition,),
            _started=False,
        )

    def _tell(self, **values: object) -> None:
        """Set attributes: for allrail, not for the function."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse it: a task describes a gradient as it is."""
        raise AttributeError(
            f"`{name}` of a task cannot be set: return the order, or `partition` it"
        )

    def __setstate__(self, state: tuple[None, dict[str, object]]) -> None:
        """Copies of a task may be made."""
        self._tell(**state[1])

    def __repr__(self) -> str:
        """Name and size."""
        return f"CommTask({self.name!r}, {self.bytes})"

    @property
    def partitions(self) -> tuple[int, ...]:
        """The bytes of each partition, in order."""
        if len(self._sizes) > 1:
            return self._sizes
        size = self._sizes[0]
        count, rest = divmod(self.bytes, size)
        return (size,) * count + ((rest,) if rest else ())

    def partition(self, size: str | int | Iterable[str | int]) -> None:
        """Cut the tensor otherwise than the scenario says.

        Args:
            size: Of every partition, the last one excepted: bytes, or text with a unit; or a list
                of all sizes, which are together those of the tensor.

        Raises:
            TypeError: It is no size.
            ValueError: It is no size, zero, or the sizes of another tensor; or there would be more
                than 1,048,576 partitions; or the function has returned already.
        """
        if self._started:
            raise ValueError(f"`{self.name}` is cut already: cut it before the function returns")
        if isinstance(size, Iterable) and not isinstance(size, str):
            sizes: list[int] = []
            for one in size:
                sizes.append(_bytes(one))
                if len(sizes) > MAX_PARTITIONS:
                    break
            if sum(sizes) != self.bytes and len(sizes) <= MAX_PARTITIONS:
                raise ValueError(
                    f"partitions of `{self.name}` hold {sum(sizes)} of its {self.bytes} bytes"
                )
            count = len(sizes)
        else:
            sizes = [_bytes(size)]
            count = -(-self.bytes // sizes[0])
        if count > MAX_PARTITIONS:
            raise ValueError(f"`{self.name}` would have more than {MAX_PARTITIONS:,} partitions")
        self._tell(_sizes=tuple(sizes))


@dataclass(frozen=True, slots=True)
class Core:
    """What a scheduler that chooses as it goes is shown: ByteScheduler's Core at one moment.

    Attributes:
        ready: Tasks with partitions that wait for `leg`, in the order of the forward pass; not
            empty.
        leg: `all_reduce`; with parameter servers `push` or `pull`.
        in_flight: Bytes that were started on this leg and have not finished; a push has once it
            is at its server.
        credit: As the scenario has it, in bytes; it holds nothing back here.
        now_us: Time since the simulation began, in µs.
    """

    ready: tuple[CommTask, ...]
    leg: str
    in_flight: int
    credit: int
    now_us: float


def _bytes(size: object) -> int:
    if isinstance(size, str):
        try:
            count = _core.parse_quantity("size", size)
        except (_core.InputError, UnicodeEncodeError):
            raise ValueError(f"`{shorten(size)}` is no size: write it as `1 MiB`") from None
    elif isinstance(size, int) and not isinstance(size, bool):
        count = size
    else:
        raise TypeError(f"`{shorten(repr(size))}` is no size: write bytes, or `1 MiB`")
    if not 0 < count < 2**63:
        raise ValueError(f"a partition of {count} bytes: it has one byte at least")
    return count
