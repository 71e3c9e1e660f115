"""Gradients of embedding tables as rows: bytes by hand, memory, the choice, what is refused.

A table of 1,000 rows of 64 numbers, and a layer of 64 · 32 weights and 32 biases, in fp32 on four
NPUs. A rank touches 40 rows, of 8 + 64 · 4 = 264 bytes each. Of an all-gather of s bytes in all an
NPU sends 3/4 s, of an all-reduce 2 · 3/4 s, to servers it pushes what it has.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allrail
from allrail.base.errors import InputError
from allrail.targets import apply_to

ROWS, WIDTH = 1000, 64
TABLE = 4 * ROWS * WIDTH
REST = 4 * (WIDTH * 32 + 32)
SERVERS = {"policy": "fifo", "exchange": "parameter_server", "servers": {"colocated": False}}
LAYERS = [
    {"name": "words", "embedding": {"rows": ROWS, "width": WIDTH, "lookups": 10}},
    {"name": "out", "dense": {"inputs": WIDTH, "outputs": 32}},
]


def scenario(*sparse, tensor=None, sizes=(4,), network_model="dims", **workload):
    dimension = {"kind": "switch", "bandwidth": "100 MB/s", "latency": "1 us"}
    return {
        "schema_version": 1,
        "fabric": {"name": "f", "dimensions": [{**dimension, "size": size} for size in sizes]},
        "workload": {
            "model": {"layers": LAYERS},
            "batch_per_replica": 8,
            "precision": "fp32",
            "optimizer": "none",
            "compute": {"device": "v100"},
            "sparse": list(sparse),
            **workload,
        },
        "schedule": {"chunks": 1, **({"tensor": tensor} if tensor else {})},
        "network_model": network_model,
    }


def words(**keys):
    return {"table": "words", "exchange": "rows", **keys}


def simulated(*sparse, **keys):
    return allrail.simulate(scenario(*sparse, **keys))


def sent(*sparse, **keys):
    return simulated(*sparse, **keys).to_dict()["dimensions"][0]["bytes_per_npu"]


def test_rows_of_all_ranks_are_gathered():
    assert sent() == 3 / 2 * (TABLE + REST)
    assert sent(words(rows=40)) == 3 / 4 * 4 * 40 * 264 + 3 / 2 * REST
    assert sent(words(fraction=0.04)) == sent(words(rows=40))
    # Ten rows are looked up for each of eight samples, none of them twice.
    assert sent(words()) == 3 / 4 * 4 * 80 * 264 + 3 / 2 * REST
    assert sent(words(rows=40, index="4 B")) == 3 / 4 * 4 * 40 * 260 + 3 / 2 * REST
    assert sent(words(rows=40), gradient_precision="fp16") == (
        3 / 4 * 4 * 40 * (8 + 64 * 2) + 3 / 2 * REST / 2
    )
    assert sent(words(exchange="dense")) == sent()
    [note] = [note for note in simulated(words(rows=40)).notes if "rows" in note]
    assert note == "the gradient of `words` travels as rows: a rank touches 40 of 1000"


def test_rows_are_pushed_to_servers_and_pulled():
    assert sent(tensor=SERVERS) == TABLE + REST
    assert sent(words(rows=40), tensor=SERVERS) == 40 * 264 + REST


def test_a_machine_pushes_what_its_npus_have_touched_together():
    """Of 40 rows of each of two NPUs half are the same: 60 rows."""
    for overlap, union in ((0, 80), (0.5, 60), (1, 40)):
        result = simulated(words(rows=40, overlap=overlap), tensor=SERVERS, sizes=(2, 4))
        (_, between) = result.to_dict()["dimensions"]
        # Each of its two NPUs has a half of the machine's link.
        assert between["bytes_per_npu"] == (union * 264 + REST) / 2


@pytest.mark.parametrize("policy", ["fifo", "priority", "bytescheduler"])
def test_all_rows_without_places_are_a_dense_gradient_to_servers(policy):
    tensor = {**SERVERS, "policy": policy}
    dense = simulated(tensor=tensor).to_dict()
    rows = simulated(words(fraction=1, index="0 B"), tensor=tensor).to_dict()
    for key in ("step_time_us", "steps_us", "dimensions", "exposed_us"):
        assert rows[key] == dense[key], key


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, ROWS), min_size=2, max_size=2).map(sorted),
    st.sampled_from((None, SERVERS)),
    st.sampled_from(("dims", "links")),
    st.floats(0, 1),
)
def test_fewer_rows_never_take_more_time(counts, tensor, network_model, overlap):
    network_model = "dims" if tensor else network_model
    few, many = (
        simulated(
            words(rows=count, overlap=overlap), tensor=tensor, network_model=network_model
        ).step_time_us
        for count in counts
    )
    assert few <= many * (1 + 1e-9)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, ROWS), st.sampled_from((None, SERVERS)), st.sampled_from(((4,), (2, 4))))
def test_auto_takes_what_is_shorter(rows, tensor, sizes):
    dense, as_rows, auto = (
        simulated(words(rows=rows, exchange=exchange), tensor=tensor, sizes=sizes)
        for exchange in ("dense", "rows", "auto")
    )
    assert auto.step_time_us == min(dense.step_time_us, as_rows.step_time_us)
    chosen = "rows" if as_rows.step_time_us < dense.step_time_us else "dense"
    assert any(f"`auto` chose `{chosen}` for `words`" in note for note in auto.notes)


def test_auto_finds_where_rows_no_longer_pay():
    """Rows of all ranks cost half of what a sum of as many bytes costs: 2 · 256,000 / (4 · 264)."""
    assert sent(words(rows=480, exchange="auto")) == sent(words(rows=480))
    assert sent(words(rows=490, exchange="auto")) == sent()


def test_an_update_changes_the_rows_of_a_step():
    def update(**keys):
        return simulated(words(rows=40, **keys), optimizer="adam").passes["update"].compute_us

    # 160 rows of four ranks, or 40 that are the same: as many numbers are read and written.
    dense = simulated(optimizer="adam").passes["update"].compute_us
    assert update(overlap=1) < update() < dense
    assert update(exchange="dense") == dense


def test_memory_has_the_rows_of_all_ranks():
    def gradients(*sparse, **keys):
        return simulated(*sparse, **keys).to_dict()["memory"]["gradients"]

    assert gradients() == TABLE + REST
    assert gradients(words(rows=40)) == 4 * 40 * 264 + REST
    assert gradients(words(rows=40), tensor=SERVERS) == 2 * 40 * 264 + REST


def test_a_transformer_s_words_are_a_table():
    model = {
        "transformer": {
            "layers": 2,
            "hidden": 64,
            "heads": 4,
            "vocabulary": 5000,
            "sequence_length": 16,
            "tied": False,
        }
    }
    dense, rows = (
        sent(*sparse, model=model) for sparse in ((), ({"table": "embedding", "exchange": "rows"},))
    )
    # 16 tokens of 8 samples, of 4 ranks.
    assert dense - rows == 3 / 2 * 4 * 5000 * 64 - 3 / 4 * 4 * 128 * (8 + 64 * 4)


BAD = [
    ([words(table="word")], {}, "sparse[0].table", "no such layer", "`words`"),
    ([words(table="out")], {}, "sparse[0].table", "no embedding table", "`words`"),
    ([words(), words()], {}, "sparse[1].table", "listed twice", "once"),
    ([words(rows=40, fraction=0.1)], {}, "sparse[0].rows", "`fraction` says the same", "leave"),
    ([words(rows=1001)], {}, "sparse[0].rows", "has 1000 rows", "1 to 1000"),
    ([words(fraction=1.5)], {}, "sparse[0].fraction", "part of a table", "0.02"),
    ([words(overlap=1.01)], {}, "sparse[0].overlap", "from 0 to 1", "0.3"),
    ([words(index="65 B")], {}, "sparse[0].index", "64 bytes", "8 B"),
    ([words()], {"parallelism": {"zero": 1}}, "sparse[0].table", "ZeRO", "leave `sparse` out"),
    ([words()], {"every": 2, "iterations": 5}, "sparse[0].table", "train apart", "leave"),
    ([words()], {"compression": {"kind": "fp16"}}, "sparse[0].table", "compressed", "leave"),
]


@pytest.mark.parametrize(("sparse", "keys", "field", "why", "hint"), BAD)
def test_what_does_not_go_with_rows_is_refused(sparse, keys, field, why, hint):
    with pytest.raises(InputError) as raised:
        allrail.simulate(scenario(*sparse, **keys))
    assert raised.value.field == f"workload.{field}"
    assert why in raised.value.why
    assert hint in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("key", "value"),
    [("rows", 0), ("fraction", 0), ("overlap", -0.1), ("exchange", "sparse"), ("index", "-1 B")],
)
def test_counts_of_rows_have_ranges(key, value):
    with pytest.raises(InputError) as raised:
        allrail.simulate(scenario(words(**{key: value})))
    assert raised.value.field == f"workload.sparse[0].{key}"


def test_tied_words_have_a_dense_gradient():
    model = {
        "transformer": {
            "layers": 2,
            "hidden": 64,
            "heads": 4,
            "vocabulary": 500,
            "sequence_length": 16,
            "tied": True,
        }
    }
    with pytest.raises(InputError) as raised:
        allrail.simulate(scenario({"table": "embedding"}, model=model))
    assert "the head reads the same table" in raised.value.why


def test_apply_says_it_in_the_job_file_or_refuses(tmp_path):
    apply_to(scenario(words(rows=40)), tmp_path / "rows", targets=["allrail"])
    text = (tmp_path / "rows" / "allrail.yaml").read_text()
    assert "# Gradients of words travel as rows" in text
    assert 'schedule(..., sparse="gather")' in text
    apply_to(scenario(words(exchange="dense")), tmp_path / "dense", targets=["allrail", "ddp"])
    assert "rows" not in (tmp_path / "dense" / "allrail.yaml").read_text()
    cut = {"policy": "bytescheduler", "partition": "64 KiB"}
    for sparse, tool, tensor, why in (
        (words(exchange="auto"), "allrail", None, "is left open (`exchange: auto`)"),
        (words(), "ddp", None, "DDP has no `sparse: [{table: words, ...}]`"),
        (words(), "allrail", {**cut, "exchange": "parameter_server"}, "gathers the rows"),
    ):
        with pytest.raises(InputError) as raised:
            apply_to(scenario(sparse, tensor=tensor), tmp_path / "none", targets=[tool])
        assert why in str(raised.value)
        assert raised.value.hint
