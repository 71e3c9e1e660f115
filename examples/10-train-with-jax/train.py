"""A network of two layers learns which points are inside a circle, on several ranks."""

import jax
import jax.numpy as jnp

import allrail

STEPS, RATE, WIDTH, BATCH = 200, 2.0, 32, 512


def points(rank, ranks):
    """This rank's part of the data: points of a square, and whether they are in the circle."""
    x = jax.random.uniform(jax.random.key(0), (BATCH, 2), minval=-1, maxval=1)
    y = jnp.hypot(x[:, 0], x[:, 1]) < 0.7
    return x[rank::ranks], y[rank::ranks]


def guess(layers, x):
    """How likely each point is in the circle, as logits."""
    hidden = jnp.tanh(x @ layers["first"]["weight"] + layers["first"]["bias"])
    return hidden @ layers["second"]["weight"] + layers["second"]["bias"]


@jax.jit
def gradients(layers, x, y):
    """The loss over these points, and its gradient."""

    def loss(layers):
        logits = guess(layers, x)
        return jnp.mean(jnp.logaddexp(0, logits) - y * logits)

    return jax.value_and_grad(loss)(layers)


def averaged(group, tree):
    """The average over ranks of every array of a tree. All are under way at once."""
    handles = jax.tree.map(lambda array: group.all_reduce(array, op="average"), tree)
    return jax.tree.map(lambda handle: handle.wait(), handles)


with allrail.Communicator() as group:
    x, y = points(group.rank, group.ranks)
    one, two = jax.random.split(jax.random.key(group.rank))
    layers = {
        "first": {"weight": 2 * jax.random.normal(one, (2, WIDTH)), "bias": jnp.zeros(WIDTH)},
        "second": {"weight": jax.random.normal(two, (WIDTH,)) / 2, "bias": jnp.zeros(())},
    }
    # Every rank begins with what rank 0 has drawn.
    layers = jax.tree.map(lambda array: group.broadcast(array).wait(), layers)

    for step in range(STEPS + 1):
        loss, gradient = averaged(group, gradients(layers, x, y))
        layers = jax.tree.map(lambda array, slope: array - RATE * slope, layers, gradient)
        if step % 50 == 0 and group.rank == 0:
            print(f"step {step:3}: loss {loss:.2f}")

    weights = group.all_gather(layers["first"]["weight"][None]).wait()
    if group.rank == 0:
        print("alike on all ranks:", all(bool((weights[0] == one).all()) for one in weights))
