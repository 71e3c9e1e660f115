"""What a report of training steps says: of which result, under which heading, and what helps."""

from __future__ import annotations

import dataclasses
import html
import re

import pytest

import allrail
from allrail.base.units import show_number
from allrail.output.report import training_tables
from allrail.output.report.advice import advice, levers
from allrail.output.report.training_page import page
from allrail.output.training import describe
from allrail.output.write import input_tree
from allrail.results.compared import SAME, equally_fast, leaders
from allrail.results.training_parts import Memory

STEP = {
    "schema_version": 1,
    "fabric": {
        "name": "two",
        "dimensions": [
            {"kind": "switch", "size": 4, "bandwidth": "800 Gb/s", "latency": "1 us"},
            {"kind": "ring", "size": 2, "bandwidth": "10 Gb/s", "latency": "2 us"},
        ],
    },
    "workload": {
        "model": "transformer_big",
        "batch_per_replica": 8,
        "compute": {"device": "a100"},
        "parallelism": {"pp": 2},
        "iterations": 2,
    },
}


def scenario(**sets):
    return allrail.load_scenario(
        STEP, sets={path.replace("__", "."): v for path, v in sets.items()}
    )


@pytest.fixture(scope="module")
def step():
    return allrail.simulate(scenario())


def written(results, what_ifs=()):
    inputs = {name: describe(input_tree(scenario())) for name in results}
    return html.unescape(
        page(results, inputs=inputs, pictures={}, what_ifs=what_ifs, version="test")
    )


def with_memory(step, **parts):
    given = dict.fromkeys(Memory.PARTS, 0) | parts
    return dataclasses.replace(step, memory=Memory(**given, needed=sum(given.values())))


class TestMemory:
    @pytest.mark.parametrize("part", Memory.PARTS)
    def test_every_part_stands_under_its_own_heading(self, step, part):
        sizes = {name: (index + 1) * 10**9 for index, name in enumerate(Memory.PARTS)}
        table = training_tables.memory({"one": with_memory(step, **sizes)})
        row = dict(zip(table.header, table.rows[0], strict=True))
        assert row[part].value == sizes[part]
        assert row["total"].value == sum(sizes.values())

    def test_a_part_that_nobody_has_is_no_column(self, step):
        table = training_tables.memory({"one": with_memory(step, parameters=10**9)})
        assert table.header == [
            "result",
            "parameters",
            "total",
            "needed at least",
            "capacity",
            "fits",
        ]


class TestTies:
    def test_results_that_are_as_fast_are_told_so(self, step):
        near = dataclasses.replace(step, step_time_us=step.step_time_us * (1 + SAME / 2))
        slow = dataclasses.replace(step, step_time_us=step.step_time_us * 1.2)
        results = {"one": step, "two": near, "three": slow}
        assert leaders(results) == ["one", "two"]
        text = written(results)
        assert "one and two are equally fast" in text
        assert "is the fastest" not in text

    def test_the_order_of_results_does_not_matter(self, step):
        near = dataclasses.replace(step, step_time_us=step.step_time_us * (1 + SAME / 2))
        assert set(leaders({"a": near, "b": step})) == {"a", "b"}

    def test_many_are_counted(self):
        assert equally_fast(list("abcde"), of=9) == "a, b, c and 2 more are equally fast"
        assert equally_fast(list("abc"), of=3) == "All 3 are equally fast"


def test_the_cards_are_of_the_result_that_the_headline_names(step):
    fast = dataclasses.replace(step, step_time_us=step.step_time_us / 2)
    text = written({"slow": step, "fast": fast})
    assert "fast takes" in re.search(r'class="headline">(.*?)<', text)[1]
    assert "<dt>step of fast</dt>" in text


class TestAdvice:
    def told(self, result, what_ifs=(), **sets):
        return advice(result, what_ifs=what_ifs, scenario=input_tree(scenario(**sets)))

    def test_infinite_bandwidth_is_a_limit_and_no_advice(self, step):
        rows = allrail.what_if(scenario(), ["all"], result=step)
        said = self.told(step, [one.to_dict() for one in rows])
        first = next(text for text in said if text.startswith("What would help most"))
        assert "nfinite" not in first
        assert any(text.startswith("Infinite bandwidth, the limit") for text in said)

    def test_what_was_simulated_counts_as_it_is(self, step):
        rows = {one.name: one for one in allrail.what_if(scenario(), ["dim2_x2"], result=step)}
        found = levers(step, what_ifs=[rows["dim2_x2"].to_dict()], scenario=input_tree(scenario()))
        mine = next(one for one in found if "dim2" in one.text)
        assert mine.simulated
        assert mine.gain == pytest.approx(1 - 1 / rows["dim2_x2"].speedup)

    @pytest.mark.parametrize("dimension", [0, 1])
    def test_twice_the_bandwidth_gains_no_more_than_is_said(self, step, dimension):
        fabric = STEP["fabric"]["dimensions"][dimension]["bandwidth"]
        twice = f"{2 * float(fabric.split()[0])} Gb/s"
        path = f"fabric.dimensions[{dimension}].bandwidth"
        faster = allrail.simulate(STEP, sets={path: twice})
        gain = 1 - faster.step_time_us / step.step_time_us
        found = levers(step, what_ifs=[], scenario=input_tree(scenario()))
        said = [one.gain for one in found if f"dim{dimension + 1}" in one.text]
        assert gain <= (said[0] if said else 0) + 0.02

    def test_a_pipeline_hears_of_its_bubble(self, step):
        found = levers(step, what_ifs=[], scenario=input_tree(scenario()))
        assert any("microbatches" in one.text for one in found)

    def test_what_does_not_fit_is_said_first(self, step):
        full = dataclasses.replace(
            with_memory(step, activations=90 * 10**9, parameters=10**9),
        )
        memory = dataclasses.replace(full.memory, capacity=80 * 10**9, fits=False)
        said = self.told(dataclasses.replace(full, memory=memory))
        assert said[0].startswith("It does not fit: an NPU needs 91 GB and has 80 GB")
        assert "recomputation" in said[0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (11300, "11,300"),
        (1.13e4, "11,300"),
        (123456.7, "123,500"),
        (0.0123, "0.0123"),
        (1e-5, "0.00001"),
        (999.96, "1,000"),
        (0, "0"),
        (-1234.5, "-1,234"),
        (370, "370"),
    ],
)
def test_a_number_has_no_exponent(value, text):
    assert show_number(value) == text


class TestTables:
    def table(self, *times_us):
        from allrail.output.report.document import Table, microseconds

        return Table(
            "t",
            ["one", "time (µs)", "share"],
            [["a", microseconds(us), "x"] for us in times_us],
            [0, 2],
        )

    @pytest.mark.parametrize(
        ("times", "unit", "first"),
        [
            ((1_777_225.402, 3.0), "time (ms)", "1,777.2"),
            ((12_500_000.0,), "time (s)", "12.5"),
            ((20.19, 12.0), "time (µs)", "20.19"),
            ((0.5,), "time (ns)", "500"),
            ((), "time (µs)", None),
        ],
    )
    def test_times_of_a_table_have_one_unit_that_suits(self, times, unit, first):
        table = self.table(*times)
        assert table.columns == ["one", unit, "share"]
        if first is not None:
            assert table.shown[0][1].text == first
            assert table.shown[0][1].value == times[0]

    def test_a_long_table_scrolls_within_itself(self):
        assert not self.table(*range(1, 20)).tall
        assert self.table(*range(1, 2_000)).tall


class TestPictures:
    @pytest.mark.parametrize("ports", ["by_rail", "by_domain"])
    @pytest.mark.parametrize("outside", ["fat_tree", "hyperx"])
    def test_a_domain_stands_above_its_switch_and_below_its_ports(self, ports, outside):
        import json

        from allrail import _core
        from allrail.output.report.layout import Drawn, layout

        link = {"bandwidth": "400 Gb/s", "latency": "1 us"}
        joins = {
            "fat_tree": {"topology": "fat_tree", "npus": 32, "levels": 2, "link": link},
            "hyperx": {"topology": "hyperx", "shape": [4, 8], "link": link},
        }
        tree = {
            "topology": "composed",
            "domains": 8,
            "inside": {"kind": "switch", "size": 4, "bandwidth": "450 GB/s", "latency": "1 us"},
            "outside": joins[outside],
            "ports": ports,
        }
        drawn = Drawn(**json.loads(_core.graph_cables(json.dumps(tree))))
        drawing = layout(drawn)
        near = drawn.neighbours()
        npus = set(range(drawn.npus))
        inside = [n for n in range(drawn.npus, drawn.nodes) if set(near[n]) <= npus]
        assert len(inside) == 8
        for node in inside:
            mine = [drawing.at[n] for n in near[node]]
            xs = [x for x, _ in mine]
            assert drawing.at[node][1] < min(y for _, y in mine)
            assert min(xs) < drawing.at[node][0] < max(xs)
            others = [drawing.at[n][0] for n in npus - set(near[node])]
            assert not any(min(xs) <= x <= max(xs) for x in others)  # domains are not mixed
        for node in set(range(drawn.npus, drawn.nodes)) - set(inside):
            assert drawing.at[node][1] > max(drawing.at[n][1] for n in npus)

    def test_curves_that_lie_on_one_another_are_one_line(self):
        from allrail.output.curves import _lines, _used
        from allrail.search.require.bandwidth import Curve, Required
        from allrail.search.require.target import Target

        factors = tuple(2.0**k for k in range(-6, 7))
        slow = tuple(1 + 1 / f for f in factors)
        level = tuple(1.0 for _ in factors)
        curves = tuple(
            Curve(name, factors, steps)
            for name, steps in (("dim1", level), ("dim2", slow), ("all", slow))
        )
        found = Required(Target("1.2 s", 1.2), 2.0, 1.0, (), curves, False)
        assert list(_lines(found)) == ["dim1", "dim2, all"]
        assert 1.0 in _used(found)


class TestSweeps:
    @pytest.mark.parametrize(
        ("name", "value", "text"),
        [
            ("collective.size_bytes", 1 << 20, "1 MiB"),
            ("collective.size_bytes", 100_000_000, "100 MB"),
            ("time_us", 20271.0, "20.271 ms"),
            ("fabric.dimensions[0].bandwidth_gbps", 400.0, "400 Gb/s"),
            ("schedule.chunks", 64, "64"),
            ("schedule.policy", "themis", "themis"),
        ],
    )
    def test_a_value_has_its_unit(self, name, value, text):
        from allrail.output.report.sweep import with_unit

        assert with_unit(name, value) == text

    def test_every_cell_of_many_panels_has_its_number(self, tmp_path):
        study = {
            "schema_version": 1,
            "scenario": {
                "schema_version": 1,
                "fabric": "3D-SW_SW_SW_homo",
                "collective": {"kind": "all_reduce", "size": "1 MiB"},
            },
            "axes": {
                "schedule.policy": ["baseline", "themis"],
                "schedule.chunks": [1, 2, 4, 8],
                "collective.size": ["64 KiB", "1 MiB", "1 GiB"],
            },
        }
        swept = allrail.sweep(study, tmp_path / "out", workers=1)
        assert len(swept.table) == 24
        text = (tmp_path / "out" / "sweep.svg").read_text()
        shown = re.findall(r">([^<>]+)</text>", text)
        assert {"64 KiB", "1 MiB", "1 GiB", "schedule.policy themis", "time (ms)"} <= set(shown)
        numbers = [one for one in shown if re.fullmatch(r"[0-9.,]+", one)]
        assert len(numbers) >= 24
