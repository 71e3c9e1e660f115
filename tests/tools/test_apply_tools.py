"""What `allrail apply` writes is accepted by the tools that it is for, and means what was decided.

The tools are found by environment variables, and a test whose tool is missing skips with the
reason: `make apply-check` sets them. Every layout goes to the tool's own code in one process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from allrail.search.layouts.tools import PP_INSIDE
from allrail.targets import megatron, torchtitan
from allrail.targets.decision import Decision
from tools.layouts import MEGATRON, REGISTERED, TORCHTITAN

pytestmark = pytest.mark.long
pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
HERE = Path(__file__).parent


def words_of(text):
    """The words of a file of flags, as a shell splits what `grep -v '^#'` has printed."""
    return " ".join(line for line in text.splitlines() if not line.startswith("#")).split()


def told(script, cases, *arguments, path=""):
    """What a tool says to cases, by one of the scripts beside this file."""
    ours = os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": ours, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=1200,
        env=environment,
    )
    assert not ran.returncode, ran.stderr[-3000:]
    return json.loads(ran.stdout)


@cache
def megatron_says(checkout):
    """By index of `MEGATRON`: what was decided, and what Megatron-LM has made of it."""
    decisions = [Decision.of(one) for one in MEGATRON]
    texts = [megatron.files(one)["megatron.args"] for one in decisions]
    cases = []
    for decision, text in zip(decisions, texts, strict=True):
        line = next(line for line in text.splitlines() if "torchrun" in line)
        env = dict(word.split("=") for word in line.split() if word.isupper() and "=" in word)
        env |= {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if "CONNECTIONS=1" in line else {}
        cases.append({"flags": words_of(text), "world": decision.npus, "env": env})
    return list(zip(decisions, told("in_megatron.py", cases, checkout), strict=True))


@pytest.mark.parametrize("index", range(len(MEGATRON)))
def test_megatron_lm_starts_with_the_flags_and_lays_ranks_out_so(index):
    checkout = os.environ.get("ALLRAIL_MEGATRON")
    if not checkout:
        pytest.skip("ALLRAIL_MEGATRON does not name a checkout of NVIDIA/Megatron-LM")
    decision, said = megatron_says(checkout)[index]
    assert "error" not in said, said["error"]
    sizes, degrees = decision.transformer, decision.degrees
    assert said["data_parallel"] == decision.replicas
    assert said["microbatches"] == decision.microbatches
    assert said["virtual"] == (decision.pieces // degrees["pp"] if degrees["pp"] > 1 else 1)
    assert said["layers"] == sizes["layers"]
    assert said["vocabulary"] == sizes["vocabulary"]
    assert said["positions"] >= decision.sequence
    assert said["tied"] == bool(sizes.get("tied"))
    assert said["experts"] == (sizes.get("experts") or {}).get("count")
    assert said["sharded_optimizer"] == (decision.parallelism["zero"] > 0)
    # 100 MB of fp32.
    assert said["bucket"] == (25_000_000 if decision.reads("bucket") else None)
    summed = decision.workload.get("gradient_precision") or decision.workload["precision"]
    if decision.workload["precision"] != "fp32":
        assert said["reduced_in_fp32"] == (summed == "fp32")
    if not sizes.get("latent"):
        assert said["query_groups"] == (sizes.get("kv_heads") or sizes["heads"])
    if said["stages"]:
        ahead = int(sizes.get("next_tokens") or 0)
        stages = [
            said["stages"][piece % degrees["pp"]][piece // degrees["pp"]]
            for piece in range(decision.pieces)
        ]
        stages[0] -= 1
        stages[-1] -= 1 + ahead
        assert stages == list(decision.layers)
    groups = said["groups"]
    for axis in ("tp", "cp", "pp", "ep"):
        assert len(groups[axis]) == degrees[axis]
    if degrees["pp"] > 1 and decision.numberings == (PP_INSIDE,):
        assert groups["pp"][1] == degrees["tp"] * degrees["cp"]


@cache
def torchtitan_says(path):
    """By index of `TORCHTITAN`: what was decided, and what torchtitan has made of it."""
    cases, decisions = [], []
    for scenario in TORCHTITAN:
        decision = Decision.of(scenario)
        texts = torchtitan.files(decision)
        package, registered = REGISTERED[scenario["workload"]["model"]]
        decisions.append((decision, texts))
        cases.append(
            {
                "flags": words_of(texts.get("torchtitan.args", "")),
                "function": texts["torchtitan_layout.py"],
                "world": decision.npus,
                "model": ["--model.name", package],
                "package": package,
                "registered": registered,
                "layers": decision.transformer["layers"],
            }
        )
    said = told("in_torchtitan.py", cases, path=path)
    return [(*one, answer) for one, answer in zip(decisions, said, strict=True)]


@pytest.mark.parametrize("index", range(len(TORCHTITAN)))
def test_torchtitan_takes_flags_and_functions_and_cuts_the_model_so(index):
    paths = os.environ.get("ALLRAIL_TORCHTITAN")
    if not paths:
        pytest.skip("ALLRAIL_TORCHTITAN does not name folders that have torchtitan")
    for path in paths.split(os.pathsep):
        decision, texts, said = torchtitan_says(path)[index]
        takes_flags = not (Path(path) / "torchtitan" / "config" / "configs.py").exists()
        if takes_flags and "torchtitan.args" not in texts:
            continue
        assert "error" not in said, (path, said["error"])
        degrees, parallelism = decision.degrees, decision.parallelism
        shard = parallelism.get("shard") or decision.replicas if parallelism["zero"] else 1
        assert said["degrees"] == [
            degrees["pp"],
            decision.replicas // shard,
            shard,
            *(degrees[axis] for axis in ("cp", "tp", "ep")),
        ]
        assert said["microbatches"] * said["steps"] == decision.microbatches
        assert said["tokens"] == decision.sequence
        assert said["compiled"] == (decision.workload["compute"]["launch"] != "eager")
        if degrees["pp"] > 1:
            layers = [sum(one.startswith("layers.") for one in part) for part in said["parts"]]
            assert layers == list(decision.layers)
            assert next(name for part in said["parts"] for name in part) == "tok_embeddings"
        if parallelism["recompute"] == "alternate" and takes_flags:
            assert (said["checkpoint"], said["option"]) == ("selective", "op")


PLANS = [("llama3_8b", 64), ("qwen3_30b_a3b", 64)]


@pytest.mark.parametrize(("model", "npus"), PLANS)
@pytest.mark.parametrize("tool", ["megatron", "torchtitan"])
def test_a_plan_made_as_readme_says_starts(tmp_path, monkeypatch, tool, model, npus):
    place = os.environ.get(f"ALLRAIL_{tool.upper()}")
    if not place:
        pytest.skip(f"ALLRAIL_{tool.upper()} does not name where it is")
    monkeypatch.chdir(tmp_path)
    asked = f"plan --model {model} --fabric dgx-h100 --npus {npus} --for {tool} --out best.yaml"
    for words in (asked.split(), ["apply", "best.yaml", "--for", tool, "--out", "job"]):
        ran = subprocess.run([sys.executable, "-m", "allrail", *words], capture_output=True)
        assert not ran.returncode, ran.stderr
    best = Decision.of(tmp_path / "best.yaml")
    if tool == "megatron":
        text = (tmp_path / "job" / "megatron.args").read_text()
        env = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if "CONNECTIONS=1" in text else {}
        case = {"flags": words_of(text), "world": npus, "env": env}
        (said,) = told("in_megatron.py", [case], place)
        assert said.get("data_parallel") == best.replicas, said
        return
    for path in place.split(os.pathsep):
        package, registered = REGISTERED[model]
        flags = tmp_path / "job" / "torchtitan.args"
        case = {
            "flags": words_of(flags.read_text()) if flags.exists() else [],
            "function": (tmp_path / "job" / "torchtitan_layout.py").read_text(),
            "world": npus,
            "model": ["--model.name", package],
            "package": package,
            "registered": registered,
            "layers": best.transformer["layers"],
        }
        (said,) = told("in_torchtitan.py", [case], path=path)
        if flags.exists() or (Path(path) / "torchtitan" / "config" / "configs.py").exists():
            assert said.get("tokens") == best.sequence, said
