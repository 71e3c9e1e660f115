"""Counts words that allrail's writing avoids, by file."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

READ = (".md", ".py", ".rs", ".pyi")
BANNED = Path(__file__).with_name("banned.yaml")


def banned(path: Path = BANNED) -> dict[re.Pattern[str], str]:
    """The list: what is looked for, and what to write.

    Args:
        path: The file with the list.
    """
    rows = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {re.compile(word): better for word, better in rows.items()}


def hits(text: str, words: Mapping[re.Pattern[str], str]) -> Iterator[tuple[int, str, str]]:
    """Each hit: the line, what stands there and what to write.

    Args:
        text: What is read.
        words: The list.
    """
    for number, line in enumerate(text.splitlines(), start=1):
        for word, better in words.items():
            yield from ((number, found.group(), better) for found in word.finditer(line))


def prose(page: str) -> str:
    """A Markdown page without code and link targets; lines keep their numbers.

    Args:
        page: The page.
    """
    fence = re.compile(r"^(```+|~~~+).*?^\1$", re.MULTILINE | re.DOTALL)
    text = fence.sub(lambda found: "\n" * found.group().count("\n"), page)
    return re.sub(r"\]\([^)\s]*\)", "]()", re.sub(r"`[^`\n]*`", "``", text))


def files(root: Path) -> list[Path]:
    """The tracked files that people read, but the list itself and its test.

    Args:
        root: The repository.
    """
    listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, check=True)
    paths = [root / name for name in listed.stdout.decode().splitlines()]
    return [path for path in paths if path.suffix in READ and path.parent != BANNED.parent]
