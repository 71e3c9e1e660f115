"""ASTRA-sim's files give ASTRA-sim's times.

The tutorial's exercises come with allrail; ASTRA-sim's other samples are used where they are here.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

import allrail
from allrail.formats.astra_sim import columns, columns_csv, read_case, scenario_yaml
from allrail_reproduce.astra_sim import EXERCISES, FOLDER, LINK_BOUND_US, run


def exercise_case(exercise, **options):
    return read_case(
        FOLDER / exercise.network,
        system=FOLDER / exercise.system,
        workload=FOLDER / "all_reduce.txt",
        network_model=exercise.network_model,
        **({"comm_scale": 1024.0} | options),
    )


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_the_tutorials_times(exercise):
    result = allrail.simulate(exercise_case(exercise).scenario)
    assert result.time_us == pytest.approx(exercise.time_us, rel=exercise.tolerance)
    if exercise.utilisation is not None:
        assert 100 * result.utilisation == pytest.approx(exercise.utilisation, abs=0.2)


def test_a_direct_step_of_one_messages_time_is_below_the_links():
    unaware = exercise_case(EXERCISES[2])
    result = allrail.simulate(unaware.scenario)
    assert result.below_physical_bound
    assert result.utilisation is None
    assert result.to_dict()["below_physical_bound"] is True
    tree = json.loads(json.dumps(unaware.scenario))
    tree["fabric"]["dimensions"][0]["contention"] = "shared"
    shared = allrail.simulate(tree)
    assert shared.time_us >= LINK_BOUND_US
    assert not shared.below_physical_bound
    assert "below_physical_bound" not in shared.to_dict()


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_a_written_scenario_gives_the_same(exercise, tmp_path):
    case = exercise_case(exercise)
    path = tmp_path / "case.yaml"
    path.write_text(scenario_yaml(case))
    ours = allrail.simulate(path).to_dict()
    theirs = allrail.simulate(case.scenario).to_dict()
    del ours["host"], theirs["host"]
    assert ours == theirs


def test_reproduce_is_within_tolerance(monkeypatch):
    monkeypatch.delenv("ALLRAIL_REFERENCE", raising=False)
    seen = []
    reproduction = run(progress=lambda done, total: seen.append((done, total)))
    assert reproduction.ok, [row.cells() for row in reproduction.rows if row.ok is False]
    assert len([row for row in reproduction.rows if row.ok]) == 9
    assert seen[-1][0] == seen[-1][1]


def test_astra_sims_samples(astra_case):
    arguments = dict(zip(astra_case["args"][::2], astra_case["args"][1::2], strict=True))
    folder = astra_case["folder"]

    def read():
        return read_case(
            folder / astra_case["network"],
            system=folder / astra_case["system"],
            workload=folder / astra_case["workload"],
            comm_scale=float(arguments.get("--comm-scale", 1)),
            compute_scale=float(arguments.get("--compute-scale", 1)),
            network_model=arguments.get("--network-model", "dims"),
        )

    case = read()
    if astra_case.get("needs") == "training":
        step = allrail.simulate(case.scenario).to_dict()
        row = columns(case, result=step)
        tolerance = astra_case["tolerance"]
        assert float(row["TotalTime(us)"]) == pytest.approx(astra_case["time_us"], rel=tolerance)
        assert float(row["ComputeTime(us)"]) == pytest.approx(astra_case["compute_us"], rel=1e-6)
        assert step["compute_us"] == pytest.approx(astra_case["compute_us"], rel=1e-6)
        exposed = float(row["ExposedCommunicationTime(us)"])
        assert exposed == pytest.approx(astra_case["exposed_us"], rel=tolerance)
        assert case.warning is None
        return
    result = allrail.simulate(case.scenario)
    assert result.time_us == pytest.approx(astra_case["time_us"], rel=astra_case["tolerance"])
    assert case.warning is None
    if "total_message_MB" in astra_case:
        row = columns(case, result=result.to_dict())
        assert float(row["TotalMessageSize(MB)"]) == pytest.approx(astra_case["total_message_MB"])


@pytest.fixture
def files(tmp_path) -> Path:
    """A copy of the tutorial's files, to be edited."""
    for entry in FOLDER.iterdir():
        shutil.copy(entry, tmp_path / entry.name)
    return tmp_path


def read(files: Path, *, network="3d_switch.json", system="3d_switch_baseline.txt", **options):
    return read_case(
        files / network,
        system=files / system,
        workload=files / "all_reduce.txt",
        **options,
    )


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def edit_network(files: Path, **keys) -> None:
    path = files / "3d_switch.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def dimensions(case):
    return case.scenario["fabric"]["dimensions"]


class TestNetwork:
    """What a network file means."""

    def test_bandwidth_is_gib_and_a_switch_two_links(self, files):
        one = dimensions(read(files))[0]
        assert (one["kind"], one["size"], one["links"]) == ("switch", 8, 1)
        assert one["bandwidth"] == "50 GiB/s"
        assert one["latency"] == "2 ns"

    @pytest.mark.parametrize(("links", "kept"), [(1, 2), (2, 2), (3, 2), (5, 4), (8, 8)])
    def test_a_ring_has_its_links_in_pairs(self, files, links, kept):
        edit_network(
            files, **{"topologies-per-dim": ["Ring"] * 3, "links-count": [links, links, links]}
        )
        edit(
            files / "3d_switch_baseline.txt",
            "halvingDoubling_" * 2 + "halvingDoubling",
            "ring_ring_ring",
        )
        case = read(files)
        assert [one["links"] for one in dimensions(case)] == [kept] * 3
        assert case.scenario["schedule"]["algorithms"] == ["ring"] * 3
        assert dimensions(case)[0]["latency"] == "1 ns"

    def test_fully_connected_has_the_same_number_of_links_to_every_peer(self, files):
        edit_network(
            files,
            **{
                "topologies-per-dim": ["FullyConnected", "Switch", "Switch"],
                "links-count": [16, 1, 1],
            },
        )
        assert dimensions(read(files))[0]["links"] == 14

    def test_routers_make_steps_longer_and_cards_messages(self, files):
        edit_network(files, **{"nic-latency": [3, 0, 0], "router-latency": [0, 5, 0]})
        case = read(files)
        assert [one["latency"] for one in dimensions(case)] == ["2 ns", "7 ns", "2 ns"]
        waits = [one.get("message_latency") for one in dimensions(case)]
        assert waits == ["6 ns", None, None]
        assert case.warning is None

    def test_a_dimension_of_one_npu_is_left_out(self, files):
        edit_network(files, **{"units-count": [8, 1, 8]})
        case = read(files)
        assert [one["size"] for one in dimensions(case)] == [8, 8]
        assert len(case.scenario["schedule"]["algorithms"]) == 2

    def test_a_message_of_a_2x_ring_gets_one_links_bandwidth(self, files):
        (files / "ring.yml").write_text(
            "topology: [Ring]\nnpus_count: [8]\nbandwidth: [50.0]\nlatency: [500.0]\n"
        )
        (files / "system.json").write_text(
            json.dumps(
                {
                    "all-reduce-implementation": ["ring"],
                    "preferred-dataset-splits": 4,
                    "collective-optimization": "localBWAware",
                }
            )
        )
        case = read(files, network="ring.yml", system="system.json")
        result = allrail.simulate(case.scenario)
        # 4 chunks, 14 steps each: 32 KiB at 50 GiB/s and 500 ns, in whole ns; 15 delays of 10 ns.
        assert result.time_us == 4 * (14 * (610 + 500) + 15 * 10) / 1e3
        assert not result.below_physical_bound
        links = read(files, network="ring.yml", system="system.json", network_model="links")
        assert links.scenario["schedule"]["algorithms"] == ["ring_unidirectional"]
        assert dimensions(links)[0]["links"] == 2
        assert allrail.simulate(links.scenario).time_us == pytest.approx(result.time_us, rel=1e-3)

    def test_a_direct_step_on_a_ring_is_one_message(self, files):
        edit_network(files, **{"topologies-per-dim": ["Ring"] * 3, "links-count": [2, 2, 2]})
        edit(
            files / "3d_switch_baseline.txt",
            "halvingDoubling_" * 2 + "halvingDoubling",
            "direct_direct_direct",
        )
        assert {one["contention"] for one in dimensions(read(files))} == {"none"}
        assert {one["contention"] for one in dimensions(read(files, network_model="links"))} == {
            "shared"
        }


class TestSystem:
    """What a system file means."""

    def test_localbwaware_merges_the_last_dimension_for_the_baseline_only(self, files):
        assert read(files).scenario["schedule"]["composition"] == "merged"
        scenario = read(files, system="3d_switch_themis.txt").scenario
        themis = scenario["schedule"]
        assert (themis["composition"], themis["order"]) == ("stages", "astra_sim")
        assert scenario["compat"]["loads"] == "zero"
        links = read(files, system="3d_switch_themis.txt", network_model="links").scenario[
            "schedule"
        ]
        assert links["order"] == "smallest_first"
        edit(files / "3d_switch_baseline.txt", "localBWAware", "baseline")
        assert read(files).scenario["schedule"]["composition"] == "sequential"

    def test_the_greedy_one_online_is_the_baseline_in_two_stages(self, files):
        edit(files / "3d_switch_baseline.txt", "scheduling: baseline", "scheduling: onlineGreedy")
        case = read(files)
        assert case.warning is None
        schedule = case.scenario["schedule"]
        assert (schedule["policy"], schedule["composition"]) == ("baseline", "stages")

    def test_active_chunks_run_side_by_side(self, files):
        """Without contention each takes as long as alone: 64 chunks, so many at once."""
        edit_network(files, **{"units-count": [8, 1, 1]})
        times = {}
        for active in (1, 2, 4, 64):
            text = (files / "3d_switch_baseline.txt").read_text()
            path = files / f"active_{active}.txt"
            path.write_text(text.replace("dimension: 1", f"dimension: {active}"))
            times[active] = allrail.simulate(read(files, system=path.name).scenario).time_us
        assert times[1] == pytest.approx(64 * times[64], rel=1e-9)
        assert times[2] == pytest.approx(times[1] / 2, rel=1e-9)
        assert times[4] == pytest.approx(times[1] / 4, rel=1e-9)

    def test_chunks_are_what_the_splits_make(self, files):
        edit(files / "3d_switch_baseline.txt", "splits: 64", "splits: 1000")
        # floor(1048576 / 1000) = 1048 bytes a chunk, 1000 of them and one of 576.
        scenario = read(files).scenario
        assert (scenario["schedule"]["chunks"], scenario["compat"]["cut"]) == (1000, "rest")
        assert allrail.simulate(read(files).scenario).to_dict()["chunks"] == 1001

    def test_2x_json_means_the_same(self, files):
        text = (files / "3d_switch_themis.txt").read_text()
        tree: dict[str, object] = dict(line.split(": ") for line in text.splitlines())
        for key, value in tree.items():
            if key.endswith("implementation"):
                tree[key] = str(value).split("_")
            elif str(value).isdecimal():
                tree[key] = int(str(value))
        (files / "system.json").write_text(json.dumps(tree))
        ours = read(files, system="system.json").scenario
        assert ours == read(files, system="3d_switch_themis.txt").scenario

    def test_what_is_not_modelled_is_said_once_by_key(self, files):
        with (files / "3d_switch_baseline.txt").open("a") as file:
            file.write("local-reduction-delay: 100\nmodel-shared-bus: 1\nboost-mode: 1\n")
        edit_network(files, **{"hbm-latency": [500, 500, 500], "dimension-type": ["N", "N", "N"]})
        warning = read(files).warning
        assert warning is not None
        assert "\n" not in warning
        for key in ("hbm-latency", "local-reduction-delay", "model-shared-bus"):
            assert warning.count(f"`{key}`") == 1
        assert "boost-mode" not in warning
        assert "dimension-type" not in warning

    def test_other_schedulers_are_replaced_and_said(self, files):
        edit(
            files / "3d_switch_baseline.txt",
            "inter-dimension-scheduling: baseline",
            "inter-dimension-scheduling: themisFlex",
        )
        edit(
            files / "3d_switch_baseline.txt",
            "intra-dimension-scheduling: FIFO",
            "intra-dimension-scheduling: RG",
        )
        case = read(files)
        assert case.scenario["schedule"]["policy"] == "themis"
        assert "themisFlex" in (case.warning or "")
        assert "RG" in (case.warning or "")

    def test_round_robin_begins_one_dimension_later_each_time(self, files):
        edit(
            files / "3d_switch_baseline.txt",
            "inter-dimension-scheduling: baseline",
            "inter-dimension-scheduling: roundRobin",
        )
        case = read(files)
        assert case.warning is None
        visited = [
            [(stage["operation"], stage["dimension"]) for stage in chunk["stages"]]
            for chunk in allrail.plan(case.scenario).plans[0]["chunks"][:4]
        ]
        assert [[d for _, d in chunk] for chunk in visited] == [
            [0, 1, 2, 1, 0],
            [1, 2, 0, 2, 1],
            [2, 0, 1, 0, 2],
            [0, 1, 2, 1, 0],
        ]
        assert visited[1][2] == ("all_reduce", 0)


class TestWorkload:
    """What a workload file means."""

    def test_an_all_gathers_bytes_are_what_each_npu_puts_in(self, files):
        edit(files / "all_reduce.txt", "ALLREDUCE", "ALLGATHER")
        case = read(files)
        collective = case.scenario["collective"][0]
        assert (collective["kind"], collective["size"]) == ("all_gather", f"{512 * 2**20} B")
        result = allrail.simulate(case.scenario)
        # Every NPU receives what the other 511 put in, over three dimensions.
        assert result.bytes_per_npu == pytest.approx(511 * 2**20, rel=1e-6)

    def test_themis_plans_no_all_to_all(self, files):
        edit(files / "all_reduce.txt", "ALLREDUCE", "ALLTOALL")
        schedule = read(files, system="3d_switch_themis.txt").scenario["schedule"]
        assert schedule["policy"] == "baseline"
        assert schedule["algorithms"] == ["direct"] * 3

    def test_passes_start_together_and_share_the_fabric(self, files):
        once = allrail.simulate(read(files, comm_scale=64).scenario)
        case = read(files, comm_scale=64, num_passes=3)
        assert [one["start"] for one in case.scenario["collective"]] == ["0 ns"] * 3
        thrice = allrail.simulate(case.scenario)
        assert 2.5 * once.time_us < thrice.time_us < 3.01 * once.time_us
        assert thrice.bytes_per_npu == 3 * once.bytes_per_npu

    def test_scaling_the_bytes_scales_the_message_size(self, files):
        small, large = (
            columns(case, result=allrail.simulate(case.scenario).to_dict())
            for case in (read(files), read(files, comm_scale=8))
        )
        assert float(large["TotalMessageSize(MB)"]) == pytest.approx(
            8 * float(small["TotalMessageSize(MB)"]), abs=0.05
        )

    def test_layers_that_micro_does_not_run_are_said(self, files):
        path = files / "all_reduce.txt"
        row = path.read_text().splitlines()[2]
        path.write_text(f"MICRO\n2\n{row}\n{row.replace('NONE 0', 'ALLREDUCE 64', 1)}\n")
        assert "first" in (read(files).warning or "")


LOOP = """{loop}
3
a -1 1000 ALLREDUCE 65536 900 ALLREDUCE 65536 800 ALLREDUCE 65536 10
b -1 2000 NONE 0 1900 ALLREDUCE 65536 1800 ALLREDUCE 131072 10
c -1 3000 ALLGATHER 65536 2900 NONE 0 2800 ALLREDUCE 262144 10
"""
RECOMPUTE = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 16"


class TestLoops:
    """What a training loop becomes."""

    @pytest.fixture
    def loop(self, files):
        def write(line, **options):
            (files / "all_reduce.txt").write_text(LOOP.format(loop=line))
            return read(files, **options)

        return write

    @pytest.mark.parametrize(
        ("line", "compute_ns"),
        [
            ("DATA", 6000 + 4800 + 5400),
            ("MODEL", 6000 + 5700 + 5400),
            ("DISTRIBUTED_INFERENCE", 6000),
            ("HYBRID_DLRM 1", 6000 + 4800 + 5400),
            (f"{RECOMPUTE} checkpoints: 1 0 checkpoint_initiates: 1 2", 17100 + 3000),
        ],
    )
    def test_compute_is_what_the_loop_runs(self, loop, line, compute_ns):
        case = loop(line)
        assert case.compute_ns == compute_ns
        step = allrail.simulate(case.scenario)
        assert step.to_dict()["compute_us"] == pytest.approx(compute_ns / 1e3)

    def test_a_model_that_ends_within_a_dimension_cuts_it(self, loop):
        case = loop("HYBRID_TRANSFORMER model_parallel_NPU_group: 16")
        assert [one["size"] for one in dimensions(case)] == [8, 2, 4, 8]
        names = case.scenario["schedule"]["algorithms_by_operation"]
        assert names["all_reduce"] == ["halving_doubling_near"] * 4

    def test_passes_add_up(self, loop):
        one, three = (
            columns(case, result=allrail.simulate(case.scenario).to_dict())
            for case in (loop("MODEL"), loop("MODEL", num_passes=3))
        )
        for name in ("TotalTime(us)", "ComputeTime(us)", "ExposedCommunicationTime(us)"):
            assert float(three[name]) == pytest.approx(3 * float(one[name]), rel=1e-6)

    def test_a_written_scenario_gives_the_same(self, loop, tmp_path):
        case = loop("HYBRID_DATA_MODEL", system="3d_switch_themis.txt")
        path = tmp_path / "case.yaml"
        path.write_text(scenario_yaml(case))
        ours = allrail.simulate(path).to_dict()
        theirs = allrail.simulate(case.scenario).to_dict()
        del ours["host"], theirs["host"]
        assert ours == theirs

    def test_simai_names_whom_a_collective_spans(self, files):
        (files / "all_reduce.txt").write_text(
            "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 8 pp: 2 vpp: 1 ga: 1 "
            "all_gpus: 512 checkpoints: 0 checkpoint_initiates: 0 pp_comm: 8388608.0\n1\n"
            "moe -1 5 ALLTOALL_EP 65536 5 REDUCESCATTER 0 5 ALLREDUCE_DP_EP 65536 1\n"
        )
        case = read(files)
        layer = case.scenario["workload"]["model"]["astra_sim"]["layers"][0]
        assert layer["forward"]["over"] == "experts"
        assert layer["weight_gradient"]["over"] == "expert_replicas"
        warning = case.warning or ""
        assert "`pp`" in warning
        assert "SimAI's analytical mode would add a bubble of 1 of" in warning
        assert allrail.simulate(case.scenario).to_dict()["step_time_us"] > 0

    def test_simais_pipeline_changes_its_groups_and_nothing_else(self, files):
        """Eight NPUs a model, two stages: 32 replicas in place of 64 reduce gradients."""

        def step(pipeline, gradient):
            (files / "all_reduce.txt").write_text(
                f"HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 {pipeline} "
                "all_gpus: 512 mode: 1 checkpoints: 0 checkpoint_initiates: 0\n2\n"
                f"a -1 700 ALLREDUCE 65536 600 REDUCESCATTER 65536 500 {gradient} 1\n"
                "b -1 700 ALLGATHER 65536 600 NONE 0 500 BROADCAST 64 1\n"
            )
            result = allrail.simulate(read(files).scenario).to_dict()
            sent = [one["bytes_per_npu"] for one in result["dimensions"]]
            return result["step_time_us"], sent

        one, two = "pp: 1 vpp: 1 ga: 1 pp_comm: 0", "pp: 2 vpp: 4 ga: 8 pp_comm: 8388608"
        assert step(one, "NONE 0") == step(two, "NONE 0")
        # Of 64 KiB, an eighth is all-reduced by 8 on the last dimension, or by 4.
        assert step(one, "ALLREDUCE 65536")[1][2] == 2 * 65536 / 8 * 7 / 8
        assert step(two, "ALLREDUCE 65536")[1][2] == 2 * 65536 / 8 * 3 / 4

    def test_simai_counts_the_whole_buffer_of_an_all_gather(self, files):
        """As `MockNcclGroup.cc` does; ASTRA-sim counts what each NPU puts in, an eighth of it."""

        def step(options, size):
            (files / "all_reduce.txt").write_text(
                f"HYBRID_TRANSFORMER model_parallel_NPU_group: 8 {options}\n1\n"
                f"a -1 700 ALLGATHER {size} 600 NONE 0 500 NONE 0 1\n"
            )
            return allrail.simulate(read(files).scenario).to_dict()["step_time_us"]

        assert step("ga: 1", 8 * 65536) == step("", 65536)
        assert step("ga: 1", 65536) < step("", 65536)


def test_the_columns_are_astra_sims(files):
    case = read(files)
    row = columns(case, result=allrail.simulate(case.scenario).to_dict())
    assert list(row)[:5] == [
        "Name",
        "TotalTime(us)",
        "ComputeTime(us)",
        "ExposedCommunicationTime(us)",
        "TotalMessageSize(MB)",
    ]
    header, values = columns_csv(row).splitlines()
    assert len(header.split(",")) == len(values.split(",")) == 8


def test_the_scenario_file_holds_nothing_that_says_nothing(files):
    tree = yaml.safe_load(scenario_yaml(read(files)))
    assert isinstance(tree["collective"], dict)
    assert "in_network_reduction" not in tree["fabric"]["dimensions"][0]
