"""Run by `tests/runtime/test_keras.py` on each rank: every case is trained, and told as JSON."""

import json
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np
import pytest

import allrail
import allrail.keras as ark

BATCH, IMAGES = 32, 128
draw = np.random.default_rng(0)
X = draw.normal(size=(IMAGES, 16)).astype("float32")
Y = draw.integers(4, size=IMAGES)
TOKENS = draw.integers(50, size=(IMAGES, 6))
# Some gradients go alone, others share a call.
JOB = {"schema_version": 1, "schedule": {"tensor": {"pack": "1 KiB"}}}
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def dense(width=32):
    return [keras.layers.Dense(width, activation="relu"), keras.layers.Dense(4)]


def flat():
    return keras.Sequential([keras.Input((16,)), *dense()])


def large():
    return keras.Sequential([keras.Input((16,)), keras.layers.Dense(2048), *dense(2048)])


def embedded():
    layers = [keras.layers.Embedding(50, 8), keras.layers.Flatten(), *dense()]
    return keras.Sequential([keras.Input((6,), dtype="int32"), *layers])


def normalised():
    layers = [keras.layers.Dense(8), keras.layers.LayerNormalization(), *dense()]
    return keras.Sequential([keras.Input((16,)), *layers])


def sgd(**options):
    return keras.optimizers.SGD(0.05, momentum=0.9, **options)


def scaled():
    return keras.optimizers.LossScaleOptimizer(sgd(), initial_scale=1024.0)


CASES = {
    "flat": (flat, sgd, {}),
    "adam, clipped": (flat, lambda: keras.optimizers.Adam(0.01, clipnorm=0.1), {}),
    "large": (large, sgd, {}),
    "embedded": (embedded, sgd, {}),
    "normalised, eager": (normalised, sgd, {"run_eagerly": True}),
    "accumulated": (flat, lambda: sgd(gradient_accumulation_steps=2), {}),
    "averaged weights": (flat, lambda: sgd(use_ema=True, ema_overwrite_frequency=3), {}),
    "scaled": (flat, scaled, {}),
    "bfloat16": (flat, sgd, {"policy": "mixed_bfloat16"}),
    "float16": (flat, scaled, {"policy": "mixed_float16"}),
}


def train(case, group):
    make, optimizer, options = CASES[case]
    options = dict(options)
    keras.config.set_dtype_policy(options.pop("policy", "float32"))
    keras.utils.set_random_seed(7 + group.rank)
    model = make()
    model.compile(ark.schedule(optimizer(), group), loss=LOSS, metrics=["accuracy"], **options)
    x = TOKENS if make is embedded else X
    told = model.fit(
        x[group.rank :: group.ranks],
        Y[group.rank :: group.ranks],
        batch_size=BATCH // group.ranks,
        epochs=2,
        shuffle=False,
        verbose=0,
        callbacks=[ark.BroadcastVariables(group), ark.AverageMetrics(group)],
    )
    keras.config.set_dtype_policy("float32")
    weights = [keras.ops.convert_to_numpy(one) for one in model.trainable_weights]
    return told.history, [weight.astype("float64").ravel()[:64].tolist() for weight in weights]


def by_hand(group):
    """A loop of one's own, with two optimizers."""
    keras.utils.set_random_seed(3)
    one, two = flat(), flat()
    optimizers = [ark.schedule(sgd(name=name), group) for name in ("one", "two")]
    for model, optimizer in zip((one, two), optimizers, strict=True):
        gradients = [
            keras.ops.full(weight.shape, float(group.rank + 1), dtype=weight.dtype)
            for weight in model.trainable_weights
        ]
        before = [keras.ops.convert_to_numpy(weight) for weight in model.trainable_weights]
        optimizer.apply(gradients, model.trainable_weights)
        for old, weight in zip(before, model.trainable_weights, strict=True):
            moved = (old - keras.ops.convert_to_numpy(weight)) / 0.05
            assert np.allclose(moved, (group.ranks + 1) / 2, atol=1e-4), moved


def saved(group):
    """A file that somebody loads who has no allrail."""
    model = flat()
    model.compile(ark.schedule(sgd(), group), loss=LOSS)
    model.fit(X[:32], Y[:32], verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        optimizer = keras.saving.load_model(path).optimizer
    assert type(optimizer) is keras.optimizers.SGD, type(optimizer)
    assert int(optimizer.iterations) == 1


def refused(group):
    """What is no job, and what is said of it."""

    def says(*words, of):
        with pytest.raises(allrail.InputError) as caught:
            of()
        assert all(word in str(caught.value) for word in words), caught.value

    backend, keras.backend.backend = keras.backend.backend, lambda: "torch"
    says("torch", "tensorflow or jax", of=lambda: ark.schedule(sgd(), group))
    keras.backend.backend = backend
    once = ark.schedule(sgd(), group)
    says("scheduled already", of=lambda: ark.schedule(once, group))
    around = keras.optimizers.LossScaleOptimizer(once)
    says("scheduled already", "outermost", of=lambda: ark.schedule(around, group))
    says("no optimizer", "Adam", of=lambda: ark.schedule("adam", group))
    keras.config.set_dtype_policy("mixed_float16")
    says("overflow", "LossScaleOptimizer(", of=lambda: ark.schedule(sgd(), group))
    keras.config.set_dtype_policy("float32")
    empty = keras.Sequential([keras.Input((16,)), keras.layers.Flatten()])
    empty.compile(ark.schedule(sgd(), group), loss="mse")
    fit = {"verbose": 0, "callbacks": [ark.BroadcastVariables(group)]}
    says("no weights", of=lambda: empty.fit(X[:8], X[:8], **fit))


with allrail.Communicator(job=JOB) as group:
    said = {case: train(case, group) for case in CASES}
    by_hand(group)
    saved(group)
    refused(group)
    every = group.all_gather(np.array([sum(map(sum, said["flat"][1]))])).wait()
    assert len(set(every.tolist())) == 1, every
    if group.rank == 0:
        Path(sys.argv[1]).write_text(json.dumps(said))
