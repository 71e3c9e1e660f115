"""The backend `allrail` of torch.distributed: a process group in Python over the engine.

    import allrail.torch.backend
    torch.distributed.init_process_group("allrail")

`DistributedDataParallel`, FSDP, `DTensor` and functional collectives then run over it unchanged.
The engine sums, gathers, scatters, broadcasts and exchanges; what it does not know (a maximum, a
reduction to one rank) is made of these. Tensors are in host memory. Works with torch 2.6 and
later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial, reduce
from typing import Any

import torch
import torch.distributed as dist

from allrail.autoload import register
from allrail.errors import InputError, TrainingError
from allrail.runtime.agreement import Agreement
from allrail.runtime.job import find_job, job_of_all
from allrail.runtime.nodes import Calls, settings_of_group
from allrail.torch.memory import memory_of
from allrail.torch.peers import Peers
from allrail.torch.work import Follower, Work

Op = dist.ReduceOp
_SUM = Op.SUM
_SUMMED = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
)
_PAIRWISE: dict[Any, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    Op.SUM: torch.add,
    Op.AVG: torch.add,
    Op.PRODUCT: torch.mul,
    Op.MIN: torch.minimum,
    Op.MAX: torch.maximum,
    Op.BAND: torch.bitwise_and,
    Op.BOR: torch.bitwise_or,
    Op.BXOR: torch.bitwise_xor,
}


class Group(dist.ProcessGroup):
    """One process group; torch calls its methods.

    Args:
        store: Where its ranks find each other.
        rank: This process in the group.
        size: How many it has.
        timeout: How long an operation may take.
    """

    supports_coalescing = False
    supports_splitting = False

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._name = ""
        self._timeout = timeout.total_seconds()
        # A group that is made again, after `destroy_process_group`, finds the keys that the one
        # before has left.
        made = (store.add("allrail", 1) - 1) // size
        store = dist.PrefixStore(str(made), store)
        agreement = Agreement(store, rank, size, "group")
        # Read by each rank before all compare theirs: a group of one has nobody to compare with.
        job = find_job() if size == 1 else job_of_all(None, agreement)
        of_all = not dist.is_initialized() or size == dist.get_world_size()
        self._calls = None
        if size > 1:
            settings = settings_of_group(job if of_all else job.within(size), agreement)
            self._calls = Calls(settings, agreement)
        self._begun: tuple[int, int] | None = None
        self._peers = Peers(store, rank, job.within(2))
        self._follower = Follower()

    # -- what torch asks

    def getBackendName(self) -> str:  # noqa: N802
        """The name that users give."""
        return "allrail"

    def getRank(self) -> int:  # noqa: N802
        """This process in the group."""
        return self._rank

    def getSize(self) -> int:  # noqa: N802
        """How many processes it has."""
        return self._size

    def setGroupName(self, name: str) -> None:  # noqa: N802
        """Take the name that torch gives it."""
        self._name = name

    def getGroupName(self) -> str:  # noqa: N802
        """The name that torch gave it."""
        return self._name

    def _get_backend(self, device: Any) -> Group:
        """The group is its own backend, for every device."""
        del device
        return self

    def shutdown(self) -> None:
        """Close its connections."""
        self._follower.close()
        self._peers.close()
        if self._calls is not None:
            self._calls.close()

    abort = shutdown

    # -- reductions

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        """Reduce each tensor over all ranks, in place."""
        op = _op(opts)
        if len(tensors) == 1:
            part = self._all_reduce(tensors[0], op)
            return Work(part, tensors, self._follower, self._timeout)
        return self._together([self._all_reduce(each, op) for each in tensors], tensors)

    allreduce_coalesced = allreduce

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """Reduce to one rank; the others' tensors stay as they are."""
        copies = [each.detach().clone() for each in tensors]
        parts = [self._all_reduce(each, _op(opts)) for each in copies]
        wanted = tensors if self._rank == opts.rootRank else []
        return self._together(parts, tensors, partial(_copy_all, wanted, copies))

    def reduce_scatter_single(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Work:
        """Reduce, and keep this rank's part of the result."""
        return self._together([self._reduce_scatter(output, tensor, _op(opts))], [output])

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], tensors: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Do so for several."""
        op = _op(opts)
        pairs = zip(outputs, tensors, strict=True)
        return self._together([self._reduce_scatter(*pair, op) for pair in pairs], outputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def reduce_scatter(
        self, outputs: list[torch.Tensor], tensors: list[list[torch.Tensor]], opts: Any = None
    ) -> Work:
        """Do so where each rank's part is a tensor."""
        op = _op(opts)
        stacked = [torch.stack([part.detach() for part in parts]) for parts in tensors]
        pairs = zip(outputs, stacked, strict=True)
        return self._together([self._reduce_scatter(*pair, op) for pair in pairs], outputs)

    # -- movements

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """Give all ranks what the root has."""
        parts = [self._broadcast(each, opts.rootRank) for each in tensors]
        return self._together(parts, tensors)

    def allgather(
        self, outputs: list[list[torch.Tensor]], tensors: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Collect every rank's tensor."""
        del opts
        parts = [self._all_gather(outs, each) for outs, each in zip(outputs, tensors, strict=True)]
        return self._together(parts, outputs)

    def all_gather_single(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Work:
        """Collect them in one tensor, one after the other."""
        del opts
        return self._together([self._all_gather(self._rows(output), tensor)], [output])

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: list[torch.Tensor], tensors: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Do so for several."""
        del opts
        pairs = zip(outputs, tensors, strict=True)
        parts = [self._all_gather(self._rows(output), each) for output, each in pairs]
        return self._together(parts, outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(
        self, outputs: list[list[torch.Tensor]], tensors: list[torch.Tensor], opts: Any
    ) -> Work:
        """Collect every rank's tensor on one."""
        outs: Sequence[torch.Tensor] = outputs[0] if self._rank == opts.rootRank else []
        return self._together([self._all_gather(outs, tensors[0])], outputs)

    def scatter(
        self, outputs: list[torch.Tensor], tensors: list[list[torch.Tensor]], opts: Any
    ) -> Work:
        """Give each rank its own of the root's tensors."""
        output = outputs[0]
        every = output.new_empty((self._size, *output.shape))
        if self._rank == opts.rootRank:
            _copy_all(list(every), tensors[0])
        part = self._broadcast(every, opts.rootRank)
        return self._together([part], outputs, partial(_copy_all, [output], [every[self._rank]]))

    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_sizes: list[int],
        input_sizes: list[int],
        opts: Any = None,
    ) -> Work:
        """Send each rank its part of the rows; sizes count rows, and are even if left out."""
        del opts
        outs = output.detach().split(output_sizes) if output_sizes else self._rows(output)
        ins = tensor.detach().split(input_sizes) if input_sizes else self._rows(tensor)
        even = not output_sizes and not input_sizes
        return self._together([self._all_to_all(outs, ins, even=even)], [output])

    alltoall_base = all_to_all_single

    def alltoall(
        self, outputs: list[torch.Tensor], tensors: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Send each rank a tensor."""
        del opts
        return self._together([self._all_to_all(outputs, tensors, even=False)], outputs)

    def barrier(self, opts: Any = None) -> Work:
        """Return, once waited for, when all ranks have come here."""
        del opts
        return self._together([self._all_reduce(torch.zeros(1), _SUM)], [])

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int = 0) -> Work:
        """Send to one rank."""
        done = self._peers.send(tensors[0].detach().contiguous(), peer, tag)
        return Work(done, tensors, self._follower, self._timeout)

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int = 0) -> Work:
        """Receive from one rank."""
        done = self._peers.receive(tensors[0].detach(), peer, tag)
        return Work(done, tensors, self._follower, self._timeout)

    # -- how

    def _together(
        self,
        parts: list[Callable[[float], bool]],
        value: Any,
        after: Callable[[], None] | None = None,
    ) -> Work:
        """One work of several operations; `after` runs once all are over."""
        if after is None and len(parts) == 1:
            return Work(parts[0], value, self._follower, self._timeout)
        left = list(parts)

        def finish(timeout: float) -> bool:
            while left:
                if not left[0](timeout):
                    return False
                del left[0]
            if after is not None:
                after()
            return True

        return Work(finish, value, self._follower, self._timeout)

    def _call(
        self,
        kind: str,
        buffer: torch.Tensor,
        after: Callable[[], None] | None = None,
        root: int = 0,
    ) -> Callable[[float], bool]:
        """Begin an operation in place in a contiguous buffer; `after` runs when it is over."""
        calls = self._calls
        if calls is None or not buffer.numel():
            return _nothing if after is None else partial(_finish, after)
        thread = threading.get_ident()
        self._check_order(thread, kind, calls)
        ticket = calls.begin(kind, memory_of(buffer), root=root)
        self._begun = thread, ticket

        def finish(timeout: float) -> bool:
            if not calls.wait(ticket, timeout):
                return False
            torch.autograd.graph.increment_version(buffer)
            return _finish(after)

        return finish

    def _check_order(self, thread: int, kind: str, calls: Calls) -> None:
        """Ranks pair collectives by their order, which those of two threads at once have not.

        One thread after another is right: so what counts is whether the other's is under way.
        """
        if self._begun is None or self._begun[0] == thread or calls.is_over(self._begun[1]):
            return
        raise InputError(
            "it begins while one of another thread is under way, and ranks could pair them wrongly",
            field=kind,
            hint="give each thread a process group of its own (`torch.distributed.new_group`), or"
            " wait for the one before the other begins",
        )

    def _all_reduce(self, tensor: torch.Tensor, op: Any) -> Callable[[float], bool]:
        tensor = _real(_checked(tensor.detach() if tensor.requires_grad else tensor))
        averaged = op is not _SUM and op == Op.AVG
        if not (averaged or op is _SUM) or tensor.dtype not in _SUMMED:
            every = [torch.empty_like(tensor) for _ in range(self._size)]
            return self._all_gather(every, tensor, lambda: tensor.copy_(self._combine(every, op)))
        buffer = tensor.contiguous()
        if buffer is tensor and not averaged:
            return self._call("all_reduce", buffer)

        def after() -> None:
            if averaged:
                _divide(buffer, self._size)
            if buffer is not tensor:
                tensor.copy_(buffer)

        return self._call("all_reduce", buffer, after)

    def _reduce_scatter(
        self, output: torch.Tensor, tensor: torch.Tensor, op: Any
    ) -> Callable[[float], bool]:
        output, tensor = _real(_checked(output.detach())), _real(tensor.detach())
        if not (op is _SUM or op == Op.AVG) or tensor.dtype not in _SUMMED:
            every = [torch.empty_like(output) for _ in range(self._size)]
            parts = tensor.reshape(self._size, *output.shape)
            return self._all_to_all(
                every, list(parts), even=True, after=lambda: output.copy_(self._combine(every, op))
            )
        buffer = tensor.reshape(self._size, -1).clone(memory_format=torch.contiguous_format)

        def after() -> None:
            output.copy_(buffer[self._rank].view_as(output))
            if op == Op.AVG:
                _divide(output, self._size)

        return self._call("reduce_scatter", buffer, after)

    def _broadcast(self, tensor: torch.Tensor, root: int) -> Callable[[float], bool]:
        tensor = _checked(tensor.detach())
        buffer = tensor.contiguous()
        back = None if buffer is tensor else partial(_copy_all, [tensor], [buffer])
        return self._call("broadcast", _bytes(buffer), back, root)

    def _all_gather(
        self,
        outputs: Sequence[torch.Tensor],
        tensor: torch.Tensor,
        after: Callable[[], Any] | None = None,
    ) -> Callable[[float], bool]:
        tensor = tensor.detach()
        every = tensor.new_empty((self._size, *tensor.shape))
        every[self._rank].copy_(tensor)

        def deliver() -> None:
            for output, row in zip(outputs, every, strict=False):
                output.detach().copy_(row.view_as(output))
            if after is not None:
                after()

        return self._call("all_gather", _bytes(every), deliver)

    def _all_to_all(
        self,
        outputs: Sequence[torch.Tensor],
        tensors: Sequence[torch.Tensor],
        *,
        even: bool,
        after: Callable[[], Any] | None = None,
    ) -> Callable[[float], bool]:
        """Exchange parts; where they differ in size, ranks tell each other the largest first."""
        longest = max(each.numel() for each in (*outputs, *tensors))
        if not even:
            sizes = torch.tensor([longest])
            every = [torch.empty_like(sizes) for _ in range(self._size)]
            self._together([self._all_gather(every, sizes)], []).wait()
            longest = max(int(each) for each in every)
        rows = tensors[0].new_zeros((self._size, longest))
        for row, each in zip(rows, tensors, strict=True):
            row[: each.numel()].copy_(each.detach().reshape(-1))

        def deliver() -> None:
            for row, output in zip(rows, outputs, strict=True):
                output.detach().copy_(row[: output.numel()].view_as(output))
            if after is not None:
                after()

        return self._call("all_to_all", _bytes(rows), deliver)

    def _combine(self, every: list[torch.Tensor], op: Any) -> torch.Tensor:
        if op not in _PAIRWISE:
            raise InputError("no such reduction is known", field="op", value=str(op))
        result = reduce(_PAIRWISE[op], every)
        return _divide(result, self._size) if op == Op.AVG else result

    def _rows(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """A tensor's part for each rank."""
        if tensor.numel() % self._size:
            raise InputError(
                f"its {tensor.numel()} elements cannot be divided among {self._size} ranks",
                field="tensor",
                hint="pad it, or give the size of each rank's part",
            )
        tensor = tensor.detach()
        if tensor.is_contiguous():
            return list(tensor.view(self._size, -1))
        return list(tensor.chunk(self._size))


def _finish(after: Callable[[], None] | None, timeout: float = 0.0) -> bool:
    """What is left to do once an operation is over; there is nothing to wait for."""
    del timeout
    if after is not None:
        with torch.no_grad():
            after()
    return True


def _nothing(timeout: float) -> bool:
    """There is nothing to wait for, nor to do."""
    del timeout
    return True


def _op(opts: Any) -> Any:
    """The reduction that options ask for; a sum is `_SUM` itself, as comparing costs more."""
    if opts is None or opts.reduceOp == _SUM:
        return _SUM
    return getattr(opts.reduceOp, "op", opts.reduceOp)


def _checked(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that an operation may read and write: dense, with elements that are apart."""
    if tensor.layout is not torch.strided:
        raise InputError(
            "it is sparse",
            field="tensor",
            value=str(tensor.layout).removeprefix("torch."),
            hint="give `tensor.to_dense()`; gradients of embeddings travel as rows with"
            ' `allrail.torch.schedule(..., sparse="gather")`',
        )
    if not tensor.is_contiguous() and torch._debug_has_internal_overlap(tensor) == 1:
        raise InputError(
            "its elements overlap in memory, so there is no one place for each result",
            field="tensor",
            value=f"strides {tuple(tensor.stride())} for shape {tuple(tensor.shape)}",
            hint="give `tensor.contiguous()`, as of what `expand` has made",
        )
    return tensor


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1).view(torch.uint8) if tensor.numel() else tensor.view(-1)


def _divide(tensor: torch.Tensor, by: int) -> torch.Tensor:
    if tensor.is_floating_point():
        return tensor.div_(by)
    return tensor.div_(by, rounding_mode="trunc")


def _copy_all(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    with torch.no_grad():
        for target, source in zip(targets, sources, strict=False):
            target.detach().copy_(source.detach().view_as(target))


def create(store: Any, rank: int, size: int, timeout: timedelta) -> Group:
    """Make a process group; called by torch when the backend `allrail` is asked for."""
    try:
        return Group(store, rank, size, timeout)
    except InputError as error:
        raise TrainingError(error.message, hint=error.hint) from None


register()
