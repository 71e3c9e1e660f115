"""Every private name of torch that allrail uses, looked up when allrail.torch is imported.

torch may change what begins with an underscore in any release. So all of it stands here: what is
gone is told at import, with the versions that allrail is tested with, and not by a step in the
middle of a job. A test keeps such names out of all other files of this package.

Methods that torch calls and a class of ours overrides (`_get_backend`, `_use_count`, ...) are not
here: they stand in that class.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn

__all__ = ["pytree"]

TESTED = "2.4 to 2.15"
"""The versions that allrail.torch is tested with."""


def _missing(name: str) -> ImportError:
    return ImportError(
        f"allrail.torch needs `{name}`, which torch {torch.__version__} does not have; it is"
        f" tested with torch {TESTED}: install one of these"
    )


def need(name: str) -> Any:
    """Return what a dotted name of torch stands for.

    Args:
        name: Such as `torch._C._current_graph_task_id`.

    Raises:
        ImportError: This torch has no such name.
    """
    first, *rest = name.split(".")
    found: Any = import_module(first)
    path = first
    for part in rest:
        path = f"{path}.{part}"
        if hasattr(found, part):
            found = getattr(found, part)
            continue
        try:
            found = import_module(path)
        except ImportError:
            raise _missing(name) from None
    return found


def reader(owner: Any, *names: str) -> Callable[[Any], Any]:
    """Return a function that reads an attribute of an object.

    Args:
        owner: Such an object, or its class.
        *names: The attribute, and those of it.

    Raises:
        ImportError: It has no such attribute.
    """
    if not hasattr(owner, names[0]):
        kind = owner if isinstance(owner, type) else type(owner)
        raise _missing(f"{kind.__module__}.{kind.__name__}.{names[0]}")
    return attrgetter(".".join(names))


# -- autograd and what surrounds a call

current_graph_task = need("torch._C._current_graph_task_id")
current_autograd_node = need("torch._C._current_autograd_node")
execution_engine = need("torch.autograd.Variable._execution_engine")
DisableTorchFunction = need("torch._C.DisableTorchFunction")
DisableTorchFunctionSubclass = need("torch._C.DisableTorchFunctionSubclass")
disabled_torch_function = need("torch._C._disabled_torch_function_impl")
function_modes = need("torch._C._len_torch_function_stack")
dispatch_modes = need("torch._C._len_torch_dispatch_stack")
tracing_state = need("torch._C._get_tracing_state")
set_tracing_state = need("torch._C._set_tracing_state")
disable_current_modes = need("torch.utils._python_dispatch._disable_current_modes")
pop_mode = need("torch.overrides._pop_mode")
push_mode = need("torch.overrides._push_mode")
peek_interpreter_stack = need("torch._C._functorch.peek_interpreter_stack")
CInterpreter = need("torch._C._functorch.CInterpreter")
clear_interpreter_stack = need("torch._functorch.pyfunctorch.temporarily_clear_interpreter_stack")

# -- tensors

foreach_copy_ = need("torch._foreach_copy_")
internal_overlap = need("torch._debug_has_internal_overlap")
version = reader(torch.Tensor, "_version")
post_accumulate_grad_hooks = reader(torch.Tensor, "_post_accumulate_grad_hooks")
tensor_use_count = need("torch.Tensor._use_count")
storage_use_count = need("torch._C._storage_Use_Count")
storage_address = reader(torch.UntypedStorage, "_cdata")
rebuild_parameter = need("torch._utils._rebuild_parameter")
rebuild_parameter_with_state = need("torch._utils._rebuild_parameter_with_state")
FakeTensor = need("torch._subclasses.FakeTensor")

# -- modules

_MODULE = nn.Module()
COMPILED_CALL = "_compiled_call_impl"
parameters_of = reader(_MODULE, "_parameters")
buffers_of = reader(_MODULE, "_buffers")
modules_of = reader(_MODULE, "_modules")
compiled_call = reader(_MODULE, COMPILED_CALL)
plain_call = reader(_MODULE, "_call_impl")
before_load = reader(_MODULE, "_register_load_state_dict_pre_hook")


def is_replica(module: nn.Module) -> bool:
    """Whether `DataParallel` made the module, to run it on one device."""
    return getattr(module, "_is_replica", False)


# -- optimizers

for _name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
    if _name not in torch.optim.Optimizer.__annotations__:
        raise _missing(f"torch.optim.Optimizer.{_name}")
step_pre_hooks = attrgetter("_optimizer_step_pre_hooks")
step_post_hooks = attrgetter("_optimizer_step_post_hooks")
global_pre_hooks = need("torch.optim.optimizer._global_optimizer_pre_hooks")
global_post_hooks = need("torch.optim.optimizer._global_optimizer_post_hooks")


def has_hooks(optimizer: Any) -> bool:
    """Whether an optimizer has torch's own hooks; some wrappers have none."""
    return hasattr(optimizer, "_optimizer_step_pre_hooks")


def count_step(optimizer: Any, *, whole: bool) -> None:
    """Tell learning rate schedulers that a step was asked for.

    Args:
        optimizer: What steps.
        whole: Whether its own `step` runs, which counts itself.
    """
    optimizer._opt_called = True
    if not whole and hasattr(optimizer, "_step_count"):
        optimizer._step_count += 1


# -- the compiler

disable_dynamo = need("torch._disable_dynamo")
eval_frame = need("torch._C._dynamo.eval_frame")


def code_marker() -> Callable[[Any], None] | None:
    """Return what has a code object, and what it calls, run uncompiled; None before torch 2.7."""
    if not hasattr(eval_frame, "_FrameExecStrategy"):
        return None
    skip = eval_frame._FrameAction.SKIP
    strategy = eval_frame._FrameExecStrategy(skip, skip)
    mark = eval_frame.set_code_exec_strategy
    return lambda code: mark(code, strategy)


def stance_asked() -> tuple[Any, str]:
    """Return the module and the name of what every call of a compiled function begins with.

    The name is empty where this torch has neither the one nor the one before torch 2.6.
    """
    from torch._dynamo import eval_frame as frames

    names = ("_callback_from_stance", "_maybe_set_eval_frame")
    return frames, next((name for name in names if hasattr(frames, name)), "")


def before_compiling(call: Callable[..., None]) -> None:
    """Have a function called before anything is compiled."""
    from torch._dynamo import callback

    callback.callback_handler.register_start_callback(call)


# -- process groups

if torch.distributed.is_available():
    default_store = need("torch.distributed.distributed_c10d._get_default_store")
    Work = need("torch.distributed._Work")
    start_coalescing = need("torch.distributed.ProcessGroup._start_coalescing")
    end_coalescing = need("torch.distributed.ProcessGroup._end_coalescing")
    backend_of = need("torch.distributed.ProcessGroup._get_backend")
    need("torch.distributed.distributed_c10d._world.pg_coalesce_state")
    need("torch.distributed.distributed_c10d._world.pg_backend_config")


def process_groups() -> Any:
    """Return what torch keeps of all process groups; it may be replaced by another."""
    return torch.distributed.distributed_c10d._world


def active_ddp() -> Any:
    """Return the `DistributedDataParallel` whose forward pass runs, or None."""
    return _DDP._active_ddp_module


_DDP = need("torch.nn.parallel.distributed.DistributedDataParallel")
reader(_DDP, "_active_ddp_module")
set_unwrap = need("torch.futures.Future._set_unwrap_func")
