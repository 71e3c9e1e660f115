"""Trainer, accelerate and Lightning train as with DDP over gloo: the scripts of the guide, run.

Each script runs three times on two ranks: as it stands in the guide, by the library's own DDP over
gloo, and by that over the backend `allrail`. Parameters, buffers and the steps that the optimizer
counts must be the same bits, rank by rank.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "frameworks.md"
GROUP = 'torch.distributed.init_process_group("allrail")\n'
# What a rank prints at the end. One call writes it, or two ranks' lines may mix.
SAID = """

import hashlib, os
import torch

state = {scheduled}.state_dict().values()
parts = [b"".join(each.detach().numpy().tobytes() for each in state)]
# Which parameter was stepped first, and so stands first, may differ.
for _, each in sorted({optimizer}.state_dict()["state"].items()):
    parts.append(str(sorted((key, value.tolist()) for key, value in each.items())).encode())
bits = "-".join(hashlib.sha256(each).hexdigest()[:8] for each in parts)
os.write(1, f"[{{os.environ['RANK']}} {{bits}} {{type({wrapped}).__name__}}]\\n".encode())
"""

LIBRARIES = {
    "trainer": {
        "needs": "transformers",
        "file": "trainer.py",
        "plain": [(" = ScheduledTrainer(", " = Trainer(")],
        "said": {
            "scheduled": "trainer.model",
            "optimizer": "trainer.optimizer",
            "wrapped": "trainer.model_wrapped",
        },
    },
    "accelerate": {
        "needs": "accelerate",
        "file": "accelerated.py",
        "plain": [
            ("model = accelerator.prepare_model(model, evaluation_mode=True)", ""),
            ("model, optimizer = art.schedule(model, optimizer)", ""),
            (
                "optimizer, loader = accelerator.prepare(optimizer, loader)",
                "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
            ),
        ],
        "said": {
            "scheduled": "accelerator.unwrap_model(model)",
            "optimizer": "optimizer",
            "wrapped": "model",
        },
    },
    "lightning": {
        "needs": "lightning",
        "file": "lit.py",
        "plain": [("strategy=ScheduledStrategy()", 'strategy="ddp"')],
        "backend": [
            (
                "strategy=ScheduledStrategy()",
                'strategy=DDPStrategy(process_group_backend="allrail")',
            )
        ],
        "said": {
            "scheduled": "model",
            "optimizer": "trainer.optimizers[0]",
            "wrapped": "wrapped",
        },
    },
}


def script(name):
    """Return a script of the guide."""
    found = re.search(rf"`{re.escape(name)}`:\n\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found, f"{PAGE} has no {name}"
    return found[1]


def replaced(text, changes):
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def on_two_ranks(folder, text):
    """Run a script; return what each rank says of its model at the end."""
    folder.mkdir()
    (folder / "script.py").write_text(text)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*command, "--nproc-per-node", "2", "script.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = dict(re.findall(r"\[([01]) (\S+ \w+)\]", done.stdout))
    assert sorted(said) == ["0", "1"]
    return [said[rank].split() for rank in ("0", "1")]


@pytest.mark.long
@pytest.mark.parametrize("name", LIBRARIES)
def test_it_trains_as_with_ddp(name, tmp_path):
    library = LIBRARIES[name]
    if importlib.util.find_spec(library["needs"]) is None:
        pytest.skip(f"{library['needs']} is not installed: `allrail[frameworks]`")
    text = script(library["file"])
    if name == "lightning":  # which takes the wrapper off at the end
        begins = "    def training_step(self, batch, index):\n"
        kept = "        global wrapped\n        wrapped = self.trainer.strategy.model\n"
        text = replaced(text, [(begins, begins + kept)])
    text += SAID.format(**library["said"])
    plain = replaced(text, library["plain"])
    if "backend" in library:
        backend = replaced(text, library["backend"])
    else:
        backend = "import torch\n" + GROUP + plain
        assert GROUP in PAGE.read_text()
    by_ddp = on_two_ranks(tmp_path / "ddp", plain)
    scheduled = on_two_ranks(tmp_path / "scheduled", text)
    over_backend = on_two_ranks(tmp_path / "backend", backend)
    assert [kind for _, kind in by_ddp] == ["DistributedDataParallel"] * 2
    assert "DistributedDataParallel" not in [kind for _, kind in scheduled]
    expected = [bits for bits, _ in by_ddp]
    assert [bits for bits, _ in scheduled] == expected
    assert [bits for bits, _ in over_backend] == expected


@pytest.mark.long
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_model_that_is_wrapped_as_well_is_refused(name, tmp_path):
    """Half of the recipe: the model is scheduled, and the library wraps it."""
    library = LIBRARIES[name]
    if importlib.util.find_spec(library["needs"]) is None:
        pytest.skip(f"{library['needs']} is not installed: `allrail[frameworks]`")
    half = {
        "trainer": [("functools.partial(prepare, evaluation_mode=True)", "prepare")],
        "accelerate": [("evaluation_mode=True", "evaluation_mode=False")],
        "lightning": [("def configure_ddp(self)", "def do_not_configure_ddp(self)")],
    }[name]
    with pytest.raises(AssertionError, match="InputError") as caught:
        on_two_ranks(tmp_path / "half", replaced(script(library["file"]), half))
    assert "`DistributedDataParallel` exchanges its gradient, too" in str(caught.value)
    assert "evaluation_mode=True" in str(caught.value)
