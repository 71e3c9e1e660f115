"""What a case's files ask for and allrail does not model: collected, then said in one warning."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Notes:
    """Keys that are not modelled, with a remark each, in the order of the files.

    Attributes:
        remarks: What is said about each key.
    """

    remarks: dict[str, str] = field(default_factory=dict)

    def add(self, key: str, remark: str) -> None:
        """Note that `key` is not modelled; the first remark on a key stays.

        Args:
            key: As the file spells it.
            remark: Why it matters or what is done instead.
        """
        self.remarks.setdefault(key, remark)

    def warning(self) -> str | None:
        """One message that names every key; None if there is nothing to say."""
        if not self.remarks:
            return None
        parts = "; ".join(f"`{key}` ({remark})" for key, remark in self.remarks.items())
        return f"these files ask for what allrail does not model: {parts}"
