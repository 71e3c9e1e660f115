"""What torch's collectives become: operations of the engine, in buffers that they leave in place.

The engine sums, gathers, scatters, broadcasts and exchanges. A maximum, a type that it cannot sum,
or a reduction to one rank are made of these. Nothing here waits: what one operation has to know of
another rank before it can begin is a `Chain`.

What is wrong with a call is an `InputError` before anything is begun, where every rank can see it:
so it is raised on all of them, and the group goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from allrail.base.errors import InputError
from allrail.runtime.nodes import Asked, Calls
from allrail.torch import private
from allrail.torch.futures import name_here
from allrail.torch.memory import memory_of, name_of
from allrail.torch.operations import Call, Chain, Nothing, Operation, Several
from allrail.torch.reductions import (
    SUM,
    SUMMED,
    WORDS,
    Op,
    check_reduction,
    combine,
    divide_into,
    real,
)

After = Callable[[], None] | None


class Collectives:
    """The collectives of one group.

    Args:
        calls: Its node; None for a group of one.
        rank: This process in the group.
        size: How many it has.
    """

    def __init__(self, calls: Calls | None, rank: int, size: int) -> None:
        self._calls = calls
        self._rank = rank
        self._size = size
        self._begun: tuple[int, int] | None = None

    @property
    def begun(self) -> int:
        """How many operations without a name were begun."""
        return 0 if self._begun is None else self._begun[1] + 1

    def all_reduce(self, tensor: torch.Tensor, op: Any) -> Operation:
        """Reduce over all ranks, in place."""
        tensor = checked(tensor.detach() if tensor.requires_grad else tensor)
        if op is not SUM or tensor.dtype not in SUMMED:
            return self._all_reduce(tensor, op, "all_reduce")
        buffer = dense(tensor)
        if buffer is tensor:
            return self._call("all_reduce", buffer)
        return self._call("all_reduce", buffer, partial(copy_all, [tensor], [buffer]))

    def _all_reduce(self, tensor: torch.Tensor, op: Any, word: str, root: int = 0) -> Operation:
        check_reduction(tensor, op)
        asked = Asked(word, WORDS[op], name_of(tensor.dtype))
        if op in (SUM, Op.AVG) and (tensor.is_complex() or tensor.dtype in SUMMED):
            buffer = dense(tensor)
            after = partial(divide_into, tensor, buffer, self._size if op == Op.AVG else 1)
            return self._call("all_reduce", real(buffer), after, root, asked=asked)
        every = self._room(tensor)
        after = partial(combine, tensor, list(every), op)
        return self._call("all_gather", every, after, root, asked=asked)

    def barrier(self) -> Operation:
        """Be over when all ranks have come here."""
        return self._call("all_reduce", torch.zeros(1), asked=Asked("barrier"))

    def reduce(self, tensor: torch.Tensor, op: Any, root: int) -> Operation:
        """Reduce to one rank; the others' tensors stay as they are."""
        copy = dense(checked(tensor.detach())).clone(memory_format=torch.contiguous_format)
        operation = self._all_reduce(copy, op, "reduce", root)
        if self._rank != root:
            return operation
        return Several([operation], partial(copy_all, [tensor], [copy]))

    def reduce_scatter(
        self, output: torch.Tensor, parts: Sequence[torch.Tensor], op: Any
    ) -> Operation:
        """Reduce each rank's part of every rank, and keep this one's.

        Args:
            output: Where this rank's part goes.
            parts: One for each rank, alike in size on all ranks; they may differ among themselves.
            op: The reduction.
        """
        output = checked(output.detach())
        if len(parts) != self._size or parts[self._rank].numel() != output.numel():
            raise InputError(
                f"{len(parts)} parts, of which this rank's has"
                f" {parts[self._rank].numel() if self._rank < len(parts) else 0} elements",
                field="input",
                hint=f"give {self._size} parts, and an output of the size of this rank's"
                f" ({output.numel()} elements now)",
            )
        check_reduction(output, op)
        _check_alike(output, parts, "input")
        longest = max(part.numel() for part in parts)
        sizes = [part.numel() for part in parts]
        asked = Asked(
            "reduce_scatter",
            WORDS[op],
            name_of(output.dtype),
            sizes if len(set(sizes)) > 1 else (),
        )
        if op in (SUM, Op.AVG) and (output.is_complex() or output.dtype in SUMMED):
            output = real(output)
            rows = output.new_zeros((self._size, longest * (2 if parts[0].is_complex() else 1)))
            for row, part in zip(rows, parts, strict=True):
                flat = real(dense(part.detach())).reshape(-1)
                row[: flat.numel()].copy_(flat)
            mine = rows[self._rank][: output.numel()].view(output.shape)
            by = self._size if op == Op.AVG else 1
            after = partial(divide_into, output, mine, by)
            return self._call("reduce_scatter", rows, after, asked=asked)
        every = [torch.empty_like(output) for _ in range(self._size)]
        after = partial(combine, output, every, op)
        return self._exchange(every, parts, longest, after, asked=asked)

    def broadcast(self, tensor: torch.Tensor, root: int) -> Operation:
        """Give all ranks what the root has."""
        tensor = checked(tensor.detach())
        buffer = dense(tensor)
        back = None if buffer is tensor else partial(copy_all, [tensor], [buffer])
        return self._call("broadcast", buffer, back, root)

    def all_gather(self, outputs: Sequence[torch.Tensor], tensor: torch.Tensor) -> Operation:
        """Collect every rank's tensor; all are of one size."""
        tensor = checked(tensor.detach())
        if len(outputs) != self._size or any(one.numel() != tensor.numel() for one in outputs):
            sizes = ", ".join(str(one.numel()) for one in outputs)
            raise InputError(
                f"outputs of {sizes} elements for {self._size} tensors of {tensor.numel()}",
                field="output",
                hint="tensors of different sizes are not supported by allrail; use"
                " `all_gather_object`, or pad them to the largest",
            )
        _check_alike(tensor, outputs, "output")
        return self._gather(outputs, tensor, None)

    def gather(
        self, outputs: Sequence[torch.Tensor] | None, tensor: torch.Tensor, root: int
    ) -> Operation:
        """Collect every rank's tensor on the one that has outputs."""
        tensor = checked(tensor.detach())
        outputs = outputs or []
        # Only the root can see this: it takes part all the same, or others would wait in vain.
        wrong = [one for one in outputs if one.numel() != tensor.numel()]
        after = partial(_refuse_gathered, tensor, wrong)
        asked = Asked("gather", dtype=name_of(tensor.dtype))
        return self._gather(outputs, tensor, after, root, asked)

    def _gather(
        self,
        outputs: Sequence[torch.Tensor],
        tensor: torch.Tensor,
        after: After,
        root: int = 0,
        asked: Asked | None = None,
    ) -> Operation:
        every = self._room(tensor)

        def deliver() -> None:
            if after is not None and not outputs:
                return after()
            copy_all(outputs, list(every))
            return None if after is None else after()

        return self._call("all_gather", every, deliver, root, asked=asked)

    def _room(self, tensor: torch.Tensor) -> torch.Tensor:
        """Room for every rank's tensor, with this one's in its place."""
        every = tensor.new_empty((self._size, *tensor.shape))
        every[self._rank].copy_(tensor)
        return every

    def scatter(self, output: torch.Tensor, parts: Sequence[torch.Tensor], root: int) -> Operation:
        """Give each rank its own of the root's tensors, all of one size."""
        output = checked(output.detach())
        every = output.new_empty((self._size, *output.shape))
        if self._rank == root:
            if len(parts) != self._size or any(one.numel() != output.numel() for one in parts):
                sizes = ", ".join(str(one.numel()) for one in parts)
                raise InputError(
                    f"parts of {sizes} elements for {self._size} ranks, and an output of"
                    f" {output.numel()}",
                    field="scatter_list",
                    hint="parts of different sizes are not supported by allrail; use"
                    " `scatter_object_list`, or pad them to the largest",
                )
            _check_alike(output, parts, "scatter_list")
            copy_all(list(every), parts)
        after = partial(copy_all, [output], [every[self._rank]])
        asked = Asked("scatter", dtype=name_of(output.dtype))
        return self._call("broadcast", every, after, root, asked=asked)

    def all_to_all(
        self, outputs: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], *, even: bool
    ) -> Operation:
        """Exchange parts; where sizes may differ, ranks compare them first.

        Each tells the others its largest part, and a sum over what it sends and receives, which is
        nothing over all ranks where every part is awaited in its size. Where it is not, they tell
        each other all sizes, and all raise the same error: the group goes on.
        """
        if not len(outputs) == len(tensors) == self._size:
            raise InputError(
                f"{len(tensors)} parts are sent and {len(outputs)} are received",
                field="input",
                hint=f"give as many as there are ranks: {self._size}",
            )
        _check_alike(tensors[0], (*tensors, *outputs), "output")
        longest = max(each.numel() for each in (*outputs, *tensors))
        if even:
            return self._exchange(outputs, tensors, longest)
        sent, awaited = ([each.numel() for each in parts] for parts in (tensors, outputs))
        told = torch.zeros((self._size, 2), dtype=torch.int64)
        told[self._rank, 0] = longest
        told[self._rank, 1] = _balance(self._rank, sent, awaited)
        asked = Asked("all_to_all with sizes")
        first = self._call("all_gather", told, asked=asked)
        name = first.name and f"{first.name}, parts"

        def second() -> Operation:
            if not int(told[:, 1].sum()):
                most = int(told[:, 0].max())
                return self._exchange(outputs, tensors, most, name=name)
            sizes = torch.zeros((self._size, 2, self._size), dtype=torch.int64)
            sizes[self._rank] = torch.tensor([sent, awaited])
            all_sizes = self._call("all_gather", sizes, name=name, asked=asked)
            return Chain(all_sizes, partial(_refuse_sizes, sizes))

        return Chain(first, second)

    def _exchange(
        self,
        outputs: Sequence[torch.Tensor],
        tensors: Sequence[torch.Tensor],
        longest: int,
        after: After = None,
        name: str | None = None,
        asked: Asked | None = None,
    ) -> Operation:
        """Exchange parts in rows of the size of the longest of all ranks."""
        rows = tensors[0].new_zeros((self._size, longest))
        for row, each in zip(rows, tensors, strict=True):
            row[: each.numel()].copy_(each.detach().reshape(-1))

        def deliver() -> None:
            for row, output in zip(rows, outputs, strict=True):
                output.detach().copy_(row[: output.numel()].view(output.shape))
            if after is not None:
                after()

        return self._call("all_to_all", rows, deliver, name=name, asked=asked)

    def _call(
        self,
        kind: str,
        buffer: torch.Tensor,
        after: After = None,
        root: int = 0,
        name: str | None = None,
        asked: Asked | None = None,
    ) -> Operation:
        """Begin an operation in place in a contiguous buffer; `after` runs when it is over."""
        calls = self._calls
        if calls is None:
            return Nothing(after)
        in_bytes = buffer.dtype not in SUMMED
        if in_bytes and asked is None:
            asked = Asked(dtype=name_of(buffer.dtype))
        memory = memory_of(buffer, in_bytes=in_bytes)
        thread = threading.get_ident()
        name = name or name_here(thread)
        if name is not None:
            ticket = calls.begin(kind, memory, root=root, name=name, asked=asked)
            return Call(calls, ticket, buffer, after, name)
        if self._begun is not None and self._begun[0] != thread:
            self._check_order(kind, calls)
        ticket = calls.begin(kind, memory, root=root, asked=asked)
        self._begun = thread, ticket
        return Call(calls, ticket, buffer, after)

    def _check_order(self, kind: str, calls: Calls) -> None:
        """Ranks pair collectives by their order, which those of two threads at once have not.

        One thread after another is right: so what counts is whether the other's is under way.
        """
        if self._begun is None or calls.is_over(self._begun[1]):
            return
        raise InputError(
            "it begins while one of another thread is under way, and ranks could pair them wrongly",
            field=kind,
            hint="give each thread a process group of its own (`torch.distributed.new_group`), or"
            " wait for the one before the other begins",
        )


def checked(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that an operation may read and write: dense, with elements that are apart."""
    if tensor.layout is not torch.strided:
        raise InputError(
            "sparse tensors are not supported by allrail; use `tensor.to_dense()`",
            field="tensor",
            value=str(tensor.layout).removeprefix("torch."),
            hint="give `tensor.to_dense()`; gradients of embeddings travel as rows with"
            ' `allrail.torch.schedule(..., sparse="gather")`',
        )
    if not tensor.is_contiguous() and private.internal_overlap(tensor) == 1:
        raise InputError(
            "its elements overlap in memory, so there is no one place for each result",
            field="tensor",
            value=f"strides {tuple(tensor.stride())} for shape {tuple(tensor.shape)}",
            hint="give `tensor.contiguous()`, as of what `expand` has made",
        )
    return tensor


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy: contiguous, and with its elements as its memory has them."""
    if tensor.is_neg() or tensor.is_conj():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor.contiguous()


def copy_all(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """Copy several tensors, each into one of the same size."""
    with torch.no_grad():
        for target, source in zip(targets, sources, strict=True):
            target.detach().copy_(source.detach().view(target.shape))


def rows_of(tensor: torch.Tensor, size: int) -> list[torch.Tensor]:
    """A tensor's part for each rank."""
    if tensor.numel() % size:
        raise InputError(
            f"its {tensor.numel()} elements cannot be divided among {size} ranks",
            field="tensor",
            hint="pad it, or give the size of each rank's part",
        )
    tensor = tensor.detach()
    if tensor.is_contiguous():
        return list(tensor.view(size, -1))
    return list(tensor.chunk(size))


def _check_alike(tensor: torch.Tensor, others: Sequence[torch.Tensor], field: str) -> None:
    for other in others:
        if other.dtype != tensor.dtype:
            raise InputError(
                f"{name_of(other.dtype)} is given with {name_of(tensor.dtype)}",
                field=field,
                hint="give all tensors of a collective in one type",
            )


def _refuse_gathered(tensor: torch.Tensor, wrong: Sequence[torch.Tensor]) -> None:
    if wrong:
        raise InputError(
            f"an output has {wrong[0].numel()} elements, and the tensors have {tensor.numel()}",
            field="gather_list",
            hint="tensors of different sizes are not supported by allrail; use `gather_object`, or"
            " pad them to the largest",
        )


def _balance(rank: int, sent: list[int], awaited: list[int]) -> int:
    """A number for the sizes of what a rank sends and awaits; of all ranks' the sum is 0, mod 2^64.

    Each size, with its sender and receiver, is mixed as by `SplitMix64`, and counted at both ends:
    where they differ, the sum is 0 by chance once in 2^64.
    """
    ranks = torch.arange(len(sent))
    pairs = torch.stack((rank * len(sent) + ranks, ranks * len(sent) + rank))
    mixed = pairs * -0x61C8864680B583EB + torch.tensor([sent, awaited]) + 1
    for shift, by in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15), (31, 1)):
        mixed = (mixed ^ (mixed >> shift)) * by
    return int(mixed[0].sum() - mixed[1].sum())


def _refuse_sizes(sizes: torch.Tensor) -> Operation:
    """All ranks see the same, and refuse it alike."""
    (sender, receiver), *_ = (sizes[:, 0] != sizes[:, 1].t()).nonzero().tolist()
    sent, awaited = int(sizes[sender, 0, receiver]), int(sizes[receiver, 1, sender])
    raise InputError(
        f"rank {sender} sends {sent} elements to rank {receiver}, which receives {awaited}",
        field="all_to_all",
        hint="give each rank an output of the size that the other one sends: ranks exchange their"
        " `input_split_sizes` by an `all_to_all_single` before",
    )
