"""NumPy's numbers in scenarios are numbers."""

from __future__ import annotations

import numpy as np
import pytest

import allrail
from allrail.base.errors import InputError

DIMENSION = {"kind": "switch", "links": 1, "bandwidth": "50 GB/s", "latency": "1 us"}


def tree(number, count) -> dict:
    return {
        "schema_version": number(1),
        "fabric": {"dimensions": [{**DIMENSION, "size": number(8)}] * 2},
        "collective": {"kind": "all_reduce", "size": "1 MiB", "dimensions": count([0, 1])},
        "schedule": {"chunks": number(4)},
    }


@pytest.mark.parametrize("number", [np.int64, np.int32, np.uint8])
def test_numbers_and_arrays_are_those_of_python(number):
    ours, theirs = tree(int, list), tree(number, np.array)
    assert allrail.Scenario(**theirs).to_json() == allrail.Scenario(**ours).to_json()
    assert allrail.load_scenario(theirs).to_json() == allrail.load_scenario(ours).to_json()


def test_what_is_no_whole_number_is_still_refused():
    with pytest.raises(InputError, match="chunks"):
        allrail.load_scenario({**tree(int, list), "schedule": {"chunks": np.float64(1.5)}})
