"""`allrail place`: how much of a fabric mixes of jobs use, on the command line and in Python."""

from __future__ import annotations

import json

import pytest

from allrail.simulation.placement import fold, mix_names, place, queue, read_mix

ALI = "alibaba-2020"


def told(allrail_cli, *args):
    outcome = allrail_cli("place", *args, "--json")
    assert outcome.status == 0, outcome.stderr
    return json.loads(outcome.stdout)


def test_the_promised_line_has_the_promised_names(folder, allrail_cli):
    rows = "".join(f"{size},{jobs}\n" for size, jobs in read_mix(ALI).rows)
    (folder / "mix.csv").write_text("gpus,jobs\n" + rows)
    options = ["--count", "200", "--sort", "--transpose", "--aspect", "8", "--locality"]
    options += ["--failed", "2", "--seed", "0"]
    from_file = told(allrail_cli, "--fabric", "hx2mesh-1k", "--mix", "mix.csv", *options)
    assert {"mean", "median", "p1", "p99"} <= set(from_file["utilisation"])
    assert from_file["utilisation"]["mean"] > 0.95
    from_preset = told(allrail_cli, "--fabric", "hx2mesh-1k", "--mix", ALI, *options)
    assert from_preset["utilisation"] == from_file["utilisation"]


# Mean and median of 1,000 mixes in percent, as docs/concepts/placement.md has them: in the order of
# arrival, and sorted with all options.
TABLE = {
    ("hx2mesh-1k", ALI): ((85.0, 88), (99.0, 100)),
    ("hx4mesh-1k", ALI): ((84.1, 88), (95.1, 100)),
    ("hx2mesh-1k", "alibaba-2020-fractional"): ((86.6, 89), (99.6, 100)),
    ("hx4mesh-1k", "powers-of-two"): ((89.0, 94), (100.0, 100)),
}


@pytest.mark.parametrize(("fabric", "mix"), TABLE)
def test_means_and_medians_are_near_the_published_ones(fabric, mix):
    plain = place(fabric, mix=mix)["utilisation"]
    whole = place(fabric, mix=mix, sort=True, transpose=True, aspect=8)["utilisation"]
    for ours, (mean, median) in zip((plain, whole), TABLE[fabric, mix], strict=True):
        assert 100 * ours["mean"] == pytest.approx(mean, abs=2)
        assert 100 * ours["median"] == pytest.approx(median, abs=4)


def test_the_same_seed_gives_the_same_bytes_and_another_another(allrail_cli):
    args = ("place", "--fabric", "hx4mesh-1k", "--count", "20", "--failed", "5", "--json")
    first, again = (allrail_cli(*args, "--seed", "3").stdout for _ in range(2))
    assert first == again
    assert first != allrail_cli(*args, "--seed", "4").stdout


def test_a_hammingmesh_uses_more_than_a_torus_and_a_fat_tree_all():
    def mean(fabric):
        return place(fabric, count=100, transpose=True, aspect=8)["utilisation"]["mean"]

    assert mean("torus-1k") < mean("hx2mesh-1k") < mean("fat-tree-1k") == 1


def test_leaves_make_an_upper_level_and_locality_avoids_it():
    def above(**options):
        upper = place("hx2mesh-16k", count=10, sort=True, **options)["upper_level"]
        return upper["all_to_all"]["mean"]

    assert above(leaf_boards=64) == 0
    assert 0 < above(locality=True) < 0.5 * above()
    assert above() == above(leaf_boards=16), "64 ports: 16 boards of two ends"


def test_a_size_counts_boards_unless_npus_are_meant(folder):
    (folder / "mine.yaml").write_text("unit: npus\njobs: {64: 1}\n")
    assert place("hx2mesh-1k", mix="mine.yaml", count=1)["jobs"]["mean"] == 16
    assert place("hx2mesh-1k", mix="mine.yaml", unit="boards", count=1)["jobs"]["mean"] == 4


def test_a_job_may_ask_for_a_shape(folder, allrail_cli):
    (folder / "mine.csv").write_text("size,jobs\n2x4,1\n")
    (folder / "mine.yaml").write_text("jobs: {2x4: 1}\n")
    for mix in ("mine.csv", "mine.yaml", [("2x4", 1)], [((2, 4), 1)]):
        found = place("hx2mesh-1k", mix=mix, count=1)
        assert found["jobs"]["mean"] == 32
        assert {(len(job["rows"]), len(job["columns"])) for job in found["map"]["jobs"]} == {(2, 4)}
    job = place("hx2mesh-1k", mix=[("7x31", 1)], unit="npus", count=1)["map"]["jobs"][0]
    assert (len(job["rows"]), len(job["columns"])) == (4, 16)
    # A number of 8 boards would be 4 x 2, and two of them fit beside each other.
    (folder / "jobs.csv").write_text("0 s,1 s,9x16\n0 s,1 s,16x7\n0 s,1 s,2x4\n")
    ran = told(allrail_cli, "--fabric", "hx2mesh-1k", "--trace", "jobs.csv")
    assert ran["makespan_s"] == 2


def test_moving_jobs_makes_room():
    options = {"count": 200, "transpose": True, "seed": 1}
    still = place("hx2mesh-1k", **options)
    moved = place("hx2mesh-1k", memory="320 GiB", **options)
    assert moved["utilisation"]["mean"] > still["utilisation"]["mean"]
    costs = moved["defragmentation"]
    assert costs["bytes"]["max"] % (320 << 30) == 0
    # A board sends 320 GiB by 32 links of 400 Gb/s: 0.21475 s a round.
    rounds = costs["time_us"]["max"] / 214748.3648
    assert rounds == pytest.approx(round(rounds))


def test_a_queue_from_a_trace(folder, allrail_cli):
    (folder / "jobs.csv").write_text(
        "arrive,duration,size\n0 s,10 s,128\n1 s,5 s,256\n2 s,8 s,64\n3 s,9 s,64\n"
    )
    plain = queue("hx2mesh-1k", trace="jobs.csv")
    assert [job["start_s"] for job in plain["ran"]] == [0, 10, 15, 15]
    assert plain["waiting_s"]["max"] == 13
    filled = told(allrail_cli, "--fabric", "hx2mesh-1k", "--trace", "jobs.csv", "--backfill")
    assert filled["waiting_s"]["mean"] == (0 + 9 + 0 + 12) / 4
    assert filled["makespan_s"] == 24


@pytest.mark.parametrize("run", ["all_reduce", "all_to_all"])
def test_jobs_that_run_at_once_keep_97_percent(allrail_cli, run):
    options = ("--fabric", "hx2mesh-1k", "--sort", "--transpose", "--aspect", "8", "--failed", "10")
    for seed in ("0", "1"):
        shares = told(allrail_cli, *options, "--seed", seed, "--run", run)["shares"]
        assert shares["min"] >= 0.97
        assert {"mean", "p1"} <= set(shares)
        assert min(job["share"] for job in shares["jobs"]) == shares["min"]
    page = allrail_cli("place", *options, "--run", run).stdout
    assert "\nshare_of_alone_% " in page


def test_fewer_uplinks_leave_less(folder, allrail_cli):
    def least(taper):
        (folder / "mesh.yaml").write_text(
            "schema_version: 1\nname: mesh\ntopology: hammingmesh\nboard: [2, 2]\n"
            f"grid: [16, 16]\nswitch_radix: 16\ntaper: {taper}\n"
        )
        args = ["--fabric", "mesh.yaml", "--sort", "--transpose", "--aspect", "8"]
        args += ["--failed", "10", "--seed", "3", "--run", "all_reduce", "--out", "out"]
        shares = told(allrail_cli, *args)["shares"]
        table = (folder / "out" / "shares.csv").read_text()
        assert table.count("\n") == len(shares["jobs"]) + 1
        return shares["min"]

    assert least("0.0") >= 0.97
    assert least("0.75") < 0.9


def test_tables_and_notes(allrail_cli):
    page = allrail_cli("place", "--fabric", "hx2mesh-1k", "--count", "5").stdout
    assert page.startswith("of_a_mix ")
    assert "# hx2mesh-1k: 16 x 16 boards of 4 NPUs, 0 failed" in page
    page = allrail_cli("place", "--fabric", "fat-tree-1k", "--jobs", "20").stdout
    assert "waiting_s" in page
    assert "each counted as a board" in page


def test_out_has_pictures_and_tables_and_an_older_run_is_replaced(folder, allrail_cli):
    fabric = ("--fabric", "hx4mesh-1k", "--out", "out")
    assert allrail_cli("place", *fabric, "--count", "8", "--failed", "3").status == 0
    names = {path.name for path in (folder / "out").iterdir()}
    assert {"utilisation.svg", "boards.png", "mixes.csv", "mixes.parquet", "result.json"} <= names
    tree = json.loads((folder / "out" / "result.json").read_text())
    assert len(tree["placement"]["map"]["failed"]) == 3
    svg = (folder / "out" / "boards.svg").read_text()
    assert "failed (3)" in svg
    assert "jobs of one board" in svg
    assert (folder / "out" / "mixes.csv").read_text().count("\n") == 9
    assert allrail_cli("place", *fabric, "--jobs", "8").status == 0
    names = {path.name for path in (folder / "out").iterdir()}
    assert "queue.png" in names
    assert "boards.svg" not in names


def test_three_dimensions_fold_onto_two():
    told = fold([4, 4, 2], board=[2, 2])
    assert told["boards"] == [2, 4]
    assert max(told["farthest"]) == 2


def test_every_packaged_mix_can_be_read():
    assert mix_names() == (ALI, "alibaba-2020-fractional", "powers-of-two")
    assert sum(jobs for _, jobs in read_mix(ALI).rows) == 60105
