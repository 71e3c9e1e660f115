"""Write README's picture: the top of a report page, as headless Chromium shows it.

    python docs/picture.py             # what `make picture` does

The page is the one that `allrail simulate SCENARIO --what-if all --out DIR` writes for example 6.
Fonts differ between machines, so no test compares pixels.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
SCENARIO = ROOT / "examples" / "06-simulate-a-training-step" / "scenario.yaml"
PICTURE = ROOT / "docs" / "images" / "report.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SIZE = (1180, 1052)
"""Width and height in pixels: the summary and the first tables."""
COLOURS = 64


def screenshot(page: Path, picture: Path) -> None:
    """Render the top of a page.

    Args:
        page: An HTML file.
        picture: The PNG file to write.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit("error: no Chromium found\nhint: on Debian, `apt-get install chromium`")
    command = [browser, "--headless=new", "--hide-scrollbars", "--force-device-scale-factor=1"]
    command += ["--no-sandbox"] if os.geteuid() == 0 else []
    command += [f"--window-size={SIZE[0]},{SIZE[1]}", f"--screenshot={picture}", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603
    Image.open(picture).convert("RGB").quantize(COLOURS).save(picture, optimize=True)


def main() -> None:
    """Simulate, render, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=PICTURE, help="the PNG file to write")
    out: Path = parser.parse_args().out.resolve()
    with tempfile.TemporaryDirectory(prefix="allrail-picture-") as folder:
        report = Path(folder) / "step"
        command = [sys.executable, "-m", "allrail", "simulate", str(SCENARIO)]
        command += ["--what-if", "all", "--out", str(report)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        screenshot(report / "report.html", out)
    print(out)


if __name__ == "__main__":
    main()
