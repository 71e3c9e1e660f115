"""The judge of calibrations: its networks are its own, and it passes what is right alone.

A calibration from drawn tables must predict other sizes, machines and collectives within 5 % in the
median and 15 % for nineteen of twenty, and its error bars cover nine of ten. `python
benches/calibration.py` draws more of them.
"""

from __future__ import annotations

import ast
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from allrail.measure.calibrate import judged as judging
from allrail.measure.calibrate import network
from allrail.measure.calibrate.fit import Piece
from allrail.scenario.fabric import Library

BENCHES = Path(__file__).parents[2] / "benches"
sys.path.append(str(BENCHES))

import calibration  # noqa: E402

SEED = 2
"""Of two dimensions; the ring is also drawn on three."""


def test_its_networks_share_no_code_with_what_it_judges():
    tree = ast.parse((BENCHES / "drawn_networks.py").read_text(encoding="utf-8"))
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            used |= {one.name.split(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            used.add((node.module or "").split(".")[0])
    assert used
    assert used <= sys.stdlib_module_names
    # And the judge takes its truths from there alone.
    assert {truth.__module__ for truth in calibration.TRUTHS.values()} == {"drawn_networks"}


def predictions(name, *, told="expect", seed=SEED):
    """What a drawn network was taken for; how far predictions are off, and the error bars."""
    made, found = calibration.drawn(name, seed)
    place, bar = (1, made.fabric["library"]["error"])
    if told == "simulate":
        place, bar = 2, made.fabric["error"]
    rest = [one for one in found if one[0] != calibration.MESSAGES]
    return made.ran, [(one[place], bar) for one in rest]


def judged(name, *, told="expect"):
    return calibration.missed(predictions(name, told=told)[1])


def test_a_ring_is_told_and_predicted():
    of_two, one = predictions("one ring", seed=0)
    of_three, other = predictions("one ring", seed=1)
    assert of_two == of_three == "a ring over all ranks"
    assert calibration.missed(one + other) == []


def test_a_tree_is_told_from_stages_by_the_sizes_between_small_and_large():
    # Small and large sizes alone are explained as well by the default schedule, which takes an
    # eighth of the time for a small all-gather.
    ran, found = predictions("nccl's ring and tree", seed=7)
    assert ran == "the faster of a ring and a tree over all ranks"
    assert calibration.missed(found) == []


def test_groups_of_another_size_are_tried_where_some_explain_tables_well():
    # Of [8, 8, 2] ranks; stages over [8, 2, 8] are near, and were once refused for the rest.
    ran, found = predictions("one ring", seed=13)
    assert ran == "a ring over all ranks"
    assert calibration.missed(found) == []


@pytest.mark.parametrize("name", calibration.TRUTHS)
def test_one_number_of_machines_leaves_open_what_ran_and_the_error_says_so(name):
    # Stages and a ring explain two tables alike, and differ wherever there is no table.
    draw = random.Random(50)
    network_drawn = calibration.Network(draw, 2)
    truth, whole = calibration.TRUTHS[name](network_drawn), list(network_drawn.sizes)
    parts = ([whole[0], 1], whole)
    made = network.calibrate([calibration.table(truth, part, draw) for part in parts])
    library = Library.model_validate(made.fabric["library"])
    assert library.tables_error < 0.3
    assert library.error > 2 * library.tables_error
    for part in parts:
        assert library.error_of("all_reduce", part) == library.tables_error
    elsewhere = [("all_reduce", [whole[0], whole[1] // 2]), ("all_gather", whole)]
    inside = []
    for collective, part in elsewhere:
        assert library.error_of(collective, part) == library.error
        for size in calibration.ASKED:
            off = made.predict_us(collective, part, size) / truth(collective, part, size) - 1
            inside.append(abs(off) <= library.error)
    assert sum(inside) >= 0.9 * len(inside)


@pytest.fixture(scope="module")
def halving():
    """A calibration under the default schedule, and the fit that it made."""
    fits = []

    def kept(tables, nic):
        fits.append(plain(tables, nic))
        return fits[-1]

    plain, network.fitted = network.fitted, kept
    try:
        ran, found = predictions("stages of halving", told="simulate")
    finally:
        network.fitted = plain
    assert ran == "the default schedule"
    assert calibration.missed(found) == []
    return fits[0]


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_planted_error_of_the_rates_is_seen(halving, monkeypatch, factor):
    found, own = halving
    rates = tuple(factor * rate for rate in found.joint.rates)
    wrong = replace(found, joint=replace(found.joint, rates=rates))
    monkeypatch.setattr(network, "fitted", lambda *_: (wrong, own))
    missed = judged("stages of halving", told="simulate")
    assert any(one.startswith("median") for one in missed)


def test_a_planted_error_of_the_tables_fits_is_seen(halving, monkeypatch):
    plain = judging.fit

    def halved(rows):
        made = plain(rows)
        pieces = (Piece(p.first, p.last, p.fixed_us / 2, p.us_per_byte / 2) for p in made.pieces)
        return replace(made, pieces=tuple(pieces))

    monkeypatch.setattr(network, "fitted", lambda *_: halving)
    monkeypatch.setattr(judging, "fit", halved)
    missed = judged("stages of halving")
    assert any(one.startswith("median") for one in missed)
