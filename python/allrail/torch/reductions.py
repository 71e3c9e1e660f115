"""The reductions of torch: which types have them, their words, and how they are computed here."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
import torch.distributed as dist

from allrail.base.errors import InputError
from allrail.runtime import nodes
from allrail.torch.memory import name_of

Op = dist.ReduceOp
SUM = Op.SUM
SUMMED = tuple(getattr(torch, name) for name in nodes.SUMMED)
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
WORDS = {
    Op.SUM: "",
    Op.AVG: "average",
    Op.PRODUCT: "product",
    Op.MIN: "min",
    Op.MAX: "max",
    Op.BAND: "and",
    Op.BOR: "or",
    Op.BXOR: "xor",
}
"""What the engine calls them (`allrail_engine::asked`)."""
_BITWISE = (Op.BAND, Op.BOR, Op.BXOR)


def op_of(opts: Any) -> Any:
    """The reduction that options ask for; a sum is `SUM` itself, as comparing costs more."""
    if opts is None or opts.reduceOp == SUM:
        return SUM
    return getattr(opts.reduceOp, "op", opts.reduceOp)


def check_reduction(tensor: torch.Tensor, op: Any) -> None:
    """Refuse what has no meaning, or no code, before any rank has begun."""
    dtype = name_of(tensor.dtype)
    name = str(op).rpartition(".")[2]
    if op not in _PAIRWISE:
        instead = "`SUM` of `tensor * factor`" if name == "PREMUL_SUM" else "`SUM`"
        raise _refused(name, f"it is not supported by allrail; use {instead}")
    if tensor.is_complex() and op not in (SUM, Op.AVG):
        raise _refused(name, f"complex numbers ({dtype}) have no {name}", "`SUM` or `AVG`")
    if op in _BITWISE and tensor.is_floating_point():
        raise _refused(name, f"{dtype} has no bits to combine", "an integer type")
    if op == Op.AVG and tensor.dtype is torch.bool:
        raise _refused(name, "the average of truth values is none of them", "`MAX` or `MIN`")
    try:
        _PAIRWISE[op](tensor.new_zeros(1), tensor.new_zeros(1))
    except (RuntimeError, TypeError):
        why = f"{name} of {dtype} is not supported by allrail; use float32 or another type"
        raise _refused(name, why) from None


def _refused(op: str, why: str, instead: str = "") -> InputError:
    return InputError(why, field="op", value=op, hint=instead and f"use {instead}")


def combine(target: torch.Tensor, every: list[torch.Tensor], op: Any) -> None:
    """Write the reduction of several tensors of one size into another."""
    result = reduce(_PAIRWISE[op], every)
    target.copy_(_divide(result, len(every)) if op == Op.AVG else result)


def real(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of the real numbers that complex ones are made of, or the tensor itself."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _divide(tensor: torch.Tensor, by: int) -> torch.Tensor:
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor.div_(by)
    return tensor.div_(by, rounding_mode="trunc")


def divide_into(target: torch.Tensor, source: torch.Tensor, by: int) -> None:
    """Write the quotient of a tensor, which may be the target itself, into another."""
    if target is not source:
        target.copy_(source)
    if by != 1:
        _divide(target, by)
