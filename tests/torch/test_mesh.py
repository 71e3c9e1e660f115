"""`schedule(mesh=...)`: the groups of a `DeviceMesh` say which ranks each dimension joins."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402

import allrail.torch as art  # noqa: E402
from allrail.base.errors import InputError  # noqa: E402
from allrail.torch import carrier  # noqa: E402


def fabric(*sizes):
    one = {"kind": "switch", "bandwidth": "1 Gb/s", "latency": "50 us"}
    return {"schema_version": 1, "fabric": {"dimensions": [{**one, "size": n} for n in sizes]}}


def built():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(9, 33), nn.Tanh(), nn.Linear(33, 4))


def trained(rank, model, optimizer):
    torch.manual_seed(rank)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(5, 9)).square().sum().backward()
        # A collective of the script's own, in the group that a mesh of one dimension has.
        dist.all_reduce(torch.ones(3))
        optimizer.step()
    art.synchronize()


def on_a_mesh(rank):
    met = set()
    plain = carrier.Carrier._start

    def noted(self, launch, chunk, group, size):
        met.add((launch.dimension, tuple(dist.get_process_group_ranks(group))))
        return plain(self, launch, chunk, group, size)

    carrier.Carrier._start = noted
    found = {}
    for name, grid in (
        ("square", init_device_mesh("cpu", (2, 2))),
        ("line", init_device_mesh("cpu", (4,))),
        # Dimensions in another order: they are known by whom they join.
        ("turned", DeviceMesh("cpu", [[0, 2], [1, 3]])),
    ):
        met.clear()
        model = built()
        sgd = torch.optim.SGD(model.parameters(), lr=0.01)
        art.schedule(model, sgd, mesh=grid)
        mine = art._of(model)[0]._carrier._carrier._groups
        theirs = [grid.get_group(i) for i in range(grid.mesh.ndim)]
        apart = not any(one is other for one in mine for other in theirs)
        trained(rank, model, sgd)
        found[name] = sorted(met), apart
        flat = torch.cat([each.detach().reshape(-1) for each in model.parameters()])
        every = [torch.empty_like(flat) for _ in range(4)]
        dist.all_gather(every, flat)
        assert all(torch.equal(flat, each) for each in every), name
        art.release(model)
    carrier.Carrier._start = plain
    return found


def test_a_dimension_joins_the_ranks_of_its_group(on_ranks):
    for rank, found in enumerate(on_ranks(on_a_mesh, ranks=4)):
        square = [(0, (rank & 2, rank | 1)), (1, (rank & 1, rank | 2))]
        assert found["square"] == (square, True)
        assert found["turned"] == (square, True)
        assert found["line"] == ([(0, (0, 1, 2, 3))], True)


def refused(rank):
    model = built()
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    line = init_device_mesh("cpu", (4,))
    said = {}
    for name, options in {
        "no mesh": {"mesh": [[0, 1], [2, 3]]},
        "other sizes": {"mesh": square, "job": fabric(4)},
        "a part": {"mesh": square["inner"]},
        "native": {"mesh": square, "transport": "native"},
        "ranks differ": {"mesh": line if rank == 3 else square},
    }.items():
        try:
            art.schedule(model, sgd, **options)
        except InputError as error:
            said[name] = str(error)
    return said


REFUSED = {
    "no mesh": ("`mesh` is `list`: it is no `DeviceMesh`", "init_device_mesh"),
    "other sizes": ("`mesh` is `(2, 2) over 4 ranks`: it joins other ranks", "shape (4)"),
    "a part": ("it has 2 of the 4 ranks of the job", "a mesh of all"),
    "native": ("another transport is asked for", '`"c10d"`'),
    "ranks differ": ("rank 3 has", "the same `DeviceMesh`"),
}


def test_a_mesh_that_cannot_be_is_refused_on_all_ranks(on_ranks):
    for said in on_ranks(refused, ranks=4):
        assert said.keys() == REFUSED.keys()
        for name, (why, hint) in REFUSED.items():
            assert why in said[name], said[name]
            assert hint in said[name].partition("hint: ")[2], said[name]
