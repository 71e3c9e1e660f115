"""What is trained: the key `workload`; its keys are the core's.

Which layouts divide the NPUs, and what a model's own numbers mean, is the Rust core's to check.
"""

from __future__ import annotations

from typing import Any

from allrail.scenario.choices import FORMS
from allrail.scenario.keys import workload as keys


class Workload(keys.Workload):
    """What is trained, on how many samples, cut how."""

    @property
    def title(self) -> str:
        """What people call it."""
        return self.name or str(self.model.get("name", "workload"))

    @property
    def whole(self) -> Workload:
        """With the model's defaults where nothing is said."""
        given = self.model_dump(exclude_unset=True)
        defaults = dict(self.model.get("defaults", {}))
        counted = "microbatches" in given.get("parallelism", {}) and "micro_batch" in given
        if counted or "global_batch" in given:  # it says what a replica's is
            defaults.pop("batch_per_replica", None)
        for key, value in defaults.items():
            if isinstance(value, dict) and isinstance(given.get(key), dict):
                given[key] = {**value, **given[key]}
        return Workload.model_validate({**defaults, **given})

    def tree(self) -> dict[str, Any]:
        """Return what the Rust core reads."""
        tree = self.whole.model_dump(exclude_none=True)
        model = {key: value for key, value in self.model.items() if key in FORMS}
        return {**tree, "name": self.title, "model": model}
