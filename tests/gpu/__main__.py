"""What allrail does on a GPU, checked on one in some minutes: `make gpu-check`.

    python tests/gpu                         # all parts; a line each, and a record in JSON
    python tests/gpu staging schedule        # some of them
    python tests/gpu --skip predict
    python tests/gpu --rehearse              # on CPUs, with a fake device

Needs PyTorch and the package, and no network. Several processes share the GPU, as NCCL lets them
from 2.30 on; what an older one does not do is `not here`, with the reason. Exits with 1 if a part
failed.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from parts import PARTS
from ranks import LIMIT, run_part


def about(*, rehearsal: bool) -> dict[str, Any]:
    """Return what the check runs on, as another process sees it: this one leaves the GPU alone."""
    program = (
        "import json, torch, allrail, allrail._core\n"
        "found = {'torch': torch.__version__, 'allrail': allrail.__version__}\n"
        "if torch.cuda.is_available():\n"
        "    one = torch.cuda.get_device_properties(0)\n"
        "    found |= {'device': one.name, 'memory': one.total_memory,\n"
        "              'cuda': torch.version.cuda,\n"
        "              'nccl': '.'.join(map(str, torch.cuda.nccl.version()))}\n"
        "print(json.dumps(found))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"error: the package cannot be used here\n{done.stderr.strip()[-800:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if "device" not in found and not rehearsal:
        raise SystemExit("error: PyTorch finds no GPU here\nhint: `--rehearse` runs on CPUs")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"when": now, "rehearsal": rehearsal, "python": platform.python_version(), **found}


def main(words: list[str]) -> int:
    """Run the parts that are asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python tests/gpu", description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; else all")
    parser.add_argument("--skip", action="append", default=[], metavar="PART")
    parser.add_argument("--rehearse", action="store_true", help="run on CPUs, with a fake device")
    parser.add_argument("--out", type=Path, default=Path("out/gpu-check"), metavar="DIR")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="S", help="seconds per part")
    asked = parser.parse_args(words)
    if unknown := {*asked.parts, *asked.skip} - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}: {', '.join(PARTS)}")
    out = asked.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    record = about(rehearsal=asked.rehearse)
    print(" ".join(f"{key}={value}" for key, value in record.items()), flush=True)
    done = []
    for name, (ranks, what) in PARTS.items():
        if (asked.parts and name not in asked.parts) or name in asked.skip:
            continue
        verdict = run_part(name, ranks, out, rehearsal=asked.rehearse, limit=asked.limit)
        done.append(verdict)
        print(f"{verdict.verdict:<9} {name:<14} {verdict.seconds:5.1f} s  {what}", flush=True)
        if verdict.why:
            print(f"          {verdict.why}", flush=True)
        record["parts"] = [asdict(each) for each in done]
        (out / "record.json").write_text(json.dumps(record, indent=1) + "\n")
    counts = {
        kind: sum(each.verdict == kind for each in done) for kind in ("ok", "failed", "not here")
    }
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    print(f"record: {asked.out / 'record.json'}")
    return int(counts["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
