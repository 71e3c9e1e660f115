"""What a report of training steps says: of which result, under which heading, and what helps."""

from __future__ import annotations

import dataclasses
import html
import re

import pytest

import allrail
from allrail.compared import SAME, equally_fast, leaders
from allrail.report import training_tables
from allrail.report.advice import advice, levers
from allrail.report.training_page import page
from allrail.results.training import describe
from allrail.results.units import show_number
from allrail.results.write import input_tree
from allrail.training_result import Memory

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
    return allrail.simulate_training(scenario())


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
        rows = allrail.what_ifs(scenario(), ["all"], result=step)
        said = self.told(step, [one.to_dict() for one in rows])
        first = next(text for text in said if text.startswith("What would help most"))
        assert "nfinite" not in first
        assert any(text.startswith("Infinite bandwidth, the limit") for text in said)

    def test_what_was_simulated_counts_as_it_is(self, step):
        rows = {one.name: one for one in allrail.what_ifs(scenario(), ["dim2_x2"], result=step)}
        found = levers(step, what_ifs=[rows["dim2_x2"].to_dict()], scenario=input_tree(scenario()))
        mine = next(one for one in found if "dim2" in one.text)
        assert mine.simulated
        assert mine.gain == pytest.approx(1 - 1 / rows["dim2_x2"].speedup)

    @pytest.mark.parametrize("dimension", [0, 1])
    def test_twice_the_bandwidth_gains_no_more_than_is_said(self, step, dimension):
        fabric = STEP["fabric"]["dimensions"][dimension]["bandwidth"]
        twice = f"{2 * float(fabric.split()[0])} Gb/s"
        path = f"fabric.dimensions[{dimension}].bandwidth"
        faster = allrail.simulate_training(STEP, sets={path: twice})
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
