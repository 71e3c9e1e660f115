"""ASTRA-sim's cases beside a plain replica of how its code runs them.

The replica was written from reading `Workload.cc`, `Layer.cc`, `Sys.cc` and `OfflineGreedy.cc` of
the version of ASPLOS'23's tutorial: one NPU that stands for all, a clock in whole nanoseconds, a
list for each dimension, a state machine for each loop. It knows nothing of step graphs, plans,
drivers or carriers. Left out: models that end within another dimension than a switch, small last
chunks, and `MICRO`.
"""

from __future__ import annotations

import heapq
import json
import random

import pytest

import allrail
from allrail.formats.astra_sim import read_case
from allrail.formats.astra_sim.columns import columns

MIB = 2**20
KINDS = {"ALLREDUCE": "AR", "REDUCESCATTER": "RS", "ALLGATHER": "AG", "ALLTOALL": "A2A"}
KEYS = {
    "AR": "all-reduce-implementation",
    "RS": "reduce-scatter-implementation",
    "AG": "all-gather-implementation",
    "A2A": "all-to-all-implementation",
}
ALL, NONE = [True] * 9, [False] * 9
FIRST = [True, *NONE[1:]]
REST = [False, *ALL[1:]]
SPANS = {
    "DATA": (NONE, NONE, ALL),
    "HYBRID_DLRM": (NONE, NONE, ALL),
    "HYBRID_DLRM_ENHANCED": (NONE, NONE, ALL),
    "MODEL": (ALL, ALL, NONE),
    "DISTRIBUTED_INFERENCE": (ALL, ALL, NONE),
    "HYBRID_DATA_MODEL": (FIRST, FIRST, REST),
    "HYBRID_MODEL_DATA": (REST, REST, FIRST),
}
FORWARD, INPUT, WEIGHT = range(3)


class Clock:
    """Events by time, then class, then in the order in which they were made."""

    def __init__(self):
        self.now, self.made, self.events = 0, 0, []

    def at(self, time, call, rank=0):
        # What NPU 0 makes for this very time comes after all that was there.
        rank = 99 if time == self.now and rank == 0 else rank
        self.made += 1
        heapq.heappush(self.events, (time, rank, self.made, call))

    def run(self):
        while self.events:
            self.now, _, _, call = heapq.heappop(self.events)
            call()


class Chunk:
    def __init__(self, collective, priority, phases):
        self.collective, self.priority, self.phases = collective, priority, phases
        self.queue, self.started, self.phase = None, False, None


class System:
    """`Sys.cc`: chunks through the queues of dimensions."""

    def __init__(self, clock, dimensions, keys):
        self.clock, self.keys = clock, keys
        self.dimensions = dimensions
        self.queues = [[] for _ in dimensions]
        self.running = [0] * len(dimensions)
        self.priority = self.injected = self.finished = 0
        self.loads, self.loaded_at = [], None
        self.listeners = []
        self.themis = keys["inter-dimension-scheduling"] == "themis"

    def stage_ns(self, kind, d, size):
        """Whole messages one after the other, as the congestion-unaware backend counts."""
        dimension = self.dimensions[d]
        nodes = dimension["size"]
        whole = size * nodes if kind == "AG" else size
        part = whole // nodes
        algorithm = self.keys[KEYS[kind]].split("_")[d]
        halves = 2 if kind == "AR" else 1
        if algorithm == "direct":
            hops = nodes // 2 if dimension["kind"] == "Ring" else 1
            messages = [(part, hops)] * halves
        elif algorithm == "ring":
            times = nodes * (nodes - 1) // 2 if kind == "A2A" else halves * (nodes - 1)
            messages = [(part, 1)] * times
        else:
            rounds = (nodes - 1).bit_length()
            down = [(whole >> (i + 1), 1) for i in range(rounds)] if kind != "AG" else []
            up = [(part << i, 1) for i in range(rounds)] if kind != "RS" else []
            messages = down + up
        latency, rate = dimension["latency"], dimension["rate"]
        wires = sum(hops * latency + int(size * 1e9 / rate) for size, hops in messages)
        return wires + int(self.keys["endpoint-delay"]) * (len(messages) + 1)

    def weight(self, d):
        """Nodes, and an NPU's bandwidth over all its links, as a multiple of that on the first."""
        one = self.dimensions[d]
        return one["size"], one["total"] / self.dimensions[0]["total"]

    def themis_order(self, kind, recommended, spans):
        """`OfflineGreedy::get_chunk_scheduling`."""
        loads, gathers = self.loads, kind == "AG"

        def charge(place, d, left):
            nodes, rate = self.weight(d)
            share = nodes - 1 if gathers else (nodes - 1) / nodes
            loads[place][0] += left / MIB * share / rate
            return left * nodes if gathers else left // nodes

        loads.sort(key=lambda load: load[0])
        if gathers:
            loads.reverse()
        places = [place for place, (_, d) in enumerate(loads) if spans[d]]
        near, far = loads[places[0]], loads[places[-1]]
        of = far[1] if gathers else near[1]
        nodes, rate = self.weight(of)
        spread = abs((far if gathers else loads[-1])[0] - near[0])
        spread = int(spread * rate / (nodes - 1 if gathers else (nodes - 1) / nodes) * MIB)
        if gathers:
            for place in places[:-1]:
                spread //= self.dimensions[loads[place][1]]["size"]
        left = recommended
        if spread < recommended // 16:
            loads.sort(key=lambda load: load[1])
            if gathers:
                loads.reverse()
            for d in range(len(loads)):
                if spans[d]:
                    left = charge(d, d, left)
            return list(range(len(loads)))
        order = [d for _, d in loads]
        for place in places:
            left = charge(place, loads[place][1], left)
        return order

    def collective(self, kind, size, spans, urgent, over):
        """`Sys::generate_collective`; False where no dimension is spanned."""
        piece = size // int(self.keys["preferred-dataset-splits"])
        recommended = piece
        priority = 100_000_000 if urgent else self.priority
        if not urgent:
            self.priority += 1 if self.keys["scheduling-policy"] == "LIFO" else -1
        if self.themis and self.loaded_at != self.clock.now:
            self.loads = [[0.0, d] for d in range(len(self.dimensions))]
            self.loaded_at = self.clock.now
        spans = [spans[d] and one["size"] > 1 for d, one in enumerate(self.dimensions)]
        if not any(spans):
            return False
        collective = {"left": -(-size // piece), "over": over}
        self.injected += collective["left"]
        while size > 0:
            piece = min(piece, size)
            order = list(range(len(spans)))
            if kind == "AG":
                order.reverse()
            if self.themis and kind != "A2A":
                order = self.themis_order(kind, recommended, spans)
            order = [d for d in order if spans[d]]
            size -= piece
            if kind != "AR" or self.keys["collective-optimization"] == "baseline":
                kinds = [(kind, d) for d in order]
            elif self.themis or self.keys["inter-dimension-scheduling"] == "onlineGreedy":
                kinds = [("RS", d) for d in order] + [("AG", d) for d in reversed(order)]
            else:
                *inner, last = order
                kinds = [("RS", d) for d in inner] + [("AR", last)]
                kinds += [("AG", d) for d in reversed(inner)]
            phases, now = [], piece
            for one, d in kinds:
                phases.append((one, d, now))
                nodes = self.dimensions[d]["size"]
                now = now // nodes if one == "RS" else now * nodes if one == "AG" else now
            self.proceed(Chunk(collective, priority, phases))
        return True

    def insert(self, chunk):
        kind, d, size = chunk.phase
        queue = self.queues[d]
        if self.keys["intra-dimension-scheduling"] == "FIFO" or kind in ("A2A", "AR"):
            passes = lambda other: other.priority >= chunk.priority  # noqa: E731
        else:
            passes = lambda other: other.phase[2] < size  # noqa: E731
        place = 0
        while place < len(queue) and (queue[place].started or passes(queue[place])):
            place += 1
        queue.insert(place, chunk)

    def fill(self, d):
        limit = int(self.keys["active-chunks-per-dimension"])
        while self.running[d] < limit and self.running[d] < len(self.queues[d]):
            chunk = self.queues[d][self.running[d]]
            chunk.started = True
            self.running[d] += 1
            kind, _, size = chunk.phase
            over = self.clock.now + self.stage_ns(kind, d, size)
            self.clock.at(over, lambda chunk=chunk: self.proceed(chunk), rank=1 + d)

    def proceed(self, chunk):
        before = chunk.queue
        if not chunk.phases:
            chunk.collective["left"] -= 1
            if chunk.collective["left"] == 0:
                chunk.collective["over"]()
        if before is not None:
            self.queues[before].remove(chunk)
            self.running[before] -= 1
        if chunk.phases:
            chunk.phase = chunk.phases.pop(0)
            chunk.queue, chunk.started = chunk.phase[1], False
            self.insert(chunk)
        if before is not None:
            self.fill(before)
        if chunk.queue is not None and chunk.phase[1] != before:
            self.fill(chunk.queue)

    def finish(self, chunks):
        self.finished += chunks
        for listener in self.listeners:
            listener()


class Layer:
    def __init__(self, loop, row, spans):
        self.loop, self.spans = loop, spans
        self.compute = [int(row[place]) for place in (2, 5, 8)]
        self.kinds = [KINDS.get(row[place]) for place in (3, 6, 9)]
        self.sizes = [int(row[place]) for place in (4, 7, 10)]
        self.update = int(row[11])
        self.under_way, self.awaited, self.blocking = [0] * 3, [False] * 3, [False] * 3

    def issue(self, which, *, urgent=False, blocking=False):
        self.blocking[which] = blocking
        system, clock = self.loop.system, self.loop.system.clock
        before = system.injected

        def over():
            clock.at(clock.now + self.update, after)

        def after():
            wakes = self.blocking[which] or self.awaited[which]
            self.awaited[which] = False
            self.under_way[which] -= 1
            if wakes:
                self.loop.call()
            system.finish(chunks)

        kind = self.kinds[which]
        args = self.sizes[which], self.spans[which], urgent, over
        if kind is not None and system.collective(kind, *args):
            chunks = system.injected - before
            self.under_way[which] += 1
        elif blocking:
            self.loop.call()

    def awaits(self, which):
        if self.under_way[which]:
            self.awaited[which] = True
        return self.under_way[which] > 0


class Loop:
    """`Workload.cc`: a state and a layer; each call goes on from there."""

    def __init__(self, system, name, layers, passes, *, checks=(), initiates=(), bottom=0):
        self.system, self.name, self.passes = system, name, passes
        self.checks, self.initiates, self.bottom = checks, initiates, bottom
        self.layers = [Layer(self, row, spans) for row, spans in layers]
        self.state, self.at, self.done = "forward", 0, 0
        self.computed = self.issued = self.again = self.listens = False
        self.total = None
        self.dlrm = name.startswith("HYBRID_DLRM")
        self.transformer = name.startswith("HYBRID_TRANSFORMER")

    def later(self, ns=1):
        self.system.clock.at(self.system.clock.now + ns, self.call)

    def go(self, state, at=None):
        self.state, self.computed, self.issued = state, False, False
        self.at = self.at if at is None else at
        self.later()

    def computes(self, which):
        if not self.computed:
            self.computed = True
            if self.layers[self.at].compute[which]:
                self.later(self.layers[self.at].compute[which])
                return True
        return False

    def call(self):
        if self.done == self.passes:
            system = self.system
            if system.finished == system.injected:
                self.total = self.total or system.clock.now
            elif not self.listens:
                self.listens = True
                system.listeners.append(self.call)
            return
        getattr(self, self.state)()

    def forward(self):
        layer, last = self.layers[self.at], self.at + 1 == len(self.layers)
        if layer.awaits(WEIGHT) or self.computes(FORWARD):
            return
        if self.dlrm:
            if layer.kinds[FORWARD] == "A2A" and not self.issued:
                layer.issue(FORWARD, urgent=True)
            elif self.at == self.bottom and self.layers[0].awaits(FORWARD):
                return
        elif self.name != "DATA" and not self.issued:
            self.issued = True
            layer.issue(FORWARD, blocking=True)
            return
        if self.state == "recompute":
            self.go("input" if self.at + 1 in self.initiates else "recompute", self.at + 1)
        elif last and self.name == "DISTRIBUTED_INFERENCE":
            self.done += 1
            self.go("forward", 0)
        elif last:
            self.go("weight" if self.dlrm or self.name == "DATA" else "input")
        else:
            self.go("forward", self.at + 1)

    recompute = forward

    def weight(self):
        layer = self.layers[self.at]
        first = self.dlrm or self.name == "DATA"
        if self.computes(WEIGHT):
            return
        if not self.issued and self.name != "MODEL":
            self.issued = True
            layer.issue(WEIGHT)
        if self.name not in ("DATA", "HYBRID_DLRM_ENHANCED") and layer.awaits(INPUT):
            return
        if self.at == 0:
            self.done += 1
            self.go("forward")
        else:
            self.go("input", self.at if first else self.at - 1)

    def input(self):
        layer = self.layers[self.at]
        if self.at in self.initiates and not self.again:
            self.again = True
            self.go("recompute", max(one for one in self.checks if one <= self.at))
            return
        if self.computes(INPUT):
            return
        if self.transformer and not self.issued:
            self.issued = True
            layer.issue(INPUT, blocking=True)
            return
        if self.dlrm and self.at == self.bottom + 1:
            self.layers[0].issue(INPUT, urgent=True)
        elif not (self.dlrm or self.transformer or self.name == "DATA" or self.at == 0):
            layer.issue(INPUT)
        self.again = False
        self.go("weight", self.at - 1 if self.dlrm or self.name == "DATA" else self.at)


def replica(network, keys, name, layers, passes, *, cut=None, **options):
    """How long it takes, us; `cut` is a dimension and how many NPUs its inner part has."""
    dimensions = []
    for i, kind in enumerate(network["topologies-per-dim"]):
        size, links = network["units-count"][i], network["links-count"][i]
        hops = 2 if kind == "Switch" else 1
        share = links // max(1, size - 1) if kind == "FullyConnected" else links
        rate = network["link-bandwidth"][i] * 2**30 * share
        latency = network["link-latency"][i] * hops
        total = network["link-bandwidth"][i] * links
        dimensions.append(
            {"kind": kind, "size": size, "rate": rate, "total": total, "latency": latency}
        )
    if cut is not None:
        place, inner = cut
        whole = dimensions[place]
        parts = [whole | {"size": inner}, whole | {"size": whole["size"] // inner}]
        dimensions[place : place + 1] = parts
        names = {key: keys[key].split("_") for key in KEYS.values()}
        twice = {key: "_".join(one[: place + 1] + one[place:]) for key, one in names.items()}
        keys = keys | twice
    system = System(Clock(), dimensions, keys)
    loop = Loop(system, name, layers, passes, **options)
    loop.call()
    system.clock.run()
    return loop.total / 1e3


def drawn(seed):
    """A network, a system, a loop."""
    draw = random.Random(seed)
    count = draw.randint(1, 3)
    kinds = [draw.choice(["Ring", "FullyConnected", "Switch"]) for _ in range(count)]
    sizes = [draw.choice([2, 4, 8]) for _ in kinds]
    network = {
        "topology-name": "Hierarchical",
        "dimensions-count": count,
        "topologies-per-dim": kinds,
        "units-count": sizes,
        "links-count": [
            {"Ring": 2, "Switch": 1}.get(kind, size - 1)
            for kind, size in zip(kinds, sizes, strict=True)
        ],
        "link-latency": [draw.choice([20, 500, 700]) for _ in kinds],
        "link-bandwidth": [draw.choice([25, 50, 100]) for _ in kinds],
    }
    best = {"Ring": "ring", "FullyConnected": "direct", "Switch": "halvingDoubling"}
    natural = "_".join(best[kind] for kind in kinds)
    policy = draw.choice(["baseline", "baseline", "onlineGreedy", "themis"])
    keys = {
        "scheduling-policy": draw.choice(["LIFO", "FIFO"]),
        "endpoint-delay": str(draw.choice([1, 10, 70])),
        "active-chunks-per-dimension": str(draw.choice([1, 1, 2, 3])),
        "preferred-dataset-splits": str(draw.choice([1, 2, 4, 16])),
        "boost-mode": "1",
        **{KEYS[kind]: natural for kind in ("AR", "RS", "AG")},
        KEYS["A2A"]: "_".join(["direct"] * count),
        "collective-optimization": draw.choice(["localBWAware", "baseline"]),
        "intra-dimension-scheduling": draw.choice(["FIFO", "SCF"]),
        "inter-dimension-scheduling": policy,
    }
    if policy == "themis":
        keys["collective-optimization"] = "localBWAware"
    loops = (*SPANS, "HYBRID_CUSTOMIZED", "HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD")
    name = draw.choice(loops)
    depth, options, line = draw.randint(2, 6), {}, name
    boundary = draw.randint(1, count)
    if name.startswith("HYBRID_TRANSFORMER"):
        group = 1
        for size in sizes[:boundary]:
            group *= size
        if kinds[boundary - 1] == "Switch" and sizes[boundary - 1] > 2 and draw.random() < 0.5:
            options["cut"] = boundary - 1, 2
            group = group // sizes[boundary - 1] * 2
        line += f" model_parallel_NPU_group: {group}"
    if name.endswith("BCKWD"):
        options |= {"checks": [0], "initiates": [draw.randint(1, depth - 1)]}
        line += f" checkpoints: 1 0 checkpoint_initiates: 1 {options['initiates'][0]}"
    if name.startswith("HYBRID_DLRM"):
        options = {"bottom": draw.randint(0, depth - 1)}
        line += f" {options['bottom']}"
    layers = []
    for i in range(depth):
        row = [f"layer{i}", "-1"]
        for _ in range(3):
            # Of a size that every draw of splits and sizes divides.
            size = draw.randint(1, 64) * 16 * 512
            kind = draw.choice(["NONE", "ALLREDUCE", *KINDS])
            row += [str(draw.randint(0, 40_000)), kind, str(0 if kind == "NONE" else size)]
        row.append(str(draw.randint(1, 3000)))
        if name == "HYBRID_CUSTOMIZED":
            own = draw.choice(["DATA", "MODEL", "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA"])
            row.append(own)
            spans = SPANS[own]
        elif name.startswith("HYBRID_TRANSFORMER"):
            model = [d < boundary for d in range(9)]
            spans = (model, model, [not one for one in model])
        else:
            spans = (ALL, ALL, ALL) if name.startswith("HYBRID_DLRM") and i == 0 else SPANS[name]
        layers.append((row, spans))
    return network, keys, name, layers, draw.randint(1, 3), options, line


def ours(folder, network, keys, layers, passes, line):
    """The same, from files."""
    (folder / "network.json").write_text(json.dumps(network))
    (folder / "system.txt").write_text("".join(f"{key}: {value}\n" for key, value in keys.items()))
    rows = "".join(" ".join(row) + "\n" for row, _ in layers)
    (folder / "workload.txt").write_text(f"{line}\n{len(layers)}\n{rows}")
    case = read_case(
        folder / "network.json",
        system=folder / "system.txt",
        workload=folder / "workload.txt",
        num_passes=passes,
    )
    result = allrail.simulate(case.scenario).to_dict()
    return float(columns(case, result=result)["TotalTime(us)"])


@pytest.mark.parametrize("seed", range(200))
def test_loops_take_as_long_as_the_replica_says(tmp_path, seed):
    network, keys, name, layers, passes, options, line = drawn(seed)
    expected = replica(network, keys, name, layers, passes, **options)
    got = ours(tmp_path, network, keys, layers, passes, line)
    # Each step of a loop takes a nanosecond there, and none here.
    assert got == pytest.approx(expected, rel=0, abs=5e-3 * len(layers) * passes), (line, keys)
