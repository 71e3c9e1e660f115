"""Rows of models of many small tensors, on loopback: the two lines against DDP's best bucket.

Nothing is emulated: such a step is made of what frameworks cost the host. All ways take turns in
the same processes, block by block; every block ends when all its steps are made. On two ranks the
parameters of all ways must be the same bits at the end.

Models of transformers and torchvision are left out, in a word, where these are not installed.
"""

from __future__ import annotations

import copy
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from figures import Figure, Interval
from job import Worker, run_on_host
from torch import nn

import allrail.torch as art

BUCKETS_MB = (1.0, 5.0, 25.0)
_BEYOND = 0.97
"""What the lower end of the interval must not be below."""

Made = tuple[nn.Module, Callable[[], torch.Tensor]]


@dataclass(frozen=True)
class Case:
    """A model.

    Attributes:
        make: Returns it, and what draws a batch.
        needs: The library that it is of; empty for torch itself.
        steps: Of a block; those of large models are long enough by themselves.
    """

    make: Callable[[], Made]
    needs: str = ""
    steps: int = 8


class _Output(nn.Module):
    """A model of transformers, of which the last hidden state counts."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.model(x).last_hidden_state
        return found


def _linears(count: int, width: int) -> Callable[[], Made]:
    def make() -> Made:
        model = nn.Sequential(*(nn.Linear(width, width) for _ in range(count)))
        return model, lambda: torch.randn(8, width)

    return make


def _gpt2() -> Made:
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(
        n_layer=8,
        n_embd=64,
        n_head=2,
        vocab_size=256,
        n_positions=32,
        attn_pdrop=0,
        embd_pdrop=0,
        resid_pdrop=0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return _Output(GPT2Model(config)), lambda: torch.randint(0, 256, (4, 32))


def _bert() -> Made:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        num_hidden_layers=6,
        hidden_size=128,
        num_attention_heads=2,
        intermediate_size=512,
        vocab_size=1000,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertModel(config, add_pooling_layer=False)
    return _Output(model), lambda: torch.randint(0, 1000, (4, 32))


def _mobilenet() -> Made:
    from torchvision.models import mobilenet_v3_small

    return mobilenet_v3_small(num_classes=10, dropout=0.0), lambda: torch.randn(4, 3, 32, 32)


def _vit() -> Made:
    from torchvision.models import VisionTransformer

    model = VisionTransformer(
        image_size=32,
        patch_size=8,
        num_layers=8,
        num_heads=4,
        hidden_dim=128,
        mlp_dim=256,
        num_classes=10,
    )
    return model, lambda: torch.randn(4, 3, 32, 32)


CASES = {
    "linears": Case(_linears(100, 128)),
    "100": Case(_linears(50, 16), steps=16),
    "1000": Case(_linears(500, 16), steps=4),
    "4000": Case(_linears(2000, 16), steps=2),
    "gpt2": Case(_gpt2, needs="transformers"),
    "bert": Case(_bert, needs="transformers", steps=4),
    "mobilenet": Case(_mobilenet, needs="torchvision", steps=4),
    "vit": Case(_vit, needs="torchvision", steps=4),
}
"""By the name of the row, after `small-`."""


class _Way:
    """A copy of the model, trained in one way."""

    def __init__(self, name: str, model: nn.Module, bucket: float | None) -> None:
        self.name = name
        self.model = copy.deepcopy(model)
        self.blocks: list[tuple[float, float]] = []
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self._ours = bucket is None
        self._called: nn.Module = self.model
        if bucket is None:
            art.schedule(self.model, self._optimizer)
        else:
            self._called = nn.parallel.DistributedDataParallel(self.model, bucket_cap_mb=bucket)

    def run(self, batches: Sequence[torch.Tensor]) -> None:
        """One block."""
        dist.barrier()
        begun, used = time.perf_counter(), _cpu()
        for batch in batches:
            loss = self._called(batch).square().mean()
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
        if self._ours:
            art.synchronize(self.model)
        self.blocks.append((time.perf_counter() - begun, _cpu() - used))

    def close(self) -> None:
        """Close connections."""
        if self._ours:
            art.release(self.model)


def run(name: str, *, blocks: int) -> list[Figure]:
    """Run a case on 2 and on 4 ranks.

    Args:
        name: Which.
        blocks: How many count, of each way.
    """
    case = CASES[name]
    try:
        case.make()
    except ImportError:
        return [
            Figure(f"small-{name}", f"not run: {case.needs} is not installed", Interval(0, 0, 0))
        ]
    return [figure for ranks in (2, 4) for figure in _on(ranks, name, case, blocks)]


def _on(ranks: int, name: str, case: Case, blocks: int) -> list[Figure]:
    def work(worker: Worker) -> dict[str, list[tuple[float, float]]]:
        torch.manual_seed(0)
        model, batch = case.make()
        ways = [_Way(f"DDP {bucket:g} MB", model, bucket) for bucket in BUCKETS_MB]
        ways.insert(1, _Way("allrail", model, None))
        torch.manual_seed(1 + worker.rank)
        for block in range(blocks + 2):
            batches = [batch() for _ in range(case.steps)]
            for turn in range(len(ways)):  # whoever goes first does so in every place
                ways[(turn + block) % len(ways)].run(batches)
        if ranks == 2:
            _check(ways)
        for way in ways:
            way.close()
        dist.barrier()
        return {way.name: way.blocks[2:] for way in ways}

    results = run_on_host(work, workers=ranks)
    found = {
        way: [
            tuple(max(one[way][block][kind] for one in results) for kind in (0, 1))
            for block in range(blocks)
        ]
        for way in results[0]
    }
    return _figures(f"small-{name}, {ranks} ranks", found, case.steps)


def _figures(case: str, found: dict[str, list[tuple[float, ...]]], steps: int) -> list[Figure]:
    def times(way: str) -> Interval:
        return Interval.of([block[0] for block in found[way]]).times(1e3 / steps)

    def ratio(kind: int) -> Interval:
        pairs = zip(found[best], found["allrail"], strict=True)
        return Interval.of([one[kind] / other[kind] for one, other in pairs])

    best = min((way for way in found if way != "allrail"), key=lambda way: times(way).median)
    over = ratio(0)
    return [
        Figure(case, f"{best}: step, ms", times(best)),
        Figure(case, "allrail: step, ms", times("allrail")),
        Figure(case, f"{best} over allrail", over, least=1.0, note=_low(over)),
        Figure(case, f"CPU of {best} over ours", ratio(1), least=0.9),
    ]


def _low(over: Interval) -> str:
    below = over.low < _BEYOND
    return f"lower end {'below' if below else 'not below'} {_BEYOND:g}"


def _check(ways: Sequence[_Way]) -> None:
    """All ways have trained the same model."""
    first = ways[0].model.state_dict()
    for way in ways[1:]:
        for name, value in way.model.state_dict().items():
            if not torch.equal(value, first[name]):
                raise AssertionError(f"{way.name}: `{name}` is not that of {ways[0].name}")


def _cpu() -> float:
    """Of this process, all its threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
