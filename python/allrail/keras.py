"""Data-parallel training with Keras 3, over TensorFlow or JAX.

    import allrail
    import allrail.keras as ark

    with allrail.Communicator() as group:
        optimizer = ark.schedule(keras.optimizers.Adam(1e-3), group)
        model.compile(optimizer, loss="mse")
        model.fit(x, y, callbacks=[ark.BroadcastVariables(group), ark.AverageMetrics(group)])

Every rank runs the script on its own part of the data. The optimizer averages gradients over the
ranks before it uses them. Each all-reduce begins as soon as the backward pass has its gradient, in
the middle of a compiled step too: a compiled step calls back for each gradient, small ones together
(`schedule.tensor.pack` of the job file), and once more for all averages. The first variables have
the highest priority, since the next forward pass reads them first. Keras updates all variables at
once, so unlike `allrail.torch` no step goes on while gradients are still under way (the barrier in
ByteScheduler's sense stays).
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import keras
import numpy as np

from allrail.base.errors import InputError, show
from allrail.runtime.communicator import Communicator
from allrail.runtime.handle import Handle

Optimizer = TypeVar("Optimizer", bound=keras.optimizers.Optimizer)
_Scaled = keras.optimizers.LossScaleOptimizer

_numbers = itertools.count()


def schedule(optimizer: Optimizer, group: Communicator) -> Optimizer:
    """Make an optimizer average its gradients over all ranks of a group.

    Call it in the same order on all ranks, and before `model.compile`. What is saved with the model
    is the optimizer as it was, so a saved model loads without allrail.

    Args:
        optimizer: Any of Keras; with mixed precision in float16, a `LossScaleOptimizer` around the
            optimizer, so that all ranks skip the same steps.
        group: The ranks that train together. It stays open for as long as they train.

    Returns:
        The same optimizer.

    Raises:
        InputError: It is no optimizer of Keras, was scheduled before, or Keras runs on a backend
            that keeps its tensors elsewhere.
    """
    if keras.backend.backend() not in _CALLBACKS:
        raise InputError(
            "gradients of this backend of Keras are not exchanged",
            field="KERAS_BACKEND",
            value=keras.backend.backend(),
            hint="set it to tensorflow or jax; a model of PyTorch goes by allrail.torch.schedule",
        )
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise InputError(
            "it is no optimizer of Keras",
            field="optimizer",
            value=show(optimizer),
            hint="give an object, such as keras.optimizers.Adam(1e-3)",
        )
    inner = getattr(optimizer, "inner_optimizer", None)
    if any(isinstance(each, _Averaging) for each in (optimizer, inner)):
        raise InputError(
            "it is scheduled already",
            field="optimizer",
            value=optimizer.name,
            hint="call schedule once for each optimizer, with the outermost one",
        )
    if keras.config.dtype_policy().name == "mixed_float16" and not isinstance(optimizer, _Scaled):
        raise InputError(
            "with mixed_float16 each rank would skip the steps whose gradients overflow there",
            field="optimizer",
            value=optimizer.name,
            hint="wrap it first: keras.optimizers.LossScaleOptimizer(optimizer)",
        )
    plain = type(optimizer)
    bases = (_AveragingScaled if isinstance(optimizer, _Scaled) else _Averaging, plain)
    # Saved under the name of the class that it was.
    names = {"__module__": plain.__module__, "__qualname__": plain.__qualname__}
    optimizer._allrail_exchange = _Exchange(group, next(_numbers))
    optimizer.__class__ = type(plain.__name__, bases, names)
    return optimizer


class BroadcastVariables(keras.callbacks.Callback):  # type: ignore[misc]
    """Gives all ranks the model's and the optimizer's variables of one, when `fit` begins.

    States of random generators stay each rank's own.

    Args:
        group: The ranks that train together.
        root: Whose variables all get.
    """

    def __init__(self, group: Communicator, root: int = 0) -> None:
        super().__init__()
        self._group, self._root = group, root

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002
        """Broadcast all variables.

        Raises:
            InputError: The model has no weights to train, or is compiled by XLA under TensorFlow,
                which cannot call back.
        """
        if not self.model.trainable_weights:
            raise InputError(
                "it has no weights to train",
                field="model",
                value=self.model.name,
                hint="add layers with weights, or leave `trainable` on",
            )
        if keras.backend.backend() == "tensorflow" and self.model.jit_compile:
            raise InputError(
                "TensorFlow's XLA cannot call back from a compiled step",
                field="jit_compile",
                value="True",
                hint="call model.compile(..., jit_compile=False)",
            )
        variables = [*self.model.weights, *self.model.optimizer.variables]
        handles = [
            self._group.broadcast(
                np.array(keras.ops.convert_to_numpy(variable)),
                root=self._root,
                name=f"variable {place} {variable.path}",
            )
            for place, variable in enumerate(variables)
        ]
        for variable, handle in zip(variables, handles, strict=True):
            variable.assign(handle.wait())


class AverageMetrics(keras.callbacks.Callback):  # type: ignore[misc]
    """Averages what `fit` reports of an epoch over all ranks.

    It stands before callbacks that decide by a metric (`EarlyStopping`, `ReduceLROnPlateau`), so
    that all ranks decide alike.

    Args:
        group: The ranks that train together.
    """

    def __init__(self, group: Communicator) -> None:
        super().__init__()
        self._group = group

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002
        """Put averages in the place of this rank's numbers."""
        names = sorted(name for name, value in (logs or {}).items() if np.ndim(value) == 0)
        if logs is None or not names:
            return
        mine = np.array([float(logs[name]) for name in names])
        mean = self._group.all_reduce(mine, op="average", name=f"metrics {', '.join(names)}").wait()
        logs.update(zip(names, mean.tolist(), strict=True))


class _Averaging:
    """What is laid over the class of an optimizer."""

    _allrail_exchange: _Exchange

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        if trainable_variables is None:
            variables = self._trainable_variables  # type: ignore[attr-defined]
        else:
            variables = trainable_variables = list(trainable_variables)
        averages = self._allrail_exchange.average(list(grads), variables)
        super().apply(averages, trainable_variables)  # type: ignore[misc]


class _AveragingScaled(_Averaging):
    """The same for one that scales losses, whose stateless step is a way of its own."""

    def stateless_apply(
        self, optimizer_variables: Any, grads: Any, trainable_variables: Any
    ) -> Any:
        variables = self._trainable_variables  # type: ignore[attr-defined]
        averages = self._allrail_exchange.average(list(grads), variables)
        return super().stateless_apply(  # type: ignore[misc]
            optimizer_variables, averages, trainable_variables
        )


class _Exchange:
    """The all-reduces of one optimizer's gradients.

    Args:
        group: Whose ranks take part.
        number: Of the optimizer, alike on all ranks.
    """

    def __init__(self, group: Communicator, number: int) -> None:
        self._group = group
        self._number = number
        self._lock = threading.Lock()
        self._under_way: dict[int, Handle] = {}

    def average(self, gradients: list[Any], variables: Sequence[Any]) -> list[Any]:
        """Average gradients, in whatever the backend's step is: run at once or compiled.

        Args:
            gradients: One for each variable; None where it has none, on all ranks alike.
            variables: In the order in which the model registers them.
        """
        have = [place for place, one in enumerate(gradients) if one is not None]
        if self._group.ranks == 1 or not have:
            return gradients
        for place in have:
            if getattr(variables[place], "overwrite_with_gradient", False):
                raise InputError(
                    "it is a scale of FP8, which each rank finds for itself",
                    field=variables[place].path,
                    hint="train in bfloat16 or float32",
                )
        call = _CALLBACKS[keras.backend.backend()]
        bytes_of = {
            place: np.dtype(_dtype(gradients[place])).itemsize * math.prod(variables[place].shape)
            for place in have
        }
        # TensorFlow keeps the order of calls: the backward pass has the last variables first.
        begun = [
            call(
                self._begin_of(places, variables),
                [gradients[place] for place in places],
                [((), "int32")],
            )[0]
            for places in _calls(self._group.pack, have[::-1], bytes_of)
        ]
        shapes = [(tuple(variables[place].shape), _dtype(gradients[place])) for place in have]
        averages = call(self._finish_of(have), begun, shapes)
        done = dict(zip(have, averages, strict=True))
        return [done.get(place) for place in range(len(gradients))]

    def _begin_of(self, places: Sequence[int], variables: Sequence[Any]) -> Any:
        count = len(variables)
        names = [
            f"optimizer {self._number} gradient {place} {variables[place].path}" for place in places
        ]

        def begin(*gradients: Any) -> list[Any]:
            for place, name, gradient in zip(places, names, gradients, strict=True):
                # A copy: the memory of the framework's array is its own again after the call.
                handle = self._group.all_reduce(
                    np.array(gradient), op="average", name=name, priority=count - place
                )
                with self._lock:
                    self._under_way[place] = handle
            return [np.int32(places[0])]

        return begin

    def _finish_of(self, places: Sequence[int]) -> Any:
        def finish(*_begun: Any) -> list[Any]:
            with self._lock:
                handles = [self._under_way.pop(place) for place in places]
            return [handle.wait() for handle in handles]

        return finish


def _calls(pack: int, places: Sequence[int], bytes_of: Mapping[int, int]) -> list[list[int]]:
    """Divide gradients into calls, in their order.

    A call back costs a step more than a small gradient's early start saves: a call waits until it
    has `pack` bytes.
    """
    calls: list[list[int]] = []
    held = pack
    for place in places:
        if held >= pack:
            calls.append([])
            held = 0
        calls[-1].append(place)
        held += bytes_of[place]
    return calls


def _dtype(gradient: Any) -> str:
    return str(keras.backend.standardize_dtype(gradient.dtype))


def _by_tensorflow(function: Any, arguments: list[Any], results: list[Any]) -> list[Any]:
    """Call a function of numpy's arrays from a step of TensorFlow."""
    import tensorflow as tf

    dense = [tf.convert_to_tensor(argument) for argument in arguments]  # rows of an embedding, too
    types = [tf.as_dtype(dtype) for _, dtype in results]
    given = tf.nest.flatten(tf.numpy_function(function, dense, types))
    for tensor, (shape, _) in zip(given, results, strict=True):
        tensor.set_shape(shape)
    return list(given)


def _by_jax(function: Any, arguments: list[Any], results: list[Any]) -> list[Any]:
    """Call a function of numpy's arrays from a step of JAX."""
    import jax
    from jax.experimental import io_callback

    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in results]
    return list(io_callback(function, shapes, *arguments))


_CALLBACKS = {"tensorflow": _by_tensorflow, "jax": _by_jax}
