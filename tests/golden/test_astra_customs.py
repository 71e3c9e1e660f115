"""ASTRA-sim 2.x's custom collectives: traces of sends, receives and reductions, run and proved."""

from __future__ import annotations

import json

import pytest

import allrail
from allrail.base.errors import InputError
from allrail.formats.astra_sim import read_case

SEND, RECEIVE, COMPUTE, COLLECTIVE = 5, 6, 4, 7
SIZE = 2**20
LATENCY, BANDWIDTH = 500, 50 * 2**30 / 1e9
"""Of the ring, in ns and bytes per ns."""


def number(value: int) -> bytes:
    """A varint."""
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def text(tag: int, content: bytes) -> bytes:
    """A field with a length."""
    return number(tag << 3 | 2) + number(len(content)) + content


def node(at: int, kind: int, *, after=(), us=0, **attributes: int) -> bytes:
    """A node of a Chakra trace."""
    found = number(1 << 3) + number(at) + text(2, f"n{at}".encode())
    found += number(3 << 3) + number(kind)
    found += text(5, b"".join(map(number, after))) + number(7 << 3) + number(us)
    for name, value in attributes.items():
        # An int64 is field 9 of an attribute.
        found += text(10, text(1, name.encode()) + number(9 << 3) + number(value))
    return found


def write(path, nodes) -> None:
    """A trace's file: metadata, then nodes."""
    messages = [text(1, b"0.0.4"), *nodes]
    path.write_bytes(b"".join(number(len(one)) + one for one in messages))


def ring(rank: int, ranks: int, *, steps: int | None = None, size: int = SIZE):
    """A ring's all-reduce as (kind, options) in a chain: send, receive, reduce half of the time."""
    for step in range(2 * (ranks - 1) if steps is None else steps):
        each = {"comm_size": size // ranks, "comm_tag": 0}
        yield SEND, {"comm_dst": (rank + 1) % ranks, **each}
        yield RECEIVE, {"comm_src": (rank - 1) % ranks, **each}
        if step < ranks - 1:
            yield COMPUTE, {"us": 7}


def chain(steps) -> list[bytes]:
    """Nodes one after the other."""
    return [
        node(at, kind, after=[at - 1] if at else [], **options)
        for at, (kind, options) in enumerate(steps)
    ]


@pytest.fixture
def custom(tmp_path):
    """Writes a quartet of so many NPUs, and a ring of so many ranks as its collective."""

    def make(
        npus: int = 4,
        *,
        key="all-reduce-implementation-custom",
        kind=0,
        topology="Ring",
        **system,
    ):
        (tmp_path / "network.yml").write_text(
            f"topology: [ {topology} ]\nnpus_count: [ {npus} ]\n"
            "bandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n"
        )
        named = {key: ["own"]} if key else {}
        keys = {"endpoint-delay": 10, "preferred-dataset-splits": 1, **named, **system}
        (tmp_path / "system.json").write_text(json.dumps(keys))
        options = {"comm_type": kind, "comm_size": SIZE}
        for rank in range(npus):
            write(tmp_path / f"w.{rank}.et", [node(3, COLLECTIVE, **options)])
            write(tmp_path / f"own.{rank}.et", chain(ring(rank, npus)))

        def read(**options):
            files = {"system": tmp_path / "system.json", "workload": tmp_path / "w"}
            return read_case(tmp_path / "network.yml", **files, **options)

        return read

    return make


def total(case) -> float:
    """The step, in ns."""
    return sum(allrail.simulate(case.scenario).to_dict()["steps_us"]) * 1e3


def refused(read) -> str:
    with pytest.raises(InputError) as told:
        total(read())
    return str(told.value)


def expected(ranks: int) -> float:
    """A ring's steps: bytes and latency of each, and the reductions of the first half."""
    step = SIZE / ranks / BANDWIDTH + LATENCY
    return 2 * (ranks - 1) * step + (ranks - 1) * 7000


RUNS = [(2, "dims"), (4, "dims"), (4, "links"), (5, "links")]


@pytest.mark.parametrize(("npus", "network_model"), RUNS)
def test_its_messages_and_reductions_are_what_it_takes(custom, npus, network_model):
    # On a ring messages meet nobody, and those of a trace wait at no endpoint.
    assert total(custom(npus)(network_model=network_model)) == pytest.approx(
        expected(npus), rel=0.001
    )


def test_an_all_to_all_of_a_ring_sends_each_block_by_itself(custom):
    keys = {"preferred-dataset-splits": 4, "all-to-all-implementation": ["ring"]}
    case = custom(8, key=None, kind=6, **keys)(network_model="links")
    # ASTRA-sim 2.x's congestion-aware backend (518bd51) says 125,480 ns.
    assert total(case) == pytest.approx(125_480, rel=0.001)


# An all-reduce of 1 MiB over 8 NPUs on a switch, two chunks, 50 GB/s of memory: what ASTRA-sim 2.x
# (518bd51) says. In halving, a rank reduces what it sends on before it does; in a tree, what it
# passes down goes through its memory, too.
@pytest.mark.parametrize(
    ("name", "network_model", "expected"),
    [
        ("halvingDoubling", "dims", 69_898),
        ("halvingDoubling", "links", 104_070),
        ("doubleBinaryTree", "dims", 433_095),
        ("doubleBinaryTree", "links", 608_855),
    ],
)
def test_reductions_wait_for_memory(custom, name, network_model, expected):
    keys = {"preferred-dataset-splits": 2, "all-reduce-implementation": [name], "local-mem-bw": 50}
    case = custom(8, key=None, topology="Switch", **keys)(network_model=network_model)
    assert total(case) == pytest.approx(expected, rel=0.005)


def test_one_node_has_its_own(custom, tmp_path):
    read = custom(key=None, **{"per-node-custom-implementation": "nodes.yml"})
    (tmp_path / "nodes.yml").write_text("3: own\n")
    assert total(read()) == pytest.approx(expected(4), rel=0.001)
    (tmp_path / "nodes.yml").write_text("4: own\n")
    # Node 3 runs a usual algorithm then, without reductions that take 7 us.
    assert total(read()) < expected(4) - 20_000


def test_a_scenario_that_was_written_is_the_same(custom, tmp_path):
    case = custom()()
    (tmp_path / "s.json").write_text(json.dumps(case.scenario))
    again = allrail.load_scenario(tmp_path / "s.json")
    assert sum(allrail.simulate(again).to_dict()["steps_us"]) * 1e3 == total(case)


def rewritten(tmp_path, rank, change):
    """One rank's nodes, changed."""
    steps = list(ring(rank, 4))
    change(steps)
    write(tmp_path / f"own.{rank}.et", chain(steps))


def cut_short(folder, *, steps):
    """Writes rings of four ranks that end after so many steps."""
    for rank in range(4):
        write(folder / f"own.{rank}.et", chain(ring(rank, 4, steps=steps)))


class TestMistakes:
    def test_a_message_that_nobody_sends(self, custom, tmp_path):
        read = custom()
        rewritten(tmp_path, 1, lambda steps: steps.pop(3))
        told = refused(read)
        assert "own.2.et" in told
        assert "deadlock" in told
        assert "rank 2 awaits" in told

    def test_a_message_that_nobody_awaits(self, custom, tmp_path):
        read = custom()
        rewritten(tmp_path, 1, lambda steps: steps.pop(1))
        told = refused(read)
        assert "own.0.et" in told
        assert "does not await it" in told

    def test_two_ends_of_different_sizes(self, custom, tmp_path):
        read = custom()

        def shorter(steps):
            steps[3] = (SEND, {**steps[3][1], "comm_size": 100})

        rewritten(tmp_path, 1, shorter)
        told = refused(read)
        assert "100 B" in told
        assert "node 3 (`n3`)" in told

    def test_everybody_waits_first(self, custom, tmp_path):
        read = custom()
        for rank in range(4):
            rewritten(tmp_path, rank, lambda steps: steps.insert(0, steps.pop(1)))
        told = refused(read)
        assert "in a circle" in told
        assert "node 0 (`n0`) of rank 0" in told

    def test_a_rank_hears_too_little(self, custom, tmp_path):
        read = custom()
        cut_short(tmp_path, steps=2)
        told = refused(read)
        assert "rank 0 cannot have what rank 1 put in" in told

    def test_a_step_is_missing_everywhere(self, custom, tmp_path):
        read = custom()
        cut_short(tmp_path, steps=5)
        told = refused(read)
        assert f"takes {6 * SIZE} B in messages" in told
        assert f"these carry {5 * SIZE} B" in told

    def test_a_peer_outside_of_the_group(self, custom, tmp_path):
        read = custom()
        rewritten(
            tmp_path,
            3,
            lambda steps: steps.insert(0, (SEND, {"comm_dst": 7, "comm_size": 8, "comm_tag": 0})),
        )
        told = refused(read)
        assert "its comm_dst is 7" in told
        assert "own.3.et" in told

    def test_fewer_files_than_ranks(self, custom, tmp_path):
        read = custom()
        (tmp_path / "own.3.et").unlink()
        assert "it has the files of 3 ranks, and 4 run it" in refused(read)

    def test_a_dependency_that_does_not_exist(self, custom, tmp_path):
        read = custom()
        own = chain(ring(0, 4))
        own[-1] = node(99, COMPUTE, after=[77], us=1)
        write(tmp_path / "own.0.et", own)
        told = refused(read)
        assert "node 77" in told

    def test_a_truncated_file(self, custom, tmp_path):
        read = custom()
        whole = (tmp_path / "own.1.et").read_bytes()
        (tmp_path / "own.1.et").write_bytes(whole[:-3])
        assert "own.1.et" in refused(read)

    @pytest.mark.parametrize("named", [["own", "own"], "own", [7], []])
    def test_not_one_trace(self, custom, named):
        told = refused(custom(key=None, **{"all-reduce-implementation-custom": named}))
        assert "all-reduce-implementation-custom" in told

    def test_no_such_trace(self, custom):
        told = refused(custom(key=None, **{"all-reduce-implementation-custom": ["none"]}))
        assert "none.0.et" in told

    def test_per_node_without_a_file(self, custom):
        told = refused(custom(key=None, **{"per-node-custom-implementation": "none.yml"}))
        assert "per-node-custom-implementation" in told

    def test_per_node_of_no_number(self, custom, tmp_path):
        (tmp_path / "nodes.yml").write_text("first: own\n")
        told = refused(custom(key=None, **{"per-node-custom-implementation": "nodes.yml"}))
        assert "first" in told
