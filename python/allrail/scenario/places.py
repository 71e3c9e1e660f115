"""Where each value of a tree was written, so that an error can name file and line."""

from __future__ import annotations

from dataclasses import dataclass, field

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A file or an option, and a line of it (from 1; None where lines mean nothing)."""

    source: str
    line: int | None = None


@dataclass(slots=True)
class Places:
    """The places of a tree's values.

    Attributes:
        known: The place of each path; a path without one is where its parent is.
        renamed: Fields that the tree and the author write differently: `collective` may be one
            mapping in the file and is a list of one in the tree.
    """

    known: dict[Path, Place] = field(default_factory=dict)
    renamed: dict[Path, Path] = field(default_factory=dict)

    def of(self, path: Path) -> Place:
        """Return the place of `path` or of the nearest thing that encloses it."""
        path = self.as_written(path)
        for end in range(len(path), -1, -1):
            place = self.known.get(path[:end])
            if place is not None:
                return place
        return Place("")

    def put(self, path: Path, other: Places) -> None:
        """Say that the value at `path` was read from elsewhere, at the places of `other`."""
        for known in [known for known in self.known if known[: len(path)] == path and known]:
            del self.known[known]
        for known, place in other.known.items():
            self.known[path + known] = place
        for tree, written in other.renamed.items():
            self.renamed[path + tree] = path + written

    def as_written(self, path: Path) -> Path:
        """Return `path` as the author of the file would write it."""
        for tree, written in self.renamed.items():
            if path[: len(tree)] == tree:
                return written + path[len(tree) :]
        return path


def show_path(path: Path) -> str:
    """Return `path` as text, such as `fabric.dimensions[1].size`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def parse_path(text: str) -> Path | None:
    """Read `a.b[0].c` or `a.b.0.c`; None if it is malformed.

    Args:
        text: A dotted path.
    """
    path: list[str | int] = []
    for part in text.split("."):
        name, bracket, rest = part.partition("[")
        if not name and (not bracket or not path):
            return None
        if name:
            path.append(int(name) if name.isdecimal() and path else name)
        if bracket:
            for index in (bracket + rest).replace("][", "]\n[").split("\n"):
                inner = index[1:-1]
                if not (index.startswith("[") and index.endswith("]") and inner.isdecimal()):
                    return None
                path.append(int(inner))
    return tuple(path)
