"""A job's secret under torchrun: no text of the store, which all users of a host read, has it."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

import allrail.torch as art  # noqa: E402
import allrail.torch.backend  # noqa: E402, F401 - torch knows `allrail` by it
from allrail.runtime import agreement, nodes  # noqa: E402

FILE = "5a" * 32


class Watched:
    """A store, and a list of what is set there."""

    def __init__(self, store, texts):
        self._store, self._texts = store, texts

    def set(self, key, value):
        self._texts.append(value)
        self._store.set(key, value)

    def compare_set(self, key, expected, value):
        self._texts.append(value)
        return self._store.compare_set(key, expected, value)

    def __getattr__(self, name):
        return getattr(self._store, name)


def of_a_job(rank, kind, folder):
    """The texts that this rank sets, and the secrets of the nodes that it makes."""
    texts, secrets = [], []
    as_it_was, node = agreement.Agreement.__init__, nodes.Node

    def init(self, store, *arguments, **options):
        as_it_was(self, Watched(store, texts), *arguments, **options)

    def made(settings):
        secrets.append(json.loads(settings)["secret"])
        return node(settings)

    agreement.Agreement.__init__, nodes.Node = init, made
    keys = {"schema_version": 1}
    if kind == "file":
        keys |= {"secret": str(folder / "job.secret")}
    elif kind == "store":
        keys |= {"secret": "store"}
    (folder / f"{rank}.json").write_text(json.dumps(keys))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALLRAIL_JOB", str(folder / f"{rank}.json"))
        model = nn.Linear(8, 8)
        if kind == "backend":
            dist.init_process_group("allrail")
            tensor = torch.ones(3)
            dist.all_reduce(tensor)
        else:
            transport = "c10d" if kind == "c10d" else "auto"
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model, optimizer = art.schedule(model, optimizer, transport=transport)
            model(torch.ones(1, 8)).sum().backward()
            optimizer.step()
            art.synchronize(model)
    return texts, secrets


@pytest.mark.parametrize("kind", ["nothing", "c10d", "store", "file", "backend"])
def test_no_text_of_the_store_has_the_secret(kind, on_ranks, tmp_path):
    (tmp_path / "job.secret").write_text(FILE)
    (tmp_path / "job.secret").chmod(0o600)
    ranks = on_ranks(
        lambda rank: of_a_job(rank, kind, tmp_path),
        ranks=3,
        group=kind not in {"backend", "nothing"},
    )
    for texts, secrets in ranks:
        assert texts
        assert secrets == ranks[0][1]
        assert {len(secret) for secret in secrets} == {64}
        assert (FILE in secrets) == (kind == "file")
        assert not any(secret in text for secret in secrets for text in texts)
