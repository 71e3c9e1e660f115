"""A device's file fitted to times that the test has made up, of a device that it knows."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest

from allrail import _core
from allrail.base.errors import InputError
from allrail.measure.calibrate.device.fit import fit
from allrail.measure.calibrate.device.points import Attention, Means, Product, Start, Stream, grid
from allrail.measure.calibrate.device.run import run
from allrail.measure.calibrate.device.steady import FEWEST, ROUNDS, Series, fill

TRUTH: dict[str, Any] = {
    **next(one for one in json.loads(_core.devices()) if one["name"] == "h100"),
    "name": "truth",
}
STARTS = {"device": 2e-6, "eager": 6e-6, "compiled": 3e-6, "graph": 1e-6, "blocking": 32e-6}


class Made:
    """A device whose times are those of a file, with noise; its clock is what it has measured."""

    name, about, units, cache, lasts = "made", "Made up", 132, 50 << 20, 0.001
    memory = 80 << 30

    def __init__(self, *, noise=0.0, held_up=0.0, changed=lambda _point: 1.0, truth=TRUTH, seed=0):
        self.truth, self.changed = json.dumps(truth), changed
        self.noise, self.held_up = noise, held_up
        self.random, self.now, self.kinds = random.Random(seed), 0.0, ("flash_2", "flash_3")

    def means(self, seconds):
        rates = {"fp32": 60e12, "bf16": 700e12, "fp8": 1200e12}
        kinds = dict.fromkeys(self.kinds, 3e14)
        return Means(rates, kinds, tuple(STARTS), 20 << 30, self.cache, 2e-5, seconds / 300)

    def seconds(self, point):
        if isinstance(point, Start):
            return STARTS[point.mode]
        return _core.kernel_seconds(self.truth, json.dumps([point.kernel()]))[0]

    def batch(self, point):
        seconds = self.seconds(point) * self.changed(point)

        def batch(count):
            time = seconds * self.random.lognormvariate(0, self.noise)
            time *= self.random.uniform(2, 5) if self.random.random() < self.held_up else 1
            self.now += count * time
            return time

        return batch

    def busy(self):
        return []

    def how(self):
        return "made up"

    def fitted(self, seconds=6):
        return fit(run(self, seconds=seconds, clock=lambda: self.now))


def rate(text):
    value, unit = text.split()
    return float(value) * {"T": 1e12, "G": 1e9}[unit[0]]


def reached(file, name):
    return rate(file["peak"][name]) * file["kernels"]["reached"][name]


@pytest.mark.parametrize(
    ("noise", "held_up", "near"), [(0.0, 0.0, 0.01), (0.03, 0.0, 0.03), (0.03, 0.2, 0.05)]
)
def test_a_known_device_is_found_again(noise, held_up, near):
    fitted = Made(noise=noise, held_up=held_up).fitted()
    kernels, truth = fitted.file["kernels"], TRUTH["kernels"]
    for name in ("fp32", "bf16", "fp8"):
        # A product's ends take time, too: the fastest that is seen is that much below.
        assert reached(fitted.file, name) == pytest.approx(reached(TRUTH, name), rel=near + 0.02)
    bandwidth = _core.parse_quantity("bandwidth", fitted.file["memory_bandwidth"])
    truly = _core.parse_quantity("bandwidth", TRUTH["memory_bandwidth"])
    assert bandwidth * kernels["stream"] == pytest.approx(truly * truth["stream"], rel=near)
    found = {(one["kind"], one["head"]): one for one in kernels["attention"]}
    for one in truth["attention"]:
        if (one["kind"], one["head"]) in found:
            mine = found[one["kind"], one["head"]]
            for way in ("forward", "backward"):
                assert rate(mine[way]) == pytest.approx(rate(one[way]), rel=max(0.03, 3 * near))
    assert {("flash_2", 64), ("flash_3", 128), ("flash_3", 256)} <= set(found)
    for name, seconds in ((name, STARTS[name]) for name in ("eager", "compiled", "graph")):
        took = _core.parse_quantity("time", kernels["launch"][name]) / 1e12
        assert took == pytest.approx(seconds, rel=max(0.01, near))
    large = [abs(row.off) for row in fitted.rows if not row.cached]
    assert sorted(large)[len(large) // 2] <= max(0.01, near)


def test_a_shape_that_the_model_does_not_know_moves_no_other():
    fitted = Made(changed=lambda point: 3.0 if getattr(point, "rows", 0) == 16 else 1.0).fitted()
    assert reached(fitted.file, "bf16") == pytest.approx(reached(TRUTH, "bf16"), rel=0.02)
    told = [row.off for row in fitted.rows if getattr(row.measured.point, "rows", 0) == 16]
    assert told
    assert all(off < -0.5 for off in told)


def test_the_file_is_one_that_a_step_takes(folder, allrail_cli):
    (folder / "mine.json").write_text(json.dumps(Made().fitted().file))
    (folder / "step.yaml").write_text(
        "schema_version: 1\n"
        "fabric: {dimensions: [{kind: ring, size: 2, bandwidth: 50 GB/s, latency: 1 us}]}\n"
        "workload: {model: gpt2, batch_per_replica: 4, compute: {device: mine.json}}\n"
    )
    done = allrail_cli("simulate", "step.yaml")
    assert done.status == 0, done.stderr


def test_nothing_is_faster_than_the_peak_that_was_measured():
    for name, one in Made(noise=0.05).fitted().file["kernels"]["reached"].items():
        assert one <= 1, name
    faster = Made(changed=lambda point: 0.2 if isinstance(point, Attention) else 1.0)
    with pytest.raises(InputError, match="faster than the fastest product") as refused:
        faster.fitted()
    assert "measure again" in refused.value.hint
    # Where one half of the gradient alone asks for it, a slower one is taken.
    rates = [
        rate(one[way])
        for one in Made(noise=0.3).fitted().file["kernels"]["attention"]
        for way in ("forward", "backward")
    ]
    assert max(rates) <= rate(Made(noise=0.3).fitted().file["peak"]["bf16"])


def test_what_was_not_measured_is_said_and_what_is_needed_is_asked_for():
    class Without(Made):
        def batch(self, point):
            if isinstance(point, Product) and point.format == self.lacks:
                raise RuntimeError("no such kernel\nand more")
            return super().batch(point)

    device = Without()
    device.lacks = "fp8"
    found = run(device, seconds=3, clock=lambda: device.now)
    assert any("not measured, no such kernel" in note for note in found.notes)
    assert "fp8" not in fit(found).file["peak"]
    device.lacks = "bf16"
    with pytest.raises(InputError, match="products in bf16 could not be measured"):
        device.fitted()


def test_a_machine_that_is_not_calm_is_named():
    class Hot(Made):
        def seconds(self, point):
            return super().seconds(point) * (1 + self.now / 6)

    for device, told in ((Hot(), "slower while it was measured"), (Made(noise=0.2), "scatter")):
        found = run(device, seconds=6, clock=lambda device=device: device.now)
        assert any(told in warning for warning in found.warnings)
        assert told in found.how
    assert not run(Made(noise=0.01), seconds=6, clock=iter(range(10**9)).__next__).warnings


def test_what_is_steady_leaves_its_time_to_others():
    calm = Series([[1.0, 1.001, 0.999], [1.0, 1.0, 1.0]])
    assert calm.steady
    assert not Series([[1.0, 1.0, 1.0]]).steady, "one round may lie within a burst"
    assert not Series([[1.0, 1.3, 0.7], [1.0, 1.4, 0.8]]).steady
    now = iter(range(1000))
    series = Series()
    fill(series, lambda _: 0.1, lasts=0.005, until=40, clock=lambda: next(now))
    assert FEWEST < len(series.rounds[0]) <= 60
    fill(series, lambda _: 0.1, lasts=0.005, until=0, clock=lambda: next(now))
    assert len(series.rounds[1]) == FEWEST
    assert ROUNDS > 1


def test_the_grid_has_what_there_is_time_for():
    def means(longest, memory=20 << 30):
        return Means({"fp32": 1e11}, {"flash_2": 2e10}, ("eager",), memory, 32 << 20, 1e-4, longest)

    for longest in (0.002, 0.02, 0.1):
        points = grid(means(longest))
        assert points[0] == Start("eager")
        products = [one for one in points if isinstance(one, Product)]
        assert len(products) > 3
        assert all(one.flops / 1e11 <= max(longest, 3.4e-4) for one in products)
        assert len(set(points)) == len(points)
    sizes = [len(grid(means(longest))) for longest in (0.002, 0.02, 0.1)]
    assert all(few <= many for few, many in pairwise(sizes))
    small = [one for one in grid(means(0.1, 64 << 20)) if isinstance(one, Stream | Product)]
    assert max(one.bytes for one in small) <= 64 << 20
