"""What checksums of frames and hashes of parameters find, and what they cost: `make bench-checks`.

    python benches/checks.py [PART ...] [--flips 1000] [--steps 100000]

| part | what |
|---|---|
| `frames` | one random bit of a data frame or a control message changes between two ranks |
| `parameters` | one random bit of a random parameter of one rank changes after a step |
| `alarms` | nothing changes, for many steps: whatever is found is a false alarm |
| `cpu` | processor time of a step with both checks and without, by turns, over TCP |

Needs torch, for all but `frames`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import random
import socket
import statistics
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

from allrail._core import Memory, Node, RuntimeFault

CHECKED = {"frames": True, "parameters": 100}
UNCHECKED = {"frames": False, "parameters": 0}


class Proxy:
    """Stands between two ranks of this process, and flips one bit once it is armed.

    A rank proves which address it has dialled, so nobody can stand there before. Once both have
    met, and before data connections are watched, each socket of the one that has dialled is
    exchanged for one that leads through here. Its own file stays watched for control: what comes
    is read when the next sign of life comes.

    Args:
        target: The address that was dialled.
    """

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._lock = threading.Lock()
        self._carried: dict[int, int] = {}
        self._armed: tuple[int, bool] | None = None
        self._left = 0
        self._sockets: list[socket.socket] = []
        listener = socket.create_server(("127.0.0.1", 0))
        for number, fd in enumerate(sockets_to((host, int(port)))):
            there = socket.socket(fileno=os.dup(fd))
            there.settimeout(None)
            theirs = socket.create_connection(listener.getsockname())
            here, _ = listener.accept()
            theirs.settimeout(0)
            os.dup2(theirs.fileno(), fd, inheritable=False)
            theirs.close()
            for one in (here, there):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets += [here, there]
            for pair, back in (((here, there), False), ((there, here), True)):
                of = (number, back)
                threading.Thread(target=self._carry, args=(*pair, of), daemon=True).start()
        listener.close()

    def arm(self, *, busiest: bool, back: bool, after: int) -> None:
        """Flip a bit of the `after`-th byte from now on, in one direction of one connection.

        Args:
            busiest: Whether of that which has carried the most so far, or of that with the least.
            back: Whether what comes from the target.
            after: How many bytes later.
        """
        with self._lock:
            ordered = sorted(self._carried, key=self._carried.__getitem__)
            self._armed, self._left = (ordered[-1 if busiest else 0], back), after

    def close(self) -> None:
        """End all connections."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _carry(self, source: socket.socket, target: socket.socket, of: tuple[int, bool]) -> None:
        while True:
            try:
                data = bytearray(source.recv(1 << 16))
            except OSError:
                data = bytearray()
            with self._lock:
                self._carried[of[0]] = self._carried.get(of[0], 0) + len(data)
                if self._armed == of and self._left < len(data):
                    data[self._left] ^= 1 << random.randrange(8)
                    self._armed = None
                elif self._armed == of:
                    self._left -= len(data)
            try:
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(data)
            except OSError:
                return


def sockets_to(peer: tuple[str, int]) -> list[int]:
    """The descriptors of this process whose sockets have dialled an address."""
    found = []
    for name in Path("/proc/self/fd").iterdir():
        try:
            copy = os.dup(int(name.name))
        except OSError:  # that of this list
            continue
        try:
            with socket.socket(fileno=copy) as one:
                if one.family == socket.AF_INET and one.getpeername() == peer:
                    found.append(int(name.name))
        except OSError:  # it is none, or leads nowhere
            with contextlib.suppress(OSError):
                os.close(copy)
    return sorted(found)


def flip_in_a_frame(
    draw: random.Random, *, control: bool, tls: bool = False
) -> tuple[list[dict[str, Any] | None], int]:
    """Have two ranks exchange until a bit between them has changed.

    Returns:
        The fault of each rank, and how many exchanges were over with wrong elements.
    """
    dimension = {"size": 2, "bandwidth": "10 Gb/s", "latency": "20 us"}
    settings = {
        "ranks": 2,
        "dimensions": [dimension],
        "shared_memory": False,
        "tls": tls,
        "secret": "5a" * 32,
        "timeouts": {"heartbeat": "10 ms"},
    }
    nodes = [Node(json.dumps({"rank": rank, **settings})) for rank in range(2)]
    table = [node.addresses() for node in nodes]
    proxies: list[Proxy] = []
    elements = draw.choice([10, 1_000, 100_000])
    wrong = []

    def work(rank: int) -> None:
        node = nodes[rank]
        node.connect(table)
        met.wait()
        if rank == 0:
            # The higher rank has dialled.
            proxies.append(Proxy(table[0][0]))
        met.wait()
        key = node.register("weight", "float32", [elements], [1], 0)
        node.start()
        buffer = bytearray(4 * elements)
        ones = struct.pack("f", 1.0) * elements
        twos = struct.pack("f", 2.0) * elements
        until = time.monotonic() + 20
        try:
            for count in itertools.count():
                if time.monotonic() > until:
                    break
                if count == 20 and rank == 0:
                    # One connection is for data, the other for control.
                    after = draw.randrange(2_000 if control else 8 * elements)
                    proxies[0].arm(busiest=not control, back=draw.random() < 0.5, after=after)
                buffer[:] = ones
                memory = Memory.of_buffer(buffer)
                generation = node.submit(key, memory)
                if node.wait(key, generation, 20.0) and buffer != twos:
                    wrong.append(rank)
                if control and count > 20:
                    time.sleep(0.005)
        except RuntimeFault:
            pass

    met = threading.Barrier(2, timeout=60)
    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    faults = [json.loads(node.report())["fault"] for node in nodes]
    for node in nodes:
        node.close()
    proxies[0].close()
    return faults, len(wrong)


def is_named(faults: list[dict[str, Any] | None]) -> bool:
    """Whether both ranks end with one error, in the same words, that names both."""
    one, other = faults
    if one is None or other is None or one["what"] != other["what"]:
        return False
    return "rank 0" in one["what"] and "rank 1" in one["what"]


def frames(flips: int) -> None:
    """Plant flips in frames, and print how many were found."""
    draw = random.Random(1)
    for what, share, options in (
        ("data frames and control messages", flips, {}),
        ("the same inside TLS", flips // 10, {"tls": True}),
    ):
        found = named = wrong = 0
        for count in range(share):
            faults, used = flip_in_a_frame(draw, control=count % 4 == 3, **options)
            found += all(faults)
            named += is_named(faults)
            wrong += used
            if not is_named(faults):
                print(f"  flip {count}: {faults}", file=sys.stderr)
        print(f"| {what} | {share} | {found} | {named} | {wrong} exchanges with wrong elements |")


# -- with torch


def on_two_ranks(body: Any, *arguments: Any) -> list[Any]:
    """Run a function on two forked ranks; return what each returned."""
    import pickle

    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipes = []
    for rank in range(2):
        reads, writes = os.pipe()
        if os.fork() == 0:
            os.environ.update(
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE="2",
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(store.port),
                TORCHELASTIC_USE_AGENT_STORE="True",
                TORCHELASTIC_RESTART_COUNT="0",
            )
            try:
                answer = pickle.dumps(body(rank, *arguments))
                with os.fdopen(writes, "wb") as pipe:
                    pipe.write(answer)
            finally:
                sys.stderr.flush()
                os._exit(0)
        os.close(writes)
        pipes.append(reads)
    answers = []
    for reads in pipes:
        with os.fdopen(reads, "rb") as pipe:
            said = pipe.read()
        os.wait()
        answers.append(pickle.loads(said))
    return answers


def job(checks: dict[str, Any]) -> dict[str, Any]:
    """A job file over TCP with these checks."""
    return {"schema_version": 1, "shared_memory": False, "checks": checks}


def flips_in_parameters(rank: int, flips: int) -> tuple[int, int, str]:
    """Plant flips in parameters; how many were found and named rightly, and the last error."""
    import torch

    import allrail.torch as art
    from allrail.base.errors import TrainingError

    torch.set_num_threads(1)
    draw = random.Random(2)  # the same on both ranks
    found = named = 0
    error = ""
    for _ in range(flips):
        torch.manual_seed(draw.randrange(1 << 30))
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        art.schedule(model, optimizer, job=job({"parameters": 1}))
        whose, at = draw.randrange(2), draw.randrange(3)
        name, parameter = draw.choice(list(model.named_parameters()))
        bit = draw.randrange(32 * parameter.numel())
        try:
            for step in range(at + 3):
                optimizer.zero_grad()
                model(torch.ones(4, 8) * (rank + step)).square().mean().backward()
                optimizer.step()
                if step == at:
                    art.synchronize(model)
                    if rank == whose:
                        words = parameter.detach().view(-1).view(torch.int32)
                        words[bit // 32] ^= 1 << bit % 32 if bit % 32 < 31 else -(1 << 31)
        except TrainingError as raised:
            found += 1
            error = raised.why
            named += raised.field == name
        art.release(model)
    return found, named, error


def parameters(flips: int) -> None:
    """Plant flips in parameters, and print how many were found."""
    (found, named, error), other = on_two_ranks(flips_in_parameters, flips)
    assert (found, named) == other[:2]
    print(f"| parameters after a step | {flips} | {found} | {named} | `{error}` |")


def train_quietly(rank: int, steps: int) -> int:
    """Train, compare parameters after every step, and return how many errors there were."""
    import torch

    import allrail.torch as art
    from allrail.base.errors import TrainingError

    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    art.schedule(model, optimizer, job=job({"parameters": 1}), broadcast_buffers=False)
    drawn = torch.Generator().manual_seed(rank)
    try:
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(4, 4, generator=drawn)).square().mean().backward()
            optimizer.step()
        art.release(model)
    except TrainingError as raised:
        print(raised, file=sys.stderr)
        return 1
    return 0


def alarms(steps: int) -> None:
    """Train for many steps with nothing wrong, and print what was found all the same."""
    alarms = on_two_ranks(train_quietly, steps)
    print(f"| {steps} steps in which nothing changes | 0 | {max(alarms)} | | |")


def models() -> dict[str, Any]:
    """Models of different shares of communication, and what they are fed."""
    import torch
    from torch import nn

    def vgg() -> tuple[nn.Module, torch.Tensor]:
        layers: list[nn.Module] = []
        before = 3
        for width in (64, 128, 256, 512):
            layers += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            before = width
        head = [nn.Flatten(), nn.Linear(512 * 4 * 4, 2048), nn.ReLU(), nn.Linear(2048, 100)]
        return nn.Sequential(*layers, *head), torch.randn(16, 3, 64, 64)

    def bert() -> tuple[nn.Module, torch.Tensor]:
        layer = nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True, dropout=0.0)
        return nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), torch.randn(8, 64, 384)

    def small() -> tuple[nn.Module, torch.Tensor]:
        layers = [nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(10)]
        return nn.Sequential(*layers), torch.randn(32, 64)

    return {"VGG-like": vgg, "BERT-like": bert, "10 small Linears": small}


def cpu_of_steps(_: int, name: str, blocks: int, steps: int) -> list[tuple[float, float]]:
    """Processor seconds a step, without checks and with, of each pair of blocks."""
    import torch

    import allrail.torch as art

    torch.set_num_threads(1)
    torch.manual_seed(0)
    arms = []
    for checks in (UNCHECKED, CHECKED):
        model, inputs = models()[name]()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
        art.schedule(model, optimizer, job=job(checks))
        arms.append((model, optimizer, inputs))

    def block(arm: int, count: int) -> float:
        model, optimizer, inputs = arms[arm]
        began = time.process_time()
        for _ in range(count):
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
        art.synchronize(model)
        return (time.process_time() - began) / count

    for arm in range(2):
        block(arm, 3)
    found = []
    for number in range(blocks):
        pair = {arm: block(arm, steps) for arm in ((0, 1) if number % 2 else (1, 0))}
        found.append((pair[0], pair[1]))
    for model, *_ in arms:
        art.release(model)
    return found


def cpu(blocks: int = 20) -> None:
    """Print what both checks cost of a step's processor time."""
    for name in models():
        steps = 100 if "small" in name else 5
        both = on_two_ranks(cpu_of_steps, name, blocks, steps)
        pairs = [pair for one in both for pair in one]
        shares = [100 * (on - off) / off for off, on in pairs]
        middle = statistics.median(shares)
        spread = 1.96 * 1.25 * statistics.stdev(shares) / math.sqrt(len(shares))
        off = statistics.median(one for one, _ in pairs)
        print(f"| {name} | {1e3 * off:.1f} | {middle:+.1f} ± {spread:.1f} |")


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    known = ["frames", "parameters", "alarms", "cpu"]
    parser.add_argument("parts", nargs="*", choices=[*known, []], default=known)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=100_000)
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    if set(given.parts) - {"cpu"}:
        print("| planted in | flips | found | named rightly | note |")
        print("|---|---|---|---|---|")
    if "frames" in given.parts:
        frames(given.flips)
    if "parameters" in given.parts:
        parameters(given.flips)
    if "alarms" in given.parts:
        alarms(given.steps)
    if "cpu" in given.parts:
        print("\n| model | CPU of a step without checks, ms | with checks, % |")
        print("|---|---|---|")
        cpu()


if __name__ == "__main__":
    main()
