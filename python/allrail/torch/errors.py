"""What goes wrong while a training job runs; where scripts that use torch look for it."""

from __future__ import annotations

from allrail.errors import TrainingError

__all__ = ["TrainingError"]
