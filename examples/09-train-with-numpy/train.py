"""A network of two layers learns which points are inside a circle, on several ranks."""

import numpy as np

import allrail

STEPS, RATE, WIDTH, BATCH = 200, 2.0, 32, 512


def points(rank, ranks):
    """This rank's part of the data: points of a square, and whether they are in the circle."""
    x = np.random.default_rng(0).uniform(-1, 1, (BATCH, 2)).astype(np.float32)
    y = (np.hypot(x[:, 0], x[:, 1]) < 0.7).astype(np.float32)
    return x[rank::ranks], y[rank::ranks]


with allrail.Communicator() as group:
    x, y = points(group.rank, group.ranks)
    draw = np.random.default_rng(group.rank)
    first = draw.normal(0, 2, (3, WIDTH)).astype(np.float32)
    second = draw.normal(0, 0.5, WIDTH + 1).astype(np.float32)
    # Every rank begins with what rank 0 has drawn.
    for handle in [group.broadcast(first), group.broadcast(second)]:
        handle.wait()

    inputs = np.column_stack([x, np.ones(len(x), np.float32)])
    for step in range(STEPS + 1):
        hidden = np.tanh(inputs @ first)
        outputs = np.column_stack([hidden, np.ones(len(x), np.float32)])
        guess = 1 / (1 + np.exp(-outputs @ second))
        error = (guess - y) / len(y)

        # The second layer's gradient is ready first and needed last: what comes after overtakes.
        of_second = group.all_reduce(outputs.T @ error, op="average", name="second", priority=0)
        back = np.outer(error, second[:-1]) * (1 - hidden**2)
        of_first = group.all_reduce(inputs.T @ back, op="average", name="first", priority=1)
        loss = -np.mean(np.log(np.where(y == 1, guess, 1 - guess)), keepdims=True)
        loss = group.all_reduce(loss, op="average", name="loss")

        first -= RATE * of_first.wait()
        second -= RATE * of_second.wait()
        loss = loss.wait()[0]
        if step % 50 == 0 and group.rank == 0:
            print(f"step {step:3}: loss {loss:.2f}")

    weights = group.all_gather(first[None]).wait()
    if group.rank == 0:
        print("alike on all ranks:", all(np.array_equal(weights[0], one) for one in weights))
