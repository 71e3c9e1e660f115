"""What may be under way on the transport: calls of the engine, together or one after another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from allrail.runtime.nodes import Calls

_NAMES = 1024
"""So many calls have names of their own for what follows from them; then they are used again."""


class Operation(Protocol):
    """Something under way on the transport.

    Attributes:
        name: What it is called on all ranks; empty where nothing is.
    """

    @property
    def name(self) -> str:
        """What it is called on all ranks."""

    def wait(self, timeout: float) -> bool:
        """Wait, up to a number of seconds, in any number of threads; raise if it has failed."""

    def deliver(self) -> None:
        """Put results where they belong; called once, when it is over."""

    def late(self) -> list[int]:
        """Which ranks of the group it waits for, as far as that is known."""


class Nothing:
    """An operation of no elements, or of one rank."""

    __slots__ = ("_after",)
    name = ""

    def __init__(self, after: Callable[[], None] | None = None) -> None:
        self._after = after

    def wait(self, timeout: float) -> bool:
        """Wait for it, up to a number of seconds."""
        del timeout
        return True

    def deliver(self) -> None:
        """Put results where they belong."""
        if self._after is not None:
            with torch.no_grad():
                self._after()

    def late(self) -> list[int]:
        """Which ranks it waits for."""
        return []


class Call:
    """A collective of the engine, in a buffer that is written to in place."""

    __slots__ = ("_after", "_buffer", "_calls", "_named", "_ticket")

    def __init__(
        self,
        calls: Calls,
        ticket: int,
        buffer: torch.Tensor,
        after: Callable[[], None] | None,
        named: str | None = None,
    ) -> None:
        self._calls = calls
        self._ticket = ticket
        self._buffer = buffer
        self._after = after
        self._named = named

    @property
    def name(self) -> str:
        """What it is called on all ranks."""
        return self._named or f"call {self._ticket % _NAMES}"

    def wait(self, timeout: float) -> bool:
        """Wait for it, up to a number of seconds."""
        return self._calls.wait(self._ticket, timeout)

    def deliver(self) -> None:
        """Put results where they belong."""
        if not self._buffer.is_inference():
            torch.autograd.graph.increment_version(self._buffer)
        if self._after is not None:
            with torch.no_grad():
                self._after()

    def late(self) -> list[int]:
        """Which ranks it waits for."""
        return self._calls.late(self._ticket)


class Several:
    """Several operations as one; `after` runs once all are over."""

    __slots__ = ("_after", "_parts")

    def __init__(self, parts: Sequence[Operation], after: Callable[[], None] | None = None) -> None:
        self._parts = parts
        self._after = after

    @property
    def name(self) -> str:
        """What it is called on all ranks."""
        return next((part.name for part in self._parts if part.name), "")

    def wait(self, timeout: float) -> bool:
        """Wait for it, up to a number of seconds."""
        until = time.monotonic() + timeout
        return all(part.wait(max(0.0, until - time.monotonic())) for part in self._parts)

    def deliver(self) -> None:
        """Put results where they belong."""
        for part in self._parts:
            part.deliver()
        if self._after is not None:
            with torch.no_grad():
                self._after()

    def late(self) -> list[int]:
        """Which ranks it waits for."""
        return next((part.late() for part in self._parts if not part.wait(0.0)), [])


class Chain:
    """An operation whose size another one finds out first.

    Some thread has to watch it, which begins the second one: nobody may be waiting.
    """

    def __init__(self, first: Operation, begin: Callable[[], Operation]) -> None:
        self._first = first
        self._begin = begin
        self._lock = threading.Lock()
        self._second: Operation | None = None
        self._failed: Exception | None = None

    @property
    def name(self) -> str:
        """What it is called on all ranks."""
        return self._first.name

    def wait(self, timeout: float) -> bool:
        """Wait for it, up to a number of seconds."""
        until = time.monotonic() + timeout
        if self._second is None and not self._first.wait(timeout):
            return False
        with self._lock:
            if self._second is None and self._failed is None:
                try:
                    self._first.deliver()
                    self._second = self._begin()
                except Exception as error:  # noqa: BLE001 - handed on to whoever waits
                    self._failed = error
        if self._failed is not None:
            raise self._failed
        return self._under_way().wait(max(0.0, until - time.monotonic()))

    def deliver(self) -> None:
        """Put results where they belong."""
        self._under_way().deliver()

    def late(self) -> list[int]:
        """Which ranks it waits for."""
        return self._under_way().late()

    def _under_way(self) -> Operation:
        return self._second or self._first
