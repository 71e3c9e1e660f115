"""MSCCL's programs (XML) as the collectives of a trace: run, and proved chunk by chunk."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

import allrail
from allrail.base.errors import InputError
from allrail.formats.astra_sim import read_case

_spec = importlib.util.spec_from_file_location(
    "astra_customs", Path(__file__).with_name("test_astra_customs.py")
)
chakra = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(chakra)
"""Writes Chakra's traces."""

KINDS = {"all_reduce": (0, "allreduce"), "all_gather": (2, "allgather")}
SIZE = 4 << 20


def step(number, kind, source, target, *, count=1, after=(-1, -1)) -> str:
    """A step: from a chunk of a buffer to one of another."""
    return (
        f'<step s="{number}" type="{kind}" srcbuf="{source[0]}" srcoff="{source[1]}" '
        f'dstbuf="{target[0]}" dstoff="{target[1]}" cnt="{count}" '
        f'depid="{after[0]}" deps="{after[1]}" hasdep="0"/>'
    )


def block(number, steps, *, send=-1, receive=-1, channel=0) -> str:
    """A block of threads."""
    lines = "\n".join(steps)
    return f'<tb id="{number}" send="{send}" recv="{receive}" chan="{channel}">\n{lines}\n</tb>'


def program(coll, chunks, gpus, *, in_place=1, more="") -> str:
    """A program; `gpus` are lists of blocks."""
    inner = "\n".join(
        f'<gpu id="{rank}" i_chunks="{chunks}" o_chunks="{chunks}" s_chunks="{chunks}">\n'
        + "\n".join(blocks)
        + "\n</gpu>"
        for rank, blocks in enumerate(gpus)
    )
    return (
        f'<algo name="own" proto="Simple" nchannels="1" nchunksperloop="{chunks}" '
        f'ngpus="{len(gpus)}" coll="{coll}" inplace="{in_place}"{more}>\n{inner}\n</algo>\n'
    )


def ring(ranks: int) -> str:
    """An all-reduce in a ring: a block sends, adds, passes on; the last sum is copied round."""
    gpus = []
    for rank in range(ranks):
        chunk = lambda k, rank=rank: ("i", (rank - k) % ranks)  # noqa: E731
        kinds = ["s", *["rrs"] * (ranks - 2), "rrcs", *["rcs"] * (ranks - 2), "r"]
        steps = [step(k, kind, chunk(k), chunk(k)) for k, kind in enumerate(kinds)]
        gpus.append([block(0, steps, send=(rank + 1) % ranks, receive=(rank - 1) % ranks)])
    return program("allreduce", ranks, gpus)


def pairs(ranks: int) -> str:
    """An all-reduce that sends everything to everyone, through the scratch buffer."""
    gpus = []
    for rank in range(ranks):
        others = [peer for peer in range(ranks) if peer != rank]
        blocks = []
        for place, peer in enumerate(others):
            into = ("s", place * ranks)
            steps = [
                step(0, "s", ("i", 0), ("s", 0), count=ranks),
                step(1, "r", ("i", 0), into, count=ranks),
            ]
            blocks.append(block(place, steps, send=peer, receive=peer))
        waits = [
            step(k, "nop", ("i", 0), ("i", 0), count=0, after=(k, 1)) for k in range(ranks - 1)
        ]
        sums = [
            step(ranks - 1 + k, "re", ("s", k * ranks), ("i", 0), count=ranks)
            for k in range(ranks - 1)
        ]
        blocks.append(block(ranks, waits + sums))
        gpus.append(blocks)
    return program("allreduce", ranks, gpus)


def gather(ranks: int) -> str:
    """An all-gather out of place: a block copies, others send and receive."""
    gpus = []
    for rank in range(ranks):
        blocks = [block(0, [step(0, "cpy", ("i", 0), ("o", rank))])]
        others = [peer for peer in range(ranks) if peer != rank]
        for number, peer in enumerate(others, 1):
            steps = [
                step(0, "s", ("i", 0), ("o", rank)),
                step(1, "r", ("i", 0), ("o", peer)),
            ]
            blocks.append(block(number, steps, send=peer, receive=peer))
        gpus.append(blocks)
    return program("allgather", ranks, gpus, in_place=0)


@pytest.fixture
def run(tmp_path):
    """Runs one collective of a trace as a program; returns µs."""

    def run(text, *, ranks=4, kind="all_reduce", network_model="dims", under=None, named="own.xml"):
        (tmp_path / "own.xml").write_text(text)
        number, _ = KINDS[kind]
        # The bytes that a rank brings.
        size = SIZE // ranks if kind == "all_gather" else SIZE
        for rank in range(ranks):
            options = {"comm_type": number, "comm_size": size}
            chakra.write(tmp_path / f"w.{rank}.et", [chakra.node(3, chakra.COLLECTIVE, **options)])
        dimension = {"kind": "switch", "size": ranks, "bandwidth": "100 GB/s", "latency": "1 us"}
        trace = {
            "path": str(tmp_path / "w"),
            "collectives": {under or kind: str(tmp_path / named)},
        }
        scenario = {
            "schema_version": 1,
            "fabric": {"dimensions": [dimension]},
            "network_model": network_model,
            "workload": {"model": {"trace": trace}, "iterations": 1},
        }
        return allrail.simulate(scenario).step_time_us

    return run


@pytest.mark.parametrize("network_model", ["dims", "links"])
@pytest.mark.parametrize("ranks", [2, 4, 5])
def test_a_ring_takes_what_a_ring_takes(run, ranks, network_model):
    steps = 2 * (ranks - 1)
    # On the switch's two links of `links` a message is sent twice.
    times = 2 if network_model == "links" else 1
    expected = steps * (times * -(-SIZE // ranks) / 100e3 + 1)
    assert run(ring(ranks), ranks=ranks, network_model=network_model) == pytest.approx(
        expected, rel=1e-6
    )


def test_all_pairs_send_every_buffer_to_everyone(run):
    assert run(pairs(4)) == pytest.approx(3 * SIZE / 100e3 + 1, rel=1e-6)


def test_an_all_gather_out_of_place(run):
    expected = 3 * SIZE / 4 / 100e3 + 1
    assert run(gather(4), kind="all_gather") == pytest.approx(expected, rel=1e-6)


def without(text: str, line: str) -> str:
    """The program without the first line that matches."""
    assert re.search(line, text)
    return re.sub(line, "", text, count=1)


def swap(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


RING, PAIRS, GATHER = ring(4), pairs(4), gather(4)
SECOND = 'type="re" srcbuf="s" srcoff="4"'
"""The second sum of GPU 0."""
LAST = 'type="r" srcbuf="i" srcoff="2"'
"""The step in which GPU 0 gets its last chunk."""

# A program that is wrong, what else differs, and parts of what is told.
WRONG = [
    (RING[:200], {}, ["it is no XML"]),
    ("<plan/>", {}, ["`plan`, not `algo`"]),
    (swap(RING, ' coll="allreduce"', ""), {}, ["line 1, `algo`", "no `coll`"]),
    (swap(RING, "allreduce", "alltonone"), {}, ["`coll` is `alltonone`", "allgather"]),
    (swap(RING, 'ngpus="4"', 'ngpus="5"'), {}, ["there is no GPU 4"]),
    (swap(RING, "</algo>", '<gpu id="0"/></algo>'), {}, ["two GPUs 0"]),
    (swap(RING, 'nchunksperloop="4"', 'nchunksperloop="0"'), {}, ["0 chunks"]),
    (swap(GATHER, 'nchunksperloop="4"', 'nchunksperloop="5"'), {"kind": "all_gather"}, ["5"]),
    (swap(RING, 'send="1"', 'send="4"'), {}, ["line 3, `tb`", "GPU 0 of 4 has no such peer"]),
    (swap(RING, 'chan="0"', 'chan="x"'), {}, ["`chan` is `x`"]),
    (swap(RING, 'type="rrs"', 'type="rrx"'), {}, ["line 5, `step`", "`rrx`", "rcs"]),
    (swap(RING, ' cnt="1"', ""), {}, ["line 4, `step`", "no `cnt`"]),
    (swap(RING, 'cnt="1"', 'cnt="0"'), {}, ["`cnt` is 0"]),
    (swap(RING, ' s="1"', ' s="2"'), {}, ["in the place of step 1"]),
    (swap(RING, 'srcbuf="i"', 'srcbuf="q"'), {}, ["`srcbuf` is `q`"]),
    (swap(PAIRS, 'depid="0" deps="1"', 'depid="9" deps="1"'), {}, ["step 1 of block 9"]),
    (swap(RING, 'send="1" recv="3"', 'send="-1" recv="3"'), {}, ["`s` in block 0", "`send` is -1"]),
    (swap(RING, 'nchunksperloop="4"', 'nchunksperloop="1048576"'), {}, ["too many to prove"]),
    (swap(RING, "</gpu>", "".join(block(k, []) for k in range(1, 5000)) + "</gpu>"), {}, ["4096"]),
    # Of another number of ranks, another operation, another size; a file that is not there.
    (RING, {"ranks": 8}, ["for 4 ranks, and 8 run it"]),
    (GATHER, {}, ["does `all_gather`", "`all_reduce`"]),
    (swap(RING, "inplace", 'maxBytes="1048576" inplace'), {}, ["to 1 MiB", "4 MiB"]),
    (RING, {"named": "none.xml"}, ["no such file"]),
    # What the proof finds: it names the step.
    (without(RING, "<step.*" + LAST + ".*/>"), {}, ["nobody receives", "step 5 (`rcs`)", "GPU 3"]),
    (swap(RING, 'type="rrs"', 'type="rcs"'), {}, ["GPU", "of ranks", "`all_reduce` needs chunk"]),
    (swap(RING, 'send="1" recv="3"', 'send="1" recv="2"'), {}, ["no block that"]),
    (
        swap(RING, f'{LAST} dstbuf="i"', f'{LAST} dstbuf="s"'),
        {},
        ["GPU 0", "chunk 2 of its output ends as chunk 2 of rank 0"],
    ),
    (
        swap(GATHER, '<step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0"',
             '<step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0"'),
        {"kind": "all_gather"},
        ["GPU 0", "chunk 0 of its output ends as nothing", "chunk 0 of rank 0"],
    ),
    (swap(GATHER, 'type="s" srcbuf="i"', 'type="s" srcbuf="s"'), {"kind": "all_gather"},
     ["chunk 0 of the scratch buffer, which holds nothing"]),
    (swap(PAIRS, SECOND, SECOND.replace('4', '0')), {},
     ["counts a rank twice", "`re`"]),
    (swap(PAIRS, SECOND, SECOND.replace('4', '5')), {},
     ["adds chunk 1 to chunk 0"]),
    (re.sub(r'depid="2" deps="1"', 'depid="-1" deps="-1"', PAIRS, count=1), {}, ["GPU 0", "step"]),
    (swap(PAIRS, 'cnt="4"', 'cnt="3"'), {}, ["receives 4 chunks", "sends 3"]),
    (swap(PAIRS, 'tb id="1" send="2" recv="2"', 'tb id="1" send="1" recv="2"'), {}, ["two blocks"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "options", "told"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_named(run, text, options, told):
    with pytest.raises(InputError) as caught:
        run(text, **{"under": options.get("kind"), **options})
    for part in told:
        assert part in str(caught.value)


def test_a_deadlock_names_its_circle(run):
    # Two blocks of each GPU, each of which waits for the other's step.
    blocks = [
        block(0, [step(0, "cpy", ("i", 0), ("s", 0), after=(1, 0))]),
        block(1, [step(0, "cpy", ("i", 1), ("s", 1), after=(0, 0))]),
    ]
    with pytest.raises(InputError) as caught:
        run(program("allreduce", 2, [blocks, blocks]), ranks=2)
    told = str(caught.value)
    assert "a deadlock" in told
    assert "block 0 of GPU 0" in told
    assert "block 1 of GPU 0" in told


def test_a_race_names_both_steps(run):
    # One block copies to the output, another sends from there, and waits for nobody.
    text = swap(GATHER, 'type="s" srcbuf="i"', 'type="s" srcbuf="o"')
    with pytest.raises(InputError) as caught:
        run(text, kind="all_gather")
    assert "neither waits for the other" in str(caught.value)
    assert str(caught.value).count("GPU") == 2


def test_astra_sim_s_key_takes_one(tmp_path):
    (tmp_path / "own.xml").write_text(RING)
    (tmp_path / "network.yml").write_text(
        "topology: [ Switch ]\nnpus_count: [ 4 ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n"
    )
    keys = {"endpoint-delay": 0, "preferred-dataset-splits": 1}
    keys["all-reduce-implementation-custom"] = ["own.xml"]
    (tmp_path / "system.json").write_text(json.dumps(keys))
    for rank in range(4):
        options = {"comm_type": 0, "comm_size": SIZE}
        chakra.write(tmp_path / f"w.{rank}.et", [chakra.node(3, chakra.COLLECTIVE, **options)])
    files = {"system": tmp_path / "system.json", "workload": tmp_path / "w"}
    case = read_case(tmp_path / "network.yml", **files, network_model="dims")
    # Six steps of a quarter at 50 GiB/s, over the switch's two links of 500 ns.
    expected = 6 * (SIZE / 4 / (50 * 2**30) * 1e6 + 1)
    step = allrail.simulate(case.scenario).step_time_us
    assert step == pytest.approx(expected, rel=0.01)
