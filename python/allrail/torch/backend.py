"""The backend `allrail` of torch.distributed: a process group in Python over the engine.

    import allrail.torch.backend
    torch.distributed.init_process_group("allrail")

`DistributedDataParallel`, FSDP, `DTensor` and functional collectives then run over it unchanged.
Tensors are in host memory; `cpu:allrail,cuda:nccl` has another backend for those that are not. No
call waits for another rank: ranks meet when a group is made, and when a work is waited for. Works
with torch 2.6 and later.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from allrail.autoload import register
from allrail.base.errors import InputError, TrainingError
from allrail.runtime.agreement import Agreement
from allrail.runtime.job import find_job, patience_of
from allrail.runtime.job_agreed import job_of_all
from allrail.runtime.messages import Messages
from allrail.runtime.nodes import Calls, settings_of_group
from allrail.torch import (
    collectives,
    devices,
    futures,
    monitored,
    operations,
    peers,
    private,
    reductions,
    work,
)
from allrail.torch.collectives import Collectives, rows_of
from allrail.torch.devices import Others, by_device
from allrail.torch.futures import Follower
from allrail.torch.monitored import Monitored
from allrail.torch.operations import Operation, Several
from allrail.torch.reductions import op_of
from allrail.torch.uncompiled import keep_from_compiler
from allrail.torch.work import Work


class Group(dist.ProcessGroup):
    """One process group; torch calls its methods.

    Args:
        store: Where its ranks find each other.
        rank: This process in the group.
        size: How many it has.
        timeout: How long an operation may take.

    Attributes:
        timeout: The same, in seconds.
        follower: Completes futures.
        others: The groups of other types of devices.
    """

    supports_coalescing = False
    supports_splitting = False

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._name = self._desc = ""
        self.timeout = timeout.total_seconds()
        # A group that is made again, after `destroy_process_group`, finds the keys that the one
        # before has left.
        made = (store.add("allrail", 1) - 1) // size
        self._store = store = dist.PrefixStore(str(made), store)
        agreement = Agreement(store, rank, size, "group", patience=patience_of())
        # Read by each rank before all compare theirs: a group of one has nobody to compare with.
        job = find_job() if size == 1 else job_of_all(None, agreement)
        of_all = not dist.is_initialized() or size == dist.get_world_size()
        self._calls = None
        if size > 1:
            settings = settings_of_group(job if of_all else job.within(size), agreement)
            self._calls = Calls(settings | {"named_calls": True}, agreement)
        self._do = Collectives(self._calls, rank, size)
        self._messages = Messages(store, rank, size, job.within(2))
        self._monitored = Monitored(store, rank, size)
        self.follower = Follower(self._calls.watch if self._calls is not None else _nothing)
        self.others = Others(self)

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

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        """Take the description that its maker gives it."""
        self._desc = description

    def getGroupDesc(self) -> str:  # noqa: N802
        """The description that its maker gave it."""
        return self._desc

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(device) for device in self.others.backends()]

    def _get_backend(self, device: Any) -> Any:
        """The backend of a type of device: this group itself for the CPU."""
        device = torch.device(device)
        return self if device.type == "cpu" else private.backend_of(self.others.of(device), device)

    get_backend = _get_backend

    def get_group_store(self) -> Any:
        """Where its ranks find each other."""
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        """How long an operation may take from now on."""
        self.timeout = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self) -> None:
        """Ranks agree on the number without being told."""

    def _get_sequence_number_for_group(self) -> int:
        """How many collectives it has begun that have no name."""
        return self._do.begun

    def _start_coalescing(self, device: torch.device) -> None:
        if device.type == "cpu":
            # torch collects what is called from now on, and would after the error, too.
            private.process_groups().pg_coalesce_state.pop(self, None)
            raise InputError(
                "coalescing on a device is not supported by allrail; use `_coalescing_manager`"
                " without `device`",
                field="device",
                value=str(device),
            )
        private.start_coalescing(self.others.of(device), device)

    def _end_coalescing(self, device: torch.device) -> Any:
        return private.end_coalescing(self.others.of(device), device)

    def named(self, ranks: list[int]) -> str:
        """These ranks of the group, as the job counts them."""
        try:
            of_all = dist.get_process_group_ranks(self)
        except (KeyError, ValueError):
            of_all = list(range(self._size))
        numbers = ", ".join(str(of_all[rank]) for rank in ranks)
        return f"rank {numbers}" if len(ranks) == 1 else f"ranks {numbers}"

    def shutdown(self) -> None:
        """Close its connections."""
        self.follower.close()
        self._messages.close()
        if self._calls is not None:
            self._calls.close()

    abort = shutdown

    # -- reductions

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        """Reduce each tensor over all ranks, in place."""
        first = tensors[0]
        if not first.is_cpu:  # as `by_device`, which would cost more
            elsewhere: Any = self.others.of(first.device)
            return elsewhere.allreduce(tensors, opts)  # type: ignore[no-any-return]
        op = op_of(opts)
        if len(tensors) == 1:
            return Work(self._do.all_reduce(first, op), tensors, self, "all_reduce")
        parts = [partial(self._do.all_reduce, each, op) for each in tensors]
        return Work(_several(parts), tensors, self, "all_reduce")

    allreduce_coalesced = allreduce

    @by_device
    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """Reduce to one rank; the others' tensors stay as they are."""
        parts = [partial(self._do.reduce, each, op_of(opts), opts.rootRank) for each in tensors]
        return Work(_several(parts), tensors, self, "reduce")

    @by_device
    def reduce_scatter_single(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Work:
        """Reduce, and keep this rank's part of the result."""
        operation = self._do.reduce_scatter(output, rows_of(tensor, self._size), op_of(opts))
        return Work(operation, [output], self, "reduce_scatter")

    _reduce_scatter_base = reduce_scatter_single

    @by_device
    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], tensors: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Do so for several."""
        parts = [rows_of(tensor, self._size) for tensor in tensors]
        return self._reduce_scatter(outputs, parts, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    @by_device
    def reduce_scatter(
        self, outputs: list[torch.Tensor], tensors: list[list[torch.Tensor]], opts: Any = None
    ) -> Work:
        """Do so where each rank's part is a tensor; they may differ in size."""
        return self._reduce_scatter(outputs, tensors, opts)

    def _reduce_scatter(
        self, outputs: list[torch.Tensor], tensors: Sequence[Sequence[torch.Tensor]], opts: Any
    ) -> Work:
        pairs = zip(outputs, tensors, strict=True)
        parts = [partial(self._do.reduce_scatter, *pair, op_of(opts)) for pair in pairs]
        return Work(_several(parts), outputs, self, "reduce_scatter")

    # -- movements

    @by_device
    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """Give all ranks what the root has."""
        parts = [partial(self._do.broadcast, each, opts.rootRank) for each in tensors]
        return Work(_several(parts), tensors, self, "broadcast")

    @by_device
    def allgather(
        self, outputs: list[list[torch.Tensor]], tensors: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Collect every rank's tensor."""
        del opts
        pairs = zip(outputs, tensors, strict=True)
        return Work(self._gathered(pairs), outputs, self, "all_gather")

    @by_device
    def allgather_coalesced(
        self, outputs: list[list[torch.Tensor]], tensors: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Collect several tensors of every rank: of each rank's there is a list."""
        del opts
        pairs = zip(zip(*outputs, strict=True), tensors, strict=True)
        return Work(self._gathered(pairs), outputs, self, "all_gather")

    @by_device
    def all_gather_single(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Work:
        """Collect them in one tensor, one after the other."""
        del opts
        operation = self._gathered([(rows_of(output, self._size), tensor)])
        return Work(operation, [output], self, "all_gather")

    _allgather_base = all_gather_single

    @by_device
    def all_gather_single_coalesced(
        self, outputs: list[torch.Tensor], tensors: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Do so for several."""
        del opts
        pairs = zip((rows_of(output, self._size) for output in outputs), tensors, strict=True)
        return Work(self._gathered(pairs), outputs, self, "all_gather")

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _gathered(self, pairs: Any) -> Operation:
        return _several([partial(self._do.all_gather, outs, each) for outs, each in list(pairs)])

    @by_device
    def gather(
        self, outputs: list[list[torch.Tensor]], tensors: list[torch.Tensor], opts: Any
    ) -> Work:
        """Collect every rank's tensor on one."""
        outs = outputs[0] if self._rank == opts.rootRank else None
        return Work(self._do.gather(outs, tensors[0], opts.rootRank), outputs, self, "gather")

    @by_device
    def gather_single(self, output: Any, tensor: torch.Tensor, opts: Any) -> Work:
        """Collect them in one tensor, on one rank."""
        outs = rows_of(output, self._size) if self._rank == opts.rootRank else None
        return Work(self._do.gather(outs, tensor, opts.rootRank), [output], self, "gather")

    gather_into_tensor = gather_single

    @by_device
    def scatter(
        self, outputs: list[torch.Tensor], tensors: list[list[torch.Tensor]], opts: Any
    ) -> Work:
        """Give each rank its own of the root's tensors."""
        parts = tensors[0] if self._rank == opts.rootRank else []
        operation = self._do.scatter(outputs[0], parts, opts.rootRank)
        return Work(operation, outputs, self, "scatter")

    @by_device
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
        outs = output.detach().split(output_sizes) if output_sizes else rows_of(output, self._size)
        ins = tensor.detach().split(input_sizes) if input_sizes else rows_of(tensor, self._size)
        even = not output_sizes and not input_sizes
        return self._exchanged(outs, ins, [output], even=even)

    alltoall_base = all_to_all_single

    @by_device
    def alltoall(
        self, outputs: list[torch.Tensor], tensors: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Send each rank a tensor."""
        del opts
        return self._exchanged(outputs, tensors, outputs, even=False)

    def _exchanged(self, outs: Any, ins: Any, value: list[torch.Tensor], *, even: bool) -> Work:
        work = Work(self._do.all_to_all(outs, ins, even=even), value, self, "all_to_all")
        if not even:
            work.get_future()  # its second half begins though nobody may be waiting
        return work

    def barrier(self, opts: Any = None) -> Work:
        """Return, once waited for, when all ranks have come here."""
        seconds = None if opts is None else opts.timeout.total_seconds()
        limit = seconds if seconds is not None and seconds > 0 else None
        return Work(self._do.barrier(), [], self, "barrier", limit)

    def monitored_barrier(
        self,
        timeout: timedelta | None = None,
        wait_all_ranks: bool = False,  # noqa: FBT001, FBT002 - torch's
    ) -> None:
        """Return when all ranks have come here; else rank 0 says who has not."""
        seconds = self.timeout if timeout is None else timeout.total_seconds()
        self._monitored.barrier(seconds, all_ranks=wait_all_ranks)

    # -- messages

    @by_device
    def send(self, tensors: list[torch.Tensor], peer: int, tag: int = 0) -> Work:
        """Send to one rank."""
        return Work(peers.send(self._messages, tensors[0], peer, tag), tensors, self, "send")

    @by_device
    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int = 0) -> Work:
        """Receive from one rank."""
        return Work(peers.receive(self._messages, tensors[0], peer, tag), tensors, self, "recv")

    @by_device
    def recv_anysource(self, tensors: list[torch.Tensor], tag: int = 0) -> Work:
        """Receive from whichever rank sends first; `source_rank` of the work says which."""
        return Work(peers.receive(self._messages, tensors[0], None, tag), tensors, self, "recv")


def _several(begin: Sequence[partial[Operation]]) -> Operation:
    """Begin several operations as one."""
    parts = [one() for one in begin]
    return parts[0] if len(parts) == 1 else Several(parts)


def _nothing(timeout: float) -> None:
    """A group of one waits for nobody."""


def _refusing(name: str, instead: str) -> Any:
    def refuse(self: Group, *arguments: Any, **options: Any) -> Any:
        del self, arguments, options
        raise InputError(f"it is not supported by allrail; use {instead}", field=name)

    return refuse


for _name, _instead in {
    "split_group": "`torch.distributed.new_group`",
    "merge_remote_group": "`torch.distributed.init_process_group` with all ranks",
    "reconfigure": "`torch.distributed.destroy_process_group` and `init_process_group`",
    "get_reconfigure_handle": "`torch.distributed.init_process_group`",
    "new_window": "`torch.distributed.isend` and `irecv`",
    "allreduce_sparse": "`tensor.to_dense()`",
}.items():
    setattr(Group, _name, _refusing(_name, _instead))


def create(store: Any, rank: int, size: int, timeout: timedelta) -> Group:
    """Make a process group; called by torch when the backend `allrail` is asked for."""
    try:
        return Group(store, rank, size, timeout)
    except InputError as error:
        raise TrainingError(error.message, hint=error.hint) from None


keep_from_compiler(
    Group, collectives, devices, futures, monitored, operations, peers, reductions, work
)
register()
