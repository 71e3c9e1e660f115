"""Whether all ranks still have the same parameters: compared every so many steps.

Replicas step with the same gradients, so their parameters stay the same, bit for bit. A flipped
bit in one rank's memory, or an optimizer that steps differently there, makes them differ, and
nothing else would ever tell. So before every k-th step each rank hashes its parameters, one hash
of 8 bytes a tensor, and one of them all travels; only where that differs do ranks exchange the
others, and all of them end with an error that names the first tensor that differs.

Parameters are hashed when a step is asked for: the one before it was made by all of them, and this
one by none. So no step waits for it. What the others have is looked at when the next step is asked
for.

On the host a hash is CRC-64; on a device it is the sum of the words, which finds every single
flipped bit. Left out: frozen parameters, buffers (those of BatchNorm are each rank's own between
two broadcasts), parameters that are shards. Low bits of an optimizer's state show once they reach
a parameter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch

from allrail import _core
from allrail.base.errors import TrainingError
from allrail.torch.transport import Transport

_SIGNED = 1 << 63


class Divergence:
    """Compares the parameters that one optimizer steps.

    Args:
        transport: What reaches the other ranks.
        named: The parameters, by name, in the same order on all ranks.
        every: After how many steps they are compared; 0 for never.
    """

    def __init__(self, transport: Transport, named: dict[str, torch.Tensor], *, every: int) -> None:
        whole = {name: each for name, each in named.items() if not _is_shard(each)}
        self._transport = transport
        self._names = list(whole)
        self._parameters = list(whole.values())
        self._every = every if whole and transport.ranks > 1 else 0
        self._made = 0
        self._taken = torch.empty(0, dtype=torch.int64)
        self._at = 0
        self._waits = False
        self._table: torch.Tensor | None = None
        self._ticket = 0

    def before_step(self) -> None:
        """A step is asked for, and the one before it was made by all parameters.

        Raises:
            TrainingError: Parameters differed between ranks when they were compared last.
        """
        self.settled(self._made)
        self._made += 1

    def settled(self, steps: int) -> None:
        """All parameters have made so many steps, and no other yet.

        Raises:
            TrainingError: Parameters differed between ranks when they were compared last.
        """
        if not self._every:
            return
        if self._table is not None or self._waits:
            self.finish()
        if steps // self._every > self._at // self._every:
            self._take(steps)

    def finish(self) -> None:
        """Look at what was compared last, if that was not looked at.

        Raises:
            TrainingError: Parameters differed between ranks.
        """
        if self._waits:
            self._begin()
            return
        if self._table is None:
            return
        table, self._table = self._table, None
        self._transport.gathered(self._ticket)
        if len({tuple(row) for row in table.tolist()}) > 1:
            self._tell()

    def _take(self, steps: int) -> None:
        """Hash all parameters as they are now."""
        self._at = steps
        self._taken = hashes(self._parameters)
        if self._taken.device.type == "cpu":
            self._begin()
        else:
            # The device gets there later: the script does not wait for it.
            self._waits = True

    def _begin(self) -> None:
        """Send one hash of all, and receive the others'."""
        self._waits = False
        whole = hashes([self._taken.cpu()])
        self._table = self._row(whole)
        self._ticket = self._transport.gather(self._table)

    def _row(self, mine: torch.Tensor) -> torch.Tensor:
        device = self._parameters[0].device
        table = torch.zeros((self._transport.ranks, mine.numel()), dtype=torch.int64, device=device)
        table[self._transport.rank].copy_(mine)
        return table

    def _tell(self) -> None:
        """Ranks differ: all of them exchange the hash of every tensor, and say which."""
        table = self._row(self._taken)
        self._transport.gathered(self._transport.gather(table))
        differ = (table != table[0]).any(dim=0).nonzero().flatten().tolist()
        if not differ:  # what was compared has changed on its way, and not the parameters
            return
        first = differ[0]
        others = len(differ) - 1
        more = f", and {others} more tensor{'s' * (others > 1)}" if others else ""
        who = who_differs(table[:, first].tolist())
        raise TrainingError(
            f"this parameter{more} differ{'' if more else 's'} between ranks after step"
            f" {self._at}: {who}",
            field=self._names[first],
            hint="a bit has flipped in a rank's memory, or its optimizer steps differently: go on"
            " from an older checkpoint; `checks: {parameters: 0}` in the job file compares nothing",
        )


def who_differs(values: Sequence[int]) -> str:
    """Say which ranks do not have what most have.

    Args:
        values: What each rank has.
    """
    most, count = Counter(values).most_common(1)[0]
    others = [rank for rank, value in enumerate(values) if value != most]
    if 2 * count <= len(values):
        return f"ranks {_listed(range(len(values)))} do not agree"
    ranks = "ranks" if len(others) > 1 else "rank"
    have = "have" if len(others) > 1 else "has"
    return f"{ranks} {_listed(others)} {have} another value than the other {count}"


def _listed(ranks: Sequence[int]) -> str:
    shown = [str(rank) for rank in ranks[:8]]
    if len(ranks) > len(shown):
        return f"{', '.join(shown)} and {len(ranks) - len(shown)} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def hashes(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return a hash of each tensor's bytes, int64, where the first of them is.

    Args:
        tensors: Dense, all on the host or all on devices.
    """
    if all(each.device.type == "cpu" for each in tensors):
        dense = [each.detach() for each in tensors]
        found = _core.hashes_of([_core.Memory.of_tensor(each) for each in dense])
        return torch.tensor([value - 2 * (value & _SIGNED) for value in found])
    first = tensors[0].device
    with torch.no_grad():
        return torch.stack([_sum_of_words(each).to(first) for each in tensors])


def _sum_of_words(tensor: torch.Tensor) -> torch.Tensor:
    """The sum of a tensor's bytes, taken as the longest words that they can be."""
    octets = tensor.detach().contiguous().view(-1).view(torch.uint8)
    for word in (torch.int64, torch.int32, torch.int16):
        if octets.numel() % word.itemsize == 0 and octets.storage_offset() % word.itemsize == 0:
            return octets.view(word).sum(dtype=torch.int64)
    return octets.sum(dtype=torch.int64)


def _is_shard(parameter: torch.Tensor) -> bool:
    """Whether each rank has another part of it, as of FSDP2 and of tensor parallelism."""
    return hasattr(parameter, "device_mesh") or hasattr(parameter, "placements")
