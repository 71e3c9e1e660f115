"""What goes wrong while a training job runs, as against a mistake in a call (`InputError`)."""

from __future__ import annotations

from allrail.errors import AllrailError


class TrainingError(AllrailError, RuntimeError):
    """The exchange of gradients, or a step that depends on it, cannot go on.

    Attributes:
        why: What is wrong, as half a sentence.
        field: The parameter that it is about; may be empty.
        hint: What to do; may be empty.
    """

    def __init__(self, why: str, *, field: str = "", hint: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.field = field
        self.hint = hint

    def __str__(self) -> str:
        """Return the message, then its hint after a blank line."""
        message = f"`{self.field}`: {self.why}" if self.field else self.why
        return f"{message}\n\nhint: {self.hint}" if self.hint else message
