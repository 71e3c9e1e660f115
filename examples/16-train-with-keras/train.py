"""A small network of Keras learns to tell digits apart, on several ranks."""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import allrail
import allrail.keras as ark

CLASSES, PIXELS, IMAGES, BATCH = 10, 64, 2048, 128

# Noisy images of ten patterns.
draw = np.random.default_rng(0)
patterns = draw.normal(size=(CLASSES, PIXELS)).astype("float32")
labels = draw.integers(CLASSES, size=IMAGES)
images = patterns[labels] + draw.normal(size=(IMAGES, PIXELS)).astype("float32")

with allrail.Communicator() as group:
    keras.utils.set_random_seed(group.rank)  # weights differ until rank 0's are broadcast
    model = keras.Sequential(
        [
            keras.Input((PIXELS,)),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(CLASSES),
        ]
    )
    model.compile(
        ark.schedule(keras.optimizers.Adam(1e-3), group),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    # Rank k has images k, k + ranks, ...: batch by batch the ranks together see what one would.
    told = model.fit(
        images[group.rank :: group.ranks],
        labels[group.rank :: group.ranks],
        batch_size=BATCH // group.ranks,
        epochs=3,
        shuffle=False,
        verbose=0,
        callbacks=[ark.BroadcastVariables(group), ark.AverageMetrics(group)],
    )
    if group.rank == 0:
        for epoch, (loss, right) in enumerate(
            zip(told.history["loss"], told.history["accuracy"], strict=True)
        ):
            print(f"epoch {epoch}: loss {loss:.4f}, {right:.1%} right")
