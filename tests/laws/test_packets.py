"""Packets of a dimension: every network model takes its goodput, and results say both rates."""

from __future__ import annotations

import pytest

import allrail
from allrail.base.errors import InputError
from allrail.scenario.dimensions import aggregate
from allrail.scenario.fields import table

PACKETS = {row["name"]: (row["payload"], row["header"]) for row in table("packets")}
KINDS = ("ring", "fully_connected", "switch")
NETWORK_MODELS = ("dims", "links", "flows", "packets")


def dimension(kind, bandwidth, **keys):
    return {
        "kind": kind,
        "size": 4,
        "links": 3 if kind == "fully_connected" else 2,
        "bandwidth": bandwidth,
        "latency": "1 us",
        **keys,
    }


def reduce(one, *, network_model="dims", chunks=2):
    return allrail.simulate(
        {
            "schema_version": 1,
            "fabric": {"name": "one", "dimensions": [one]},
            "collective": {"kind": "all_reduce", "size": "64 MB"},
            "schedule": {"chunks": chunks},
            "network_model": network_model,
        }
    )


def goodput(name):
    """Of links of 100 GB/s, in whole bytes a second."""
    payload, header = PACKETS[name]
    return f"{100 * 10**9 * payload // (payload + header)} B/s"


@pytest.mark.parametrize("network_model", NETWORK_MODELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["nvlink", "tcp"])
def test_every_network_model_takes_the_goodput(name, kind, network_model):
    framed = reduce(dimension(kind, "100 GB/s", packet=name), network_model=network_model)
    plain = reduce(dimension(kind, goodput(name)), network_model=network_model)
    bare = reduce(dimension(kind, "100 GB/s"), network_model=network_model)
    assert framed.time_us == pytest.approx(plain.time_us, rel=1e-6)
    assert framed.time_us > bare.time_us * 1.02
    if network_model != "packets":
        assert framed.utilisation == pytest.approx(plain.utilisation, rel=1e-6)


@pytest.mark.parametrize("name", PACKETS)
def test_results_say_both_rates(name):
    payload, header = PACKETS[name]
    one = reduce(dimension("ring", "100 GB/s", packet=name)).dimensions[0]
    assert one.line_rate_gbps == 1600
    assert one.bandwidth_gbps == pytest.approx(1600 * payload / (payload + header))
    assert one.header_bytes_per_npu == pytest.approx(one.bytes_per_npu * header / payload, abs=1)
    plain = reduce(dimension("ring", "100 GB/s")).dimensions[0]
    assert (plain.line_rate_gbps, plain.header_bytes_per_npu) == (None, 0)
    # In `dims` and in `links` a ring of one chunk takes the same.
    ring = dimension("ring", "100 GB/s", packet=name)
    times = [
        reduce(ring, network_model=network_model, chunks=1).time_us
        for network_model in ("dims", "links")
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-6)


@pytest.mark.parametrize("name", PACKETS)
def test_python_counts_as_the_core_does(name):
    for keys in (
        {"packet": name},
        {"packet": name, "payload": "2 KiB"},
        {"packet": name, "header": "1 B"},
        {"payload": "96 B", "header": "32 B"},
        {"payload": "96 B"},
        {},
    ):
        one = dimension("switch", "50 GB/s", **keys)
        rate = reduce(one).dimensions[0].bandwidth_gbps
        assert 8e-9 * aggregate(one) == pytest.approx(rate, rel=1e-9), keys


def test_a_training_step_takes_longer_and_says_so(folder, allrail_cli):
    tree = {
        "schema_version": 1,
        "fabric": {"name": "one", "dimensions": [dimension("ring", "10 GB/s", packet="pcie")]},
        "workload": {"model": "resnet50", "compute": {"device": "a100"}},
    }
    framed = allrail.simulate(tree)
    tree["fabric"]["dimensions"][0].pop("packet")
    assert framed.step_time_us > allrail.simulate(tree).step_time_us
    assert framed.dimensions[0].line_rate_gbps == 160
    told = allrail_cli("simulate", "scenario.yaml", "--set", "fabric.dimensions[0].packet=roce")
    assert told.status == 0, told.stderr
    [head] = [line.split() for line in told.stdout.splitlines() if line.startswith("dimension")]
    [first] = [line.split() for line in told.stdout.splitlines() if line.startswith("dim1")]
    told_rates = dict(zip(head, first, strict=True))
    assert float(told_rates["npu_GB/s"]) / float(told_rates["line_GB/s"]) == pytest.approx(
        4096 / 4178, rel=1e-4
    )


def test_bad_packets_are_refused():
    with pytest.raises(InputError, match="not a kind of packet") as caught:
        reduce(dimension("ring", "1 GB/s", packet="infinband"))
    assert "`infiniband`" in caught.value.hint
    with pytest.raises(InputError, match="how many bytes a packet carries"):
        reduce(dimension("ring", "1 GB/s", header="64 B"))


def test_a_machine_on_pci_express():
    """The preset's levels, by hand: rings of 4 and 2, a switch of 16; 100 MB in one chunk."""
    result = allrail.simulate(
        {
            "schema_version": 1,
            "fabric": "v100-pcie",
            "collective": {"kind": "all_reduce", "size": "100 MB"},
            "schedule": {"chunks": 1},
        }
    )
    sent = [2 * 100e6 * 3 / 4, 2 * 25e6 / 2, 2 * 12.5e6 * 15 / 16]
    rates = [12e9, 2.5e9, 12.5e9 / 8]
    steps = [(4, 5.7), (2, 5.7), (8, 14.0)]
    by_hand = sum(1e6 * s / r for s, r in zip(sent, rates, strict=True))
    by_hand += sum(count * latency for count, latency in steps)
    assert result.time_us == pytest.approx(by_hand, rel=1e-4)
    # Gradients over servers: the GPUs' gradients are summed in host memory, or among themselves.
    times = {
        local: allrail.simulate(
            {
                "schema_version": 1,
                "fabric": "v100-pcie",
                "workload": {"model": "resnet50", "compute": {"device": "v100"}},
                "schedule": {
                    "tensor": {
                        "policy": "bytescheduler",
                        "exchange": "parameter_server",
                        "servers": {"local": local, **host},
                    }
                },
            }
        ).step_time_us
        for local, host in (("npus", {}), ("host", {"host": "24 GB/s"}))
    }
    assert times["host"] != times["npus"]
