"""InfraGraph's YAML: the nodes and edges that InfraGraph's own service makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import allrail
from allrail.scenario import load_any_fabric
from allrail.simulation.graphs import graph_fabric, infragraph, measure

FILE = """
name: two-hosts
devices:
- name: host
  components:
  - {name: xpu, count: 4, choice: xpu, xpu: {}}
  - {name: nic, count: 4, choice: nic, nic: {}}
  - {name: nvsw, count: 1, choice: custom, custom: {type: nvswitch}}
  links:
  - {name: nvlink, physical: {bandwidth: {choice: gigabytes_per_second, gigabytes_per_second: 450}}}
  - {name: pcie, physical: {bandwidth: {choice: gigabits_per_second, gigabits_per_second: 512},
                            latency: {choice: ns, ns: 150}}}
  edges:
  - {ep1: {component: xpu}, ep2: {component: nvsw}, scheme: many2many, link: nvlink}
  - {ep1: {component: "xpu[0:4]"}, ep2: {component: "nic[::1]"}, scheme: one2one, link: pcie}
- name: switch
  components:
  - {name: asic, count: 1, choice: switch, switch: {}}
  - {name: port, count: 8, choice: port, port: {}}
  links: [{name: ic, physical: {bandwidth: {gigabits_per_second: 400}}}]
  edges:
  - {ep1: {component: asic}, ep2: {component: "port[:]"}, scheme: many2many, link: ic}
links:
- {name: eth, physical: {bandwidth: {choice: gigabits_per_second, gigabits_per_second: 400},
                         latency: {choice: us}}}
instances:
- {name: host, device: host, count: 2}
- {name: leaf, device: switch, count: 1}
edges:
- {ep1: {instance: "host[0]", component: nic}, ep2: {instance: leaf, component: "port[:4]"},
   scheme: one2one, link: eth}
- {ep1: {instance: "host[-1]", component: nic}, ep2: {instance: "leaf[0]", component: "port[4:]"},
   scheme: one2one, link: eth}
"""


@pytest.fixture
def fabric(tmp_path, monkeypatch):
    """A fabric whose graph is an InfraGraph file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.yaml").write_text(FILE)
    path = tmp_path / "fabric.yaml"
    path.write_text("schema_version: 1\nname: two\ntopology: graph\nfile: two.yaml\n")
    return str(path)


def test_components_are_nodes_and_edges_are_cables(fabric):
    keys = load_any_fabric(fabric).keys
    assert keys["npus"] == [f"host.{i}.xpu.{k}" for i in range(2) for k in range(4)]
    assert len(keys["switches"]) == 2 * 5 + 9
    links = {(link["from"], link["to"]): link for link in keys["links"]}
    # Of each host 4 + 4, of the switch 8, and 8 cables between them.
    assert len(links) == 2 * 8 + 8 + 8
    assert links["host.1.xpu.2", "host.1.nvsw.0"]["bandwidth"] == "450 GB/s"
    assert links["host.0.xpu.3", "host.0.nic.3"] == {
        "from": "host.0.xpu.3",
        "to": "host.0.nic.3",
        "bandwidth": "512 Gb/s",
        "latency": "150 ns",
    }
    assert links["host.1.nic.0", "leaf.0.port.4"]["bandwidth"] == "400 Gb/s"
    assert measure(fabric)["npus"] == 8


def test_a_collective_runs_on_it(fabric, tmp_path):
    (tmp_path / "step.yaml").write_text(
        "schema_version: 1\nfabric: fabric.yaml\ncollective: {kind: all_reduce, size: 64 MiB}\n"
        "network_model: flows\n"
    )
    result = allrail.simulate(tmp_path / "step.yaml")
    # Half of the buffer twice over the four NICs of 400 Gb/s between the hosts: 335.5 µs at least.
    assert result.time_us >= (64 << 20) / 200e9 * 1e6


def test_what_is_written_has_the_same_nodes_and_edges(fabric, tmp_path):
    before = load_any_fabric(fabric).keys
    (tmp_path / "again.yaml").write_text(infragraph(fabric))
    again = tmp_path / "second.yaml"
    again.write_text("schema_version: 1\ntopology: graph\nfile: again.yaml\n")
    after = load_any_fabric(str(again)).keys
    assert sorted(after["npus"]) == sorted(before["npus"])
    assert sorted(after["switches"]) == sorted(before["switches"])
    ends = [
        {frozenset((link["from"], link["to"])) for link in one["links"]} for one in (before, after)
    ]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("name", ["fat-tree-1k", "hx2mesh-1k", "torus-1k"])
def test_presets_keep_their_counts(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "it.yaml").write_text(infragraph(name))
    path = tmp_path / "fabric.yaml"
    path.write_text("schema_version: 1\ntopology: graph\nfile: it.yaml\n")
    tree = yaml.safe_load((tmp_path / "it.yaml").read_text())
    counts = {one["name"]: one["count"] for one in tree["instances"]}
    assert counts["npu"] == measure(name)["npus"]
    keys = load_any_fabric(str(path)).keys
    assert len(keys["npus"]) == counts["npu"]
    assert len(keys["links"]) == len(tree["edges"])


BAD = {
    "a device that is not there": ("device: switch,", "device: swich,", "no such device"),
    "an instance that is not there": ("instance: leaf,", "instance: leave,", "no such instance"),
    "a link that is not there": ("link: eth}", "link: ether}", "no such link"),
    "an index beyond": ('"host[-1]"', '"host[2]"', "beyond what is there"),
    "a scheme": ("scheme: one2one, link: eth}", "scheme: ring, link: eth}", "scheme is not read"),
    "no accelerator": ("choice: xpu, xpu: {}", "choice: cpu, cpu: {}", "no component is an `xpu`"),
    "no rate": ("{gigabits_per_second: 400}}}]", "{}}}]", "link has no bandwidth"),
    "transfers": ("choice: gigabytes_per_second, gigabytes_per_second: 450",
                  "choice: gigatransfers_per_second, gigatransfers_per_second: 32", "not known"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_mistakes_name_their_line(fabric, tmp_path, allrail_cli, name):
    old, new, told = BAD[name]
    assert old in FILE
    (tmp_path / "two.yaml").write_text(FILE.replace(old, new, 1))
    outcome = allrail_cli("fabric", "show", fabric)
    assert outcome.status == 2, outcome
    assert told in outcome.stderr
    assert "two.yaml:" in outcome.stderr
    assert "hint: " in outcome.stderr


EARLIER = """
devices:
  - {name: host, components: [{name: xpu, count: 2, type: xpu}], connections: [xpu.0.pcie.xpu.1]}
instances: [{name: host, count: 2, device: host}]
connections: [host.0.xpu.0.eth.host.1.xpu.0]
"""
LOOKALIKES = {
    "drafts": (EARLIER, "joins ends by `connections`", "write each as an edge"),
    "wrapped": (
        "infrastructure:\n" + EARLIER.replace("\n", "\n  "),
        "joins ends by `connections`",
        "write each as an edge",
    ),
    "around": ("infrastructure:" + FILE.replace("\n", "\n  "), "stands around it", "take that key"),
    "devices": (FILE.partition("instances:")[0], "no `instances` of them", "add `instances:"),
}


@pytest.mark.parametrize("name", LOOKALIKES)
def test_what_is_no_infrastructure_is_told_as_what_it_is(tmp_path, allrail_cli, name):
    text, why, hint = LOOKALIKES[name]
    (tmp_path / "infrastructure.yaml").write_text(text)
    file = tmp_path / "fabric.yaml"
    file.write_text("schema_version: 1\ntopology: graph\nfile: infrastructure.yaml\n")
    told = allrail_cli("fabric", "show", str(file))
    assert told.status == 2
    assert told.stderr.startswith("error: ")
    assert why in told.stderr
    assert f"hint: {hint}" in told.stderr


def test_one_link_stands_for_all_without_a_rate(fabric, tmp_path):
    (tmp_path / "two.yaml").write_text(FILE.replace("{gigabits_per_second: 400}}}]", "{}}}]", 1))
    text = Path(fabric).read_text()
    Path(fabric).write_text(f"{text}link: {{bandwidth: 100 Gb/s}}\n")
    assert measure(fabric)["npus"] == 8


def blueprints():
    """Infrastructures of InfraGraph's own package, by name."""
    single = pytest.importorskip("infragraph.blueprints.fabrics.single_tier_fabric")
    from infragraph.blueprints.devices.generic.generic_switch import Switch
    from infragraph.blueprints.devices.generic.server import Server
    from infragraph.blueprints.devices.nvidia.dgx import NvidiaDGX
    from infragraph.blueprints.fabrics.clos_fat_tree_fabric import ClosFatTreeFabric
    from infragraph.blueprints.fabrics.dragonfly_fabric import DragonflyFabric

    yield "single", single.SingleTierFabric(Server(2), 4)
    yield "clos2", ClosFatTreeFabric(Switch(16), NvidiaDGX(), 2, [])
    yield "clos3", ClosFatTreeFabric(Switch(4), Server(), 3, [])
    yield "dragonfly", DragonflyFabric(Switch(8), Server(1), 4, 2, 2)
    for profile in ("dgx1", "dgx2", "dgx_h100", "dgx_gb200"):
        yield profile, single.SingleTierFabric(NvidiaDGX(profile), 2)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_blueprints_have_the_nodes_and_edges_of_their_own_service(tmp_path):
    pytest.importorskip("infragraph")
    from infragraph.infragraph_service import InfraGraphService

    for name, whole in blueprints():
        service = InfraGraphService()
        service.set_graph(whole)
        graph = service.get_networkx_graph()
        (tmp_path / f"{name}.yaml").write_text(whole.serialize("yaml"))
        path = tmp_path / "fabric.yaml"
        path.write_text(
            f"schema_version: 1\ntopology: graph\nfile: {name}.yaml\n"
            "link: {bandwidth: 400 Gb/s}\n"
        )
        keys = load_any_fabric(str(path)).keys
        assert {*keys["npus"], *keys["switches"]} == set(graph.nodes), name
        assert set(keys["npus"]) == {n for n, kind in graph.nodes(data="type") if kind == "xpu"}
        ours = {frozenset((link["from"], link["to"])) for link in keys["links"]}
        assert ours == {frozenset(edge) for edge in graph.edges}, name
        assert len(keys["links"]) == len(ours)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_infragraph_s_own_service_takes_what_is_written(tmp_path):
    pytest.importorskip("infragraph")
    from infragraph import Infrastructure
    from infragraph.infragraph_service import InfraGraphService

    for name in ("fat-tree-1k", "hx2mesh-1k"):
        service = InfraGraphService()
        service.set_graph(Infrastructure().deserialize(infragraph(name)))
        graph = service.get_networkx_graph()
        links = json.loads(allrail._core.graph_links(graph_fabric(name).model_dump_json()))
        assert graph.number_of_nodes() == links["nodes"]
        between = {frozenset(link[:2]) for link in links["links"]}
        assert graph.number_of_edges() == len(between)
