"""Plans that are expensive are kept on disk; whatever else is there counts as absent."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import allrail

ALLRAIL = {"schedule.policy": "search", "collective.size": "10 MB", "schedule.chunks": 8}


def files() -> list[Path]:
    return sorted(Path(os.environ["ALLRAIL_CACHE"]).rglob("*.json"))


@pytest.mark.usefixtures("folder")
class TestCache:
    """`allrail.plan`, `allrail.simulate` and the folder that `ALLRAIL_CACHE` names."""

    def test_the_second_time_it_is_read(self):
        first = allrail.simulate("scenario.yaml", sets=ALLRAIL)
        second = allrail.simulate("scenario.yaml", sets=ALLRAIL)
        assert not first.host.plan_cached
        assert second.host.plan_cached
        assert len(files()) == 1
        assert first.time_us == second.time_us

    def test_it_changes_no_result(self):
        for order in ("planned", "smallest_first", "fifo"):
            sets = {**ALLRAIL, "schedule.order": order}
            times = [
                allrail.simulate("scenario.yaml", sets=sets, cache=cache).time_us
                for cache in (False, True, True)
            ]
            assert len(set(times)) == 1, order

    def test_cheap_plans_are_not_kept(self):
        for policy in ("baseline", "themis"):
            allrail.simulate("scenario.yaml", sets={"schedule.policy": policy})
            assert not allrail.plan("scenario.yaml", sets={"schedule.policy": policy}).cached
        assert files() == []

    def test_it_can_be_left_out(self, allrail_cli):
        allrail.plan("scenario.yaml", sets=ALLRAIL, cache=False)
        allrail_cli("simulate", "scenario.yaml", "--set", "schedule.policy=search", "--no-cache")
        assert files() == []

    @pytest.mark.parametrize(
        "text", [b"", b"{", b"\xff\xfe", b'{"schema_version": 1, "plans": []}', b"[1]"], ids=repr
    )
    def test_a_broken_file_is_made_again(self, text):
        good = allrail.plan("scenario.yaml", sets=ALLRAIL)
        (path,) = files()
        path.write_bytes(text)
        again = allrail.plan("scenario.yaml", sets=ALLRAIL)
        assert not again.cached
        assert again.text == good.text
        assert json.loads(path.read_text()) == good.to_dict()
        assert allrail.plan("scenario.yaml", sets=ALLRAIL).cached

    def test_a_folder_that_cannot_be_written_is_no_error(self, folder, monkeypatch):
        (folder / "file").write_text("")
        monkeypatch.setenv("ALLRAIL_CACHE", str(folder / "file"))
        assert not allrail.plan("scenario.yaml", sets=ALLRAIL).cached

    @pytest.mark.parametrize(
        "change",
        [
            {"collective.size": "11 MB"},
            {"collective.kind": "reduce_scatter"},
            {"schedule.chunks": 9},
            {"schedule.endpoint_delay": "1 ns"},
            {"schedule.active_chunks": 2},
            {"fabric.dimensions[1].latency": "3 ns"},
            {"fabric.dimensions[1].bandwidth": "49 GiB/s"},
            {"fabric.dimensions[1].links": 2},
            {"fabric.dimensions[1].size": 4},
            {"fabric.dimensions[1].kind": "ring"},
            {"fabric.dimensions[1].in_network_reduction": True},
            {"schedule.algorithms": ["ring", "halving_doubling", "halving_doubling"]},
            # Where `search` judges its candidates.
            {"network_model": "links"},
        ],
        ids=str,
    )
    def test_every_input_of_the_planner_is_part_of_the_key(self, change):
        allrail.plan("scenario.yaml", sets=ALLRAIL)
        assert not allrail.plan("scenario.yaml", sets={**ALLRAIL, **change}).cached

    def test_what_the_planner_does_not_read_is_not(self):
        allrail.plan("scenario.yaml", sets=ALLRAIL)
        change = {"collective.name": "gradients"}
        assert allrail.plan("scenario.yaml", sets={**ALLRAIL, **change}).cached

    def test_without_a_name_it_is_under_the_user_s_cache(self, folder, monkeypatch):
        monkeypatch.delenv("ALLRAIL_CACHE")
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "xdg"))
        allrail.plan("scenario.yaml", sets=ALLRAIL)
        assert len(list((folder / "xdg" / "allrail" / "plans").iterdir())) == 1
