"""Tables that no network gives together are refused by both names; those of one network never are.

The tables are drawn from rates and latencies by formulas of rings, trees and stages that share no
code with what is tested.
"""

from __future__ import annotations

import math
import random
import re

import pytest

from allrail.base.errors import InputError
from allrail.measure.calibrate import agree
from allrail.measure.calibrate.levels import levels_of
from allrail.measure.calibrate.table import Row, Table

NOISE = 0.03
SUMMED = ("all_reduce", "all_gather", "reduce_scatter")
COLLECTIVES = (*SUMMED, "all_to_all", "broadcast", "sendrecv")


class Network:
    """Machines of `each` ranks; rates of a rank in bytes a µs, latencies in µs."""

    def __init__(self, draw):
        self.each = draw.choice([2, 4, 8])
        self.links = draw.uniform(20, 900) * 1e3
        # Interfaces no faster than links, from an eighth of a slow one each.
        self.interface = self.links * math.exp(draw.uniform(-4, 0))
        self.steps = draw.uniform(1, 8), draw.uniform(4, 20)
        self.how = draw.choice(["ring", "tree", "stages", "in turn"])

    def time(self, collective, each, hosts, size):
        ranks, laps = each * hosts, 2 if collective == "all_reduce" else 1
        inside, outside = self.links, self.interface
        fixed = 10 + each * self.steps[0] + (hosts > 1) * math.log2(hosts) * self.steps[1]
        if collective == "sendrecv":
            return fixed + size / (outside if hosts > 1 else inside)
        if collective == "all_to_all":
            near = size * (each - 1) / ranks / inside
            return fixed + max(near, size * (1 - 1 / hosts) / outside)
        if collective == "broadcast":
            return fixed + size / min(inside, math.inf if hosts == 1 else each * outside)
        near = laps * size * (each - 1) / each / inside
        far = laps * size / each * (1 - 1 / hosts) / outside
        if self.how == "stages":
            return fixed + max(near, far)
        if self.how == "in turn":
            return fixed + near + far
        width = min(inside if each > 1 else math.inf, each * outside if hosts > 1 else math.inf)
        ring = laps * size * (1 - 1 / ranks) / width
        if self.how == "tree" and collective == "all_reduce" and hosts > 1:
            share = 1 if hosts == 2 else 2
            links = 2 * size / inside if each > 1 else 0.0
            return fixed + min(ring, max(share * size / (each * outside), links))
        return fixed + ring


def table(network, draw, collective, each, hosts, *, source=None, speed=1.0, last=None):
    first, last = draw.choice([12, 16, 20]), last or draw.choice([28, 30, 33])
    rows = tuple(
        Row(
            1 << power,
            network.time(collective, each, hosts, 1 << power)
            * math.exp(draw.gauss(0, NOISE))
            / speed,
        )
        for power in range(first, last)
    )
    name = source or f"{each}x{hosts}.txt"
    return Table(collective, each * hosts, hosts, "", rows, name)


def shapes(draw, network):
    found = {(network.each, 1)}
    found |= {(network.each, draw.choice([2, 3, 4, 8, 16])) for _ in range(draw.randint(1, 3))}
    if draw.random() < 0.3:
        found.add((1, draw.choice([2, 4, 8])))
    return sorted(found, key=lambda one: (one[0] * one[1], -one[1]))


def checked(tables):
    ordered = sorted(tables, key=lambda one: (one.ranks, -(one.hosts or 1)))
    return agree.check(ordered, levels_of(ordered)[0])


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_tables_of_one_network_are_never_refused(collective):
    draw = random.Random(collective)
    for _ in range(40):
        network = Network(draw)
        tables = [table(network, draw, collective, *one) for one in shapes(draw, network)]
        assert checked(tables) == []
        again = table(network, draw, collective, network.each, 1, source="again.txt")
        assert checked([*tables, again]) == []


@pytest.mark.parametrize("collective", [one for one in COLLECTIVES if one != "all_to_all"])
def test_more_machines_that_are_faster_are_refused_with_both_files_and_the_factor(collective):
    draw = random.Random(f"{collective} planted")
    for _ in range(25):
        network = Network(draw)
        hosts = draw.choice([2, 4, 8])
        one = table(network, draw, collective, network.each, 1, source="one.txt", last=33)
        size = one.rows[-1].bytes
        ahead = one.rows[-1].time_us / network.time(collective, network.each, hosts, size)
        faster = draw.uniform(1.45, 4)
        many = table(
            *(network, draw, collective, network.each, hosts),
            source="many.txt",
            last=32,
            speed=faster / ahead,
        )
        with pytest.raises(InputError, match=r"times what one network allows") as refused:
            checked([one, many])
        assert refused.value.source == "many.txt"
        assert f"{network.each} ranks on 1 machine of one.txt" in str(refused.value)
        factor = re.search(r"([\d.]+) times what", str(refused.value)).group(1)
        assert float(factor) == pytest.approx(faster, rel=0.15)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_the_same_ranks_twice_at_different_speeds_are_refused(collective):
    draw = random.Random(f"{collective} twice")
    for _ in range(25):
        network = Network(draw)
        hosts = draw.choice([1, 2, 4])
        shape = network.each, hosts
        one = table(network, draw, collective, *shape, source="one.txt", last=33)
        other = table(
            *(network, draw, collective, *shape),
            source="other.txt",
            speed=draw.uniform(1.4, 3),
            last=34,
        )
        with pytest.raises(InputError) as refused:
            checked([one, other])
        assert refused.value.source == "other.txt"
        assert "one.txt" in str(refused.value)


def flat(ranks, hosts, busbw, *, source=None, device="", name="all_reduce"):
    around = {"all_reduce": 2, "all_to_all": 1}[name] * (ranks - 1) / ranks
    rows = tuple(
        Row(1 << power, 30 + around * (1 << power) / busbw / 1e3) for power in range(12, 34, 2)
    )
    return Table(name, ranks, hosts, device, rows, source or f"{ranks}.txt")


@pytest.mark.parametrize("hosts", [(1, 8), (None, None)])
def test_64_ranks_are_not_faster_than_their_machines(hosts):
    with pytest.raises(
        InputError, match=r"64\.txt: its 64 ranks.* reach 519 .* 8\.txt 369\.5: 1\.25 times"
    ):
        checked([flat(8, hosts[0], 370), flat(64, hosts[1], 520)])
    # What the size over the time allows: 370 * (63 / 64) / (7 / 8), and what runs differ by.
    assert checked([flat(8, hosts[0], 370), flat(64, hosts[1], 415)]) == []


def test_clusters_are_not_mixed():
    one = flat(8, 1, 230, device="NVIDIA A100-SXM4-80GB")
    other = flat(64, 8, 180, device="NVIDIA H100 80GB HBM3")
    with pytest.raises(InputError, match=r"64.txt: .* on NVIDIA H100 .* 8.txt on NVIDIA A100"):
        checked([one, other])
    same = flat(64, 8, 180, device="NVIDIA A100-SXM4-40GB")
    assert checked([one, same]) == []
    hopper = flat(8, 1, 470, device="NVIDIA H200")
    assert checked([hopper, flat(64, 8, 380, device="NVIDIA H100 80GB HBM3")]) == []


def test_what_links_of_pairs_allow_is_said_not_refused():
    """Two of eight GPUs of a mesh share one link of seven (MI300X): a switch has no such thing."""
    [told] = checked([flat(2, 1, 45), flat(8, 1, 310)])
    assert "its 8 ranks on 1 machine reach" in told
    assert "2.txt" in told
    with pytest.raises(InputError, match="what one network allows"):
        checked([flat(2, 1, 20), flat(8, 1, 310)])
    assert checked([flat(2, 1, 310), flat(8, 1, 310)]) == []
