"""Records of JSON objects, of which results are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, ClassVar, Self


class _Record:
    """A frozen record of a JSON object; keys that it does not know are left out."""

    __slots__ = ()

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> Self:
        """Make one from a JSON object.

        Args:
            tree: Its keys and values.
        """
        return cls(**{name: tree[name] for name in _names(cls) if name in tree})


class _Parts(_Record, Mapping[str, Any]):
    """A record that is a mapping of its parts' names to their values, in order."""

    __slots__ = ()
    PARTS: ClassVar[tuple[str, ...]] = ()

    def __getitem__(self, part: str) -> Any:
        if part not in self.PARTS:
            raise KeyError(part)
        return getattr(self, part)

    def __iter__(self) -> Iterator[str]:
        return iter(self.PARTS)

    def __len__(self) -> int:
        return len(self.PARTS)


_NO_KEYS = ("raw", "scenario", "astra_sim", "what_ifs")
"""Fields that are no keys of the core's JSON."""
_NAMES: dict[type[_Record], tuple[str, ...]] = {}


def _names(record: type[_Record]) -> tuple[str, ...]:
    names = _NAMES.get(record)
    if names is None:
        names = _NAMES[record] = tuple(
            one.name
            for one in fields(record)  # type: ignore[arg-type]
            if one.name not in _NO_KEYS
        )
    return names
