"""Steps that do not wait for the slowest ranks: backup workers.

    model, optimizer = art.schedule(model, optimizer, backup_workers=1)
    while min(art.steps(model).values()) < 10_000:
        loss(model(next(batches))).backward()
        optimizer.step()
        optimizer.zero_grad()

`optimizer.step()` brings this rank's gradients and returns with a step made on their average over
the ranks that have come in time (`allrail.runtime.partial`). A rank that was late has its gradients
dropped, and makes all steps that it has missed: so all replicas make the same steps, in the same
order, and differ in nothing. Learning rates and other numbers of the optimizer are those of a rank
whose gradients are in the step, the same on all, since schedulers that count their own calls run
apart where ranks make unequal numbers of passes. Buffers of floating-point numbers, such as the
statistics of batch normalisation, become their average over the same ranks.

Gradients travel whole, after the backward pass: nothing overlaps. Those on a GPU go through host
memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from allrail.base.errors import InputError
from allrail.runtime.agreement import Agreement
from allrail.runtime.job import Job
from allrail.runtime.partial import Average, PartialAverages, check_backup_workers
from allrail.torch.barrier import Barriers
from allrail.torch.behaviour import with_hooks
from allrail.torch.check import same_model
from allrail.torch.claims import Claim
from allrail.torch.hooks import Hook


class Backup:
    """One model whose steps wait for all but some ranks; ends with `release`.

    Args:
        model: The model; its parameters and buffers become those of rank 0.
        optimizers: Its optimizer, alone.
        parameters: Its trainable parameters by name.
        agreement: How ranks make sure that they schedule alike.
        store: Where ranks find each other.
        job: The job.
        backup_workers: How many ranks a step does not wait for.
        average_buffers: Whether buffers become averages, too.

    Raises:
        InputError: There are not so many ranks, or several optimizers; ranks differ.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        parameters: dict[str, nn.Parameter],
        agreement: Agreement,
        *,
        store: Any,
        job: Job,
        backup_workers: int,
        average_buffers: bool,
    ) -> None:
        check_backup_workers(backup_workers, agreement.ranks)
        if len(optimizers) != 1:
            raise InputError(
                f"there are {len(optimizers)}, and a late rank makes the steps of one",
                field="optimizer",
                hint="give one optimizer with several parameter groups, or leave `backup_workers`"
                " out",
            )
        self.barriers = Barriers(loud=False)
        (self._optimizer,) = optimizers
        self._parameters = parameters
        floats = [each for each in model.buffers() if each.is_floating_point()]
        self._buffers = floats if average_buffers else []
        self._passes = 0
        self._pending: list[Average] = []
        self._own: list[float] = []
        same_model(agreement, parameters)
        everything = [each.detach() for each in (*model.parameters(), *model.buffers())]
        first = [each.cpu().contiguous() for each in everything]
        self._averages = PartialAverages(
            store,
            Agreement(
                store,
                agreement.rank,
                agreement.ranks,
                f"{agreement.name.rsplit('/', 1)[-1]} backup",
                patience=agreement.patience,
                meets=False,
            ),
            job,
            self._brought(),
            backup_workers=backup_workers,
            numbers=1 + len(list(self._numbers())),
            first=first,
        )
        with torch.no_grad():
            for one, given in zip(everything, first, strict=True):
                one.copy_(given)
        self._claim = Claim(model, parameters, optimizers)
        # The model's hook holds this, and it goes with the model.
        me = weakref.ref(self)

        def before(_: Any, arguments: Any, named: Any) -> None:
            if (alive := me()) is not None:
                alive._before_step(arguments, named)

        def after(*_: Any) -> None:
            if (alive := me()) is not None:
                alive._after_step()

        self._handles: list[Any] = [
            model.register_forward_pre_hook(Hook(self._before_model), prepend=True),
            with_hooks(self._optimizer).register_step_pre_hook(before),
            self._optimizer.register_step_post_hook(after),
        ]
        self._claim.hold()

    def synchronize(self) -> None:
        """Nothing is under way between two steps."""

    def steps(self) -> dict[str, int]:
        """How many steps each parameter has made."""
        return dict.fromkeys(self._parameters, self._averages.step - len(self._pending))

    def no_sync(self) -> AbstractContextManager[None]:
        """Backward passes exchange nothing anyway."""
        return nullcontext()

    def state(self) -> dict[str, Any]:
        """Nothing is remembered beside the model and its optimizer."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        if state:
            raise InputError(
                "it was saved where gradients are exchanged otherwise",
                field="state",
                value=", ".join(sorted(state)),
                hint="schedule as it was when it was saved, or load no state",
            )

    def release(self) -> None:
        """Leave once all ranks do, and make model and optimizer what they were before."""
        try:
            self._averages.close()
        finally:
            self._claim.drop()
            for handle in self._handles:
                handle.remove()

    # -- how

    def _before_model(self, module: nn.Module, *_: Any) -> None:
        if torch.is_grad_enabled():
            self._claim.check(module)

    def _before_step(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> None:
        if not self._pending:
            # The first is the optimizer.
            closure = named.get("closure", arguments[1] if len(arguments) > 1 else None)
            if closure is not None:
                raise InputError(
                    "it computes gradients in the middle of a step, after these were averaged",
                    field="closure",
                    hint="call `optimizer.step()` without one, or leave `backup_workers` out",
                )
            self._passes += 1
            self._own = list(self._numbers())
            numbers = [float(self._passes), *self._own]
            self._pending = self._averages.exchange(self._brought(), numbers)
            while len(self._pending) > 1:
                self._optimizer.step()  # one that it has missed
        self._set(self._pending[0])

    def _after_step(self) -> None:
        self._pending.pop(0)
        if not self._pending:
            self._write(self._own)

    def _brought(self) -> list[torch.Tensor]:
        """Gradients and buffers of each type in a row; then which parameters have a gradient."""
        rows: dict[torch.dtype, list[torch.Tensor]] = {}
        there = []
        for name, one in self._parameters.items():
            gradient = one.grad
            if gradient is not None and gradient.layout != torch.strided:
                raise InputError(
                    "it is sparse, and averages are of dense ones",
                    field=name,
                    hint="make the embedding with `sparse=False`, or leave `backup_workers` out",
                )
            there.append(float(gradient is not None))
            row = torch.zeros_like(one) if gradient is None else gradient
            rows.setdefault(one.dtype, []).append(row.detach().to(one.dtype).reshape(-1).cpu())
        for buffer in self._buffers:
            rows.setdefault(buffer.dtype, []).append(buffer.detach().reshape(-1).cpu())
        return [*(torch.cat(each) for each in rows.values()), torch.tensor(there)]

    def _set(self, average: Average) -> None:
        """Put an average, and the numbers that go with it, where the step looks for them."""
        # Of those whose gradients are in it, the one that has made the most passes.
        self._write(max(average.numbers, key=lambda said: said[0])[1:])
        *rows, there = average.arrays
        places = {row.dtype: 0 for row in rows}
        of_type = {row.dtype: row for row in rows}

        def taken(like: torch.Tensor) -> torch.Tensor:
            start = places[like.dtype]
            places[like.dtype] = start + like.numel()
            part = of_type[like.dtype][start : start + like.numel()]
            return part.view(like.shape).to(like.device)

        with torch.no_grad():
            for one, has in zip(self._parameters.values(), there.tolist(), strict=True):
                part = taken(one)
                if not has:
                    one.grad = None
                elif one.grad is None:
                    one.grad = torch.empty_like(one).copy_(part)
                else:
                    one.grad.copy_(part)
            for buffer in self._buffers:
                buffer.copy_(taken(buffer))

    def _numbers(self) -> Iterator[float]:
        """What the optimizer is told, such as learning rates, in the order of its groups."""
        for group in self._optimizer.param_groups:
            for key in sorted(group):
                value = group[key]
                each = value if isinstance(value, (tuple, list)) and key != "params" else [value]
                yield from (float(one) for one in each if _is_number(one))

    def _write(self, numbers: Sequence[float]) -> None:
        """Tell the optimizer numbers in the order of `_numbers`."""
        left = iter(numbers)

        def told(value: Any) -> Any:
            if not _is_number(value):
                return value
            number = next(left)
            if isinstance(value, torch.Tensor):
                return value.fill_(number)
            return type(value)(number)

        for group in self._optimizer.param_groups:
            for key in sorted(group):
                value = group[key]
                if isinstance(value, (tuple, list)) and key != "params":
                    group[key] = type(value)(told(one) for one in value)
                else:
                    group[key] = told(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and not value.requires_grad
    return isinstance(value, (int, float)) and not isinstance(value, bool)
