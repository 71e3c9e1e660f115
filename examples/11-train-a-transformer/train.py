"""Train a small transformer on 4 workers of this machine, with allrail and without.

    python train.py [--steps 40]

Both ways train in the same processes, ten steps each in turn. The workers reach each other over
loopback, and find each other through a file: no port is open to anyone else.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
import warnings

import torch

torch.set_num_threads(1)  # OpenMP's threads do not survive a fork

import torch._dynamo  # noqa: E402 - else `DistributedDataParallel` imports it in every worker
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

import allrail  # noqa: E402
import allrail.torch as art  # noqa: E402

WORKERS, BLOCK = 4, 10
WORDS, WIDTH, DEPTH, LENGTH, BATCH = 97, 192, 4, 32, 4
LOOPBACK = {"kind": "switch", "size": WORKERS, "bandwidth": "20 Gb/s", "latency": "20 us"}


class Transformer(nn.Module):
    """Predicts the next word."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(DEPTH)
        )
        self.head = nn.Linear(WIDTH, WORDS)
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, text):
        hidden = self.words(text) + self.places(torch.arange(LENGTH))
        for block in self.blocks:
            hidden = block(hidden, src_mask=self.mask, is_causal=True)
        return self.head(hidden)


def batch(step, rank):
    """Sequences in which every word follows from the two before it."""
    chance = torch.Generator().manual_seed(1000 * step + rank)
    words = [torch.randint(WORDS, (BATCH,), generator=chance) for _ in range(2)]
    while len(words) <= LENGTH:
        words.append((words[-1] + 2 * words[-2]) % WORDS)
    return torch.stack(words, dim=1)


class Way:
    """One way to train, and what came of it."""

    def __init__(self, model, module, optimizer):
        self.model, self.module, self.optimizer = model, module, optimizer
        self.times, self.losses = [], []

    def train(self, first, rank):
        for step in range(first, first + BLOCK):
            words = batch(step, rank)
            begun = time.perf_counter()
            self.optimizer.zero_grad()
            said = self.module(words[:, :-1]).flatten(0, 1)
            loss = nn.functional.cross_entropy(said, words[:, 1:].flatten())
            loss.backward()
            self.optimizer.step()
            self.times.append(time.perf_counter() - begun)
            self.losses.append(loss.item())
        art.synchronize()


def made():
    """A model and its optimizer, alike on every worker."""
    torch.manual_seed(0)
    model = Transformer()
    return model, torch.optim.Adam(model.parameters(), lr=1e-3)


def work(rank, steps, file, answers):
    """What one worker does."""
    warnings.simplefilter("ignore")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = dist.FileStore(file, WORKERS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORKERS)
    ways = {}
    model, optimizer = made()
    ways["alone"] = Way(model, model, optimizer)
    model, optimizer = made()
    ways["without"] = Way(model, nn.parallel.DistributedDataParallel(model), optimizer)
    model, optimizer = made()
    model, optimizer = art.schedule(model, optimizer)  # the line to add
    ways["with"] = Way(model, model, optimizer)
    for first in range(0, steps, BLOCK):
        for way in ways.values():
            dist.barrier()
            way.train(first, rank)
    pairs = zip(ways["with"].model.parameters(), ways["without"].model.parameters(), strict=True)
    apart = max((ours - theirs).abs().max().item() for ours, theirs in pairs)
    # The first block opens connections.
    answers.put((rank, {k: (way.times[BLOCK:], way.losses) for k, way in ways.items()}, apart))
    art.release(model)
    dist.barrier()
    dist.destroy_process_group()


def predicted(compute, tensor):
    """Milliseconds of a step by the simulator, where computing alone takes so many seconds."""
    model = Transformer()
    parts = {"words": [model.words, model.places]}
    parts |= {f"block{i}": [block] for i, block in enumerate(model.blocks)}
    parts["head"] = [model.head]
    sizes = {
        name: sum(each.numel() for part in found for each in part.parameters())
        for name, found in parts.items()
    }
    # A block costs what its parameters cost; looking words up costs nothing.
    share = {name: 0 if name == "words" else size for name, size in sizes.items()}
    layers = [
        {
            "name": name,
            "parameters": size,
            "output": 1,
            "forward": f"{round(compute / 3 * share[name] / sum(share.values()) * 1e12)} ps",
            "backward": f"{round(compute / 1.5 * share[name] / sum(share.values()) * 1e12)} ps",
        }
        for name, size in sizes.items()
    ]
    workload = {
        "model": {"layers": layers},
        "batch_per_replica": BATCH,
        "precision": "fp32",
        "parallelism": {"dp": WORKERS},
        "compute": {"device": "a100"},  # not asked: every layer has its times
        "optimizer": "none",
        "iterations": 4,
    }
    scenario = {
        "schema_version": 1,
        "fabric": {"name": "loopback", "dimensions": [LOOPBACK]},
        "workload": workload,
        "schedule": {"policy": "baseline", "chunks": 1, "tensor": tensor},
    }
    return allrail.simulate(scenario).step_time_us / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40, help="of each way, in tens")
    steps = max(2 * BLOCK, parser.parse_args().steps // BLOCK * BLOCK)
    forked = multiprocessing.get_context("fork")
    answers = forked.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "store")  # noqa: PTH118
        workers = [
            forked.Process(target=work, args=(rank, steps, file, answers))
            for rank in range(WORKERS)
        ]
        for worker in workers:
            worker.start()
        found = dict(sorted((rank, rest) for rank, *rest in (answers.get() for _ in workers)))
        for worker in workers:
            worker.join()
    times = {
        way: 1e3
        * statistics.median(map(max, zip(*(one[way][0] for one, _ in found.values()), strict=True)))
        for way in ("alone", "without", "with")
    }
    losses = [statistics.fmean(one["with"][1][at] for one, _ in found.values()) for at in (0, -1)]
    compute = times["alone"] / 1e3
    guess = [predicted(compute, {"policy": one}) for one in ("ddp", "bytescheduler")]
    print(f"loss                         {losses[0]:8.3f} -> {losses[1]:.3f} in {steps} steps")
    print(f"parameters apart, at most    {max(apart for _, apart in found.values()):8.1e}")
    print(f"step of one worker alone     {times['alone']:8.1f} ms")
    print(f"step with DDP                {times['without']:8.1f} ms    predicted {guess[0]:.1f}")
    print(f"step with allrail            {times['with']:8.1f} ms    predicted {guess[1]:.1f}")
    gain = times["without"] / times["with"]
    print(f"gain                         {gain:8.2f} x     predicted {guess[0] / guess[1]:.2f}")
    print(
        "\nOn loopback the network is never the bottleneck, and four workers share the cores with"
        "\nwhat carries their gradients: there is little to gain here, and a loaded machine tells"
        "\nnothing. `scenario.yaml` says what the same training gains on a slow network."
    )


if __name__ == "__main__":
    main()
