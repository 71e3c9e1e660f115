"""HammingMesh's numbers: what can be counted is right, the rest is put together and judged right.

Traffic is answered by a stand-in; `make reproduce` runs it. Every result is kept as it comes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from allrail import _core
from allrail.base.errors import InputError
from allrail.results.plans import cache_folder
from allrail.simulation.graphs import count
from allrail_reproduce import hammingmesh, kept
from allrail_reproduce.hammingmesh.cases import Scope, cases_of
from allrail_reproduce.hammingmesh.published import TABLE_TWO, half_digit
from allrail_reproduce.work import carry_out

PUBLISHED = {cluster.fabric: cluster for cluster in TABLE_TWO}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """What a stand-in answers must never be found by a real run."""
    monkeypatch.setenv("ALLRAIL_CACHE", str(tmp_path / "cache"))


class FakeCore:
    """Answers with the published shares, times a factor a network model.

    Attributes:
        asked: The scenarios that it was given, as JSON.
    """

    def __init__(self, **factors: float) -> None:
        self.asked: list[str] = []
        self._factors = factors

    def __call__(self, scenario: Mapping[str, Any], progress) -> dict[str, Any]:
        self.asked.append(json.dumps(scenario, sort_keys=True))
        progress(0, 1)
        if "place" in scenario:
            return self.place(scenario)
        fabric, traffic = scenario["fabric"], scenario["traffic"]
        if isinstance(fabric, dict):
            assert fabric["topology"] == "hammingmesh"
            fabric = f"hx{fabric['board'][0]}mesh-1k"
        cluster = PUBLISHED[fabric]
        npus = count(cluster.fabric)["npus"]
        network_model, pattern = scenario["network_model"], traffic["pattern"]
        factor = self._factors.get(network_model, 1.0)
        result: dict[str, Any] = {
            "pattern": pattern,
            "network_model": network_model,
            "npus": npus,
            "size_bytes": _core.parse_quantity("size", traffic["size"]),
            "time_us": 1.0,
            "share_of_injection": factor * cluster.all_to_all / 100,
            "injection_gbps": 6400.0,
            "paths": traffic.get("paths"),
            "built": {"buffer_bytes": 32_000_000 if network_model == "packets" else None},
            "host": {"wall_ms": 1.0},
        }
        if pattern == "all_to_all":
            wanted = traffic["phases"]
            result["phases"] = npus - 1
            result["phase_barrier"] = traffic.get("phase_barrier", network_model == "flows")
            result["phases_simulated"] = npus - 1 if wanted == "all" else wanted
        if pattern == "all_reduce":
            result["share_of_optimum"] = factor * cluster.all_reduce / 100
            result["steps"], result["steps_simulated"] = 2 * (npus - 1), 16
        if pattern == "permutation":
            each = [6400.0 * (i % 8 + 1) / 8 for i in range(npus)]
            result["npu_bandwidths_gbps"] = each
            names = ("min", "p1", "median", "p99", "max", "mean")
            values = (800.0, 800.0, 3200.0, 6400.0, 6400.0, 3600.0)
            result["npu_bandwidth_gbps"] = dict(zip(names, values, strict=True))
        if network_model == "packets":
            result["packets"], result["packet_hops"] = 1000, 4000
        return result

    def place(self, scenario: Mapping[str, Any]) -> dict[str, Any]:
        """Three mixes; the better, the more options there are."""
        options = set(scenario["place"]) & {"sort", "transpose", "aspect", "locality"}
        uses = [self._factors.get("place", 1.0) * (0.99 - 0.04 * (3 - min(3, len(options))))] * 3
        if scenario["place"].get("failed"):
            # From seed to seed.
            uses = [
                use - self._factors.get("jump", 0.0) * scenario["place"]["seed"] for use in uses
            ]
        upper = {"mean": 0.2}
        moved = None
        if scenario["place"].get("memory"):
            moved = {"jobs_placed": 1, "jobs_moved": 2, "bytes": 1, "time_ps": 500_000_000_000}
        return {
            "name": scenario["fabric"],
            "fabric": {"rows": 2, "columns": 2},
            "map": {
                "sizes": [2],
                "jobs": [{"job": 0, "rows": [0], "columns": [0, 1]}],
                "failed": [[1, 1]],
            },
            "utilisation": dict.fromkeys(("mean", "median", "p1", "p99"), uses[0]),
            "upper_level": {"all_to_all": upper, "rings": upper},
            "mixes": [
                {"utilisation": use, "placed": 1, "left_out": 0, "moved": moved} for use in uses
            ],
        }


SMALL = Scope(sizes=("small",), curves=False, jobs=False)


def rows(reproduction, word):
    return [row for row in reproduction.rows if word in row.case]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """It is made before `own_cache` holds, and results are kept in any case."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALLRAIL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield hammingmesh.run(simulate=FakeCore(flows=1.04, packets=0.99), cache=False)


def small(**factors):
    return hammingmesh.run(SMALL, simulate=FakeCore(**factors), cache=False)


def test_all_costs_are_right_to_the_printed_digits(whole):
    costs = rows(whole, ", cost")
    assert len(costs) == 16
    assert all(row.ok for row in costs)
    assert [half_digit(text) for text in ("25.3", "680")] == pytest.approx([0.05, 0.5])


def test_diameters_are_right_but_for_three_that_stay_out(whole):
    by_formula, by_search = rows(whole, "by formula"), rows(whole, "by search")
    assert [sum(row.ok is True for row in some) for some in (by_formula, by_search)] == [15, 14]
    wrong = {row.case: row for row in by_formula + by_search if not row.ok}
    assert {case: (row.ours, row.published.number) for case, row in wrong.items()} == {
        "small dragonfly, diameter by formula": (4, 3),
        "small dragonfly, diameter by search": (4, 3),
        "small Hx4Mesh, diameter by search": (6, 8),
    }
    assert all(row.why for row in wrong.values())


def test_half_plane_cuts_are_one_over_twice_the_boards_side(whole):
    cuts = rows(whole, "half-plane")
    assert [row.ours for row in cuts] == [25, 12.5, 25, 12.5]
    assert all(row.ok for row in cuts)


def test_27_of_32_savings_follow_from_the_published_shares(whole):
    (row,) = rows(whole, "savings that follow")
    assert (row.ours, row.published) == (27, None)


def test_savings_are_relative_to_the_nonblocking_fat_tree(whole):
    savings = {row.case: row for row in rows(whole, " saving")}
    assert len(savings) == 32
    assert savings["small fat tree, all-to-all saving"].ours == pytest.approx(1)
    hx2 = savings["small Hx2Mesh, all-to-all saving"]
    assert hx2.ours == pytest.approx(25.30304 / 5.41184 * 25.4 / 99.9)
    assert "packets" in hx2.how
    assert "flows" in savings["large Hx2Mesh, all-to-all saving"].how


@pytest.mark.parametrize(
    ("factors", "wrong"),
    [
        ({}, ()),
        ({"flows": 1.049, "packets": 0.985}, ()),
        ({"flows": 1.11}, ("fat tree, ", "fat tree 50%", "fat tree 75%", "dragonfly", "Hx2Mesh")),
        ({"flows": 1.2}, ("fat tree, ", "50%", "75%", "dragonfly", "Hx2Mesh", "HyperX", "Hx4Mesh")),
    ],
)
def test_flows_are_judged_by_each_topologys_tolerance(factors, wrong):
    judged = rows(small(**factors), "all-to-all, flows")
    others = ("as priced", "barrier")
    judged = [row for row in judged if not any(word in row.case for word in others)]
    out = [row.case for row in judged if row.ok is False]
    assert len(out) == len(wrong)
    assert all(any(name in case for case in out) for name in wrong)


def test_packets_are_judged_on_every_network():
    out = [row.case for row in small(packets=0.965).rows if row.ok is False]
    judged = [case for case in out if "all-to-all, packets" in case and "barrier" not in case]
    assert judged == ["small fat tree, all-to-all, packets", "small Hx2Mesh, all-to-all, packets"]
    out = [row.case for row in small(packets=0.94).rows if row.ok is False]
    assert len([case for case in out if "all-reduce, packets" in case]) == 8
    assert len([case for case in out if case.endswith("all-to-all, packets")]) == 8 + 2


def test_what_was_chosen_with_the_shares_in_view_says_so(whole):
    words = {row.case: row.made.word for row in whole.rows}
    chosen = {case for case, word in words.items() if word == "chosen" and "all-to-all" in case}
    assert {"small Hx2Mesh, all-to-all, packets", "small Hx2Mesh, all-to-all saving"} <= chosen
    assert {case for case in words if "flows without barrier" in case} <= chosen
    assert not {case for case in chosen if "packets with barrier" in case}
    assert words["small Hx2Mesh, all-to-all, flows"] == "computed"
    optical = {case for case, word in words.items() if word == "chosen" and "cost" in case}
    assert optical == {"small 2D torus, cost", "large 2D torus, cost"}


def test_claims_about_jobs_are_judged_on_all_distributions(whole):
    some = Scope(sizes=("small",), network_models=(), curves=False)
    for factor, ok in ((1.0, True), (0.96, False)):
        outcome = hammingmesh.run(some, simulate=FakeCore(place=factor), cache=False)
        claims = rows(outcome, "use, sorted")
        claims = [row for row in claims if row.published and row.published.low == 98]
        assert len(claims) == 2 * 2 * 3
        assert all(row.ok is ok for row in claims)
        words = {row.case.split(", ")[1]: row.made.word for row in claims}
        assert words == {
            "alibaba-2020": "computed",
            "alibaba-2020-fractional": "chosen",
            "powers-of-two": "chosen",
        }
    (gain, *_) = rows(whole, "gain by transposing")
    assert gain.ours == pytest.approx(4)
    assert {row.ok for row in rows(whole, "of 64 boards failed")} == {True}
    assert [row.published.high for row in rows(whole, "pairs across the upper")] == [50, 25]


def test_the_order_of_networks_is_the_published_one_where_shares_are(whole):
    orders = rows(whole, "pairs in the wrong order")
    assert len(orders) == 2 * 3 + 1
    assert all(row.ours == 0 and row.how == "reversed: none" for row in orders)


def test_moving_and_failed_boards_of_large_meshes_are_judged(whole):
    moving = rows(whole, "moving jobs")
    assert len(moving) == 4 * 2 * 3
    assert {(row.ours, row.ok) for row in moving} == {(0.5, True)}
    assert all("3 of 1" in row.how and "moving placed 3 jobs" in row.how for row in moving)
    large = [row for row in rows(whole, "boards failed") if row.case.startswith("large")]
    assert len(large) == 2 * 2 * 3 * 2
    assert {row.published.text for row in large} == {">70", "<10"}


def test_a_median_that_jumps_with_the_seed_is_printed_with_its_range(whole):
    assert not rows(whole, "boards failed, ")
    some = Scope(sizes=("small",), curves=False)
    jumping = hammingmesh.run(some, simulate=FakeCore(jump=0.01), cache=False)
    found = rows(jumping, "boards failed, ")
    # Two mixes, four numbers of failed boards, two orders.
    assert len(found) == 16
    for row in found:
        least, most = row.how.split(" over 12 seeds ")[1].split(" to ")
        assert float(most) - float(least) == pytest.approx(11)
        assert row.ours == pytest.approx(float(most))
        assert row.published is None
        assert "median" in row.why


def test_every_number_says_how_it_was_computed(whole):
    assert all(row.how for row in whole.rows)
    shares = [row for row in whole.rows if row.case.endswith(("flows", "packets"))]
    assert len(shares) > 48
    for row in shares:
        network_model = row.case.rsplit(" ", 1)[1]
        assert row.how.startswith(network_model)
        assert ("buffers 32 MB" in row.how) is (network_model == "packets")
        if "all-to-all" in row.case:
            assert "phases" in row.how
        if "HyperX" in row.case:
            assert "direct links; priced as 1x1 boards" in row.how
    sampled = {row.how for row in rows(whole, "all-to-all, packets")}
    assert {how.split(", ")[1] for how in sampled} == {"256 of 1023 phases", "64 of 1023 phases"}


def test_a_gap_above_five_per_cent_has_its_reason():
    for row in small(flows=1.2, packets=0.8).rows:
        if "as priced" in row.case or row.published is None:
            continue
        if "all-to-all, " in row.case or "all-reduce, " in row.case:
            assert row.published is not None
            assert bool(row.why) is (abs(row.ours / row.published.number - 1) > 0.05), row


def test_the_folder_holds_tables_pictures_and_the_report(whole, tmp_path):
    for name in ("one", "two"):
        whole.write(tmp_path / name)
    tables = {"reproduction", *(detail.name for detail in whole.details)}
    more = ["allocation_mixes", "boards", "job_sizes"]
    pictures = {picture.name for picture in whole.pictures}
    assert pictures == {"table_two", "message_sizes", "buffer_sizes", "permutation_npus", *more}
    made = {path.name: path for path in (tmp_path / "one").iterdir()}
    assert set(made) == {
        ".allrail.json",
        "reproduction.json",
        "report.html",
        *(f"{name}.{end}" for name in tables for end in ("csv", "parquet")),
        *(f"{name}.{end}" for name in pictures for end in ("svg", "png")),
    }
    for name, path in made.items():
        assert path.read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    html = made["report.html"].read_text()
    assert all(row.case in html for row in whole.rows)
    assert html.count("<svg") == len(pictures)
    assert ",nan" not in made["reproduction.csv"].read_text().lower()


def test_a_second_run_computes_nothing_and_gives_the_same():
    first, second, third = FakeCore(), FakeCore(), FakeCore()
    one = hammingmesh.run(SMALL, simulate=first)
    two = hammingmesh.run(SMALL, simulate=second)
    assert len(first.asked) == len(cases_of(SMALL)) == len(set(first.asked))
    assert second.asked == []
    assert one.to_dict() == two.to_dict()
    hammingmesh.run(SMALL, simulate=third, cache=False)
    assert sorted(third.asked) == sorted(first.asked)


def test_an_interrupted_run_goes_on_where_it_stopped():
    fake, lock = FakeCore(), threading.Lock()
    before = 5

    def interrupted(scenario, progress):
        with lock:
            if len(fake.asked) == before:
                raise KeyboardInterrupt
            return fake(scenario, progress)

    with pytest.raises(KeyboardInterrupt):
        hammingmesh.run(SMALL, simulate=interrupted, jobs=1)
    files = list((cache_folder() / "reproduce").iterdir())
    assert len(files) == before
    assert all(json.loads(file.read_text())["result"] for file in files)
    rest = FakeCore()
    hammingmesh.run(SMALL, simulate=rest)
    assert len(rest.asked) == len(cases_of(SMALL)) - before
    assert not set(rest.asked) & set(fake.asked)


def test_running_simulations_end_when_one_fails():
    started = threading.Event()
    ended = threading.Event()
    first, second = cases_of(SMALL)[:2]

    def simulate(scenario, progress):
        if scenario == first.scenario:
            started.wait(10)
            raise InputError("no")
        try:
            for step in range(10_000):
                progress(step, 10_000)
                started.set()
                ended.wait(0.001)
        finally:
            ended.set()
        raise AssertionError("nobody stopped it")

    with pytest.raises(InputError, match="no"):
        carry_out([first, second], simulate=simulate, jobs=2)
    assert ended.is_set()


def test_results_of_another_core_or_broken_ones_are_not_taken(monkeypatch):
    case = cases_of(SMALL)[0]
    store = kept.Kept()
    store.put(case.scenario, {"share": 1})
    assert store.get(case.scenario) == {"share": 1}
    assert store.get({**case.scenario, "seed": 1}) is None
    assert kept.Kept(read=False).get(case.scenario) is None
    (file,) = (cache_folder() / "reproduce").iterdir()
    whole_text = file.read_text()
    for text in ("", whole_text[:-9], "[]", "{}", '{"scenario": 1, "result": {}}'):
        file.write_text(text)
        assert store.get(case.scenario) is None
    file.write_text(whole_text)
    assert store.get(case.scenario) == {"share": 1}
    monkeypatch.setattr(kept, "core", lambda: "another")
    assert store.get(case.scenario) is None


def test_progress_rises_to_the_whole():
    told: list[tuple[int, int]] = []
    carry_out(cases_of(SMALL), simulate=FakeCore(), progress=lambda *both: told.append(both))
    done = [one for one, _ in told]
    assert done == sorted(done)
    assert len({total for _, total in told}) == 1
    assert told[-1][0] == told[-1][1]


def test_the_scope_says_what_is_simulated():
    everything = cases_of(Scope())
    assert {case.cluster for case in everything} == set(TABLE_TWO)
    assert all(case.network_model == "flows" for case in everything if case.cluster.size == "large")
    flows = cases_of(Scope(network_models=("flows",)))
    assert {case.network_model for case in flows} == {"flows"}
    assert set(flows) < set(everything)
    tabled = [c for c in cases_of(Scope(phases=None)) if c.pattern == "all_to_all"]
    phases = {case.scenario["traffic"]["phases"] for case in tabled if case.barrier is not False}
    assert phases == {"all"}
    assert all(case.weight > 0 for case in everything)


def test_the_command_prints_the_table_and_fails_if_a_number_is_out(allrail_cli, monkeypatch):
    from functools import partial

    run = hammingmesh.run
    for factor, far in ((1.0, False), (1.5, True)):
        fake = FakeCore(flows=factor)
        monkeypatch.setattr(hammingmesh, "run", partial(run, simulate=fake))
        options = (
            "--cluster",
            "small",
            "--network-model",
            "flows",
            "--no-figures",
            "--no-placement",
            "--no-cache",
        )
        told = allrail_cli("reproduce", "hammingmesh", *options)
        assert told.status == 1  # three diameters are out
        assert "small Hx2Mesh, all-to-all, flows" in told.stdout
        assert "large fat tree" not in told.stdout
        misses = told.stdout.partition("misses: ")[2]
        assert ("small Hx2Mesh, all-to-all, flows;" in misses) is far
    told = allrail_cli("reproduce", "hammingmesh", *options, "--json")
    tree = json.loads(told.stdout)
    assert tree["ok"] is False
    assert all(row["how"] for row in tree["rows"])


@pytest.mark.parametrize("phases", ["0", "-3", "few", "1.5", ""])
def test_phases_are_a_number_or_all(allrail_cli, phases):
    told = allrail_cli("reproduce", "hammingmesh", "--phases", phases)
    assert told.status == 2
    assert "is neither `all` nor a number from 1" in told.stderr


def test_an_interruption_says_that_results_are_kept(allrail_cli, monkeypatch):
    def run(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(hammingmesh, "run", run)
    told = allrail_cli("reproduce", "hammingmesh")
    assert told.status == 130
    assert "kept" in told.stderr


def test_gpt3_waits_as_long_as_published():
    from allrail_reproduce.hammingmesh import gpt3

    row = gpt3.row()
    # 4 x 1.5 x 100.66 MB at 200 GB/s.
    assert row.ours == pytest.approx(3.02, rel=0.002)
    assert row.ok
