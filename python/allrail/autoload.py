"""Makes the backend `allrail` known to torch.distributed without an import by the user's script.

`import torch` calls `register` through the entry point `torch.backends`, unless
`TORCH_DEVICE_BACKEND_AUTOLOAD=0`; torch 2.15 and later call it through `torch.distributed.backends`
when a script asks for the backend. Everybody's `import torch` would fail with it, so it never
raises, and it imports nothing else of allrail: that is left to the first process group.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any


def register() -> None:
    """Register the backend `allrail`, if this torch has process groups; never raises."""
    try:
        from torch.distributed import Backend

        if not hasattr(Backend, "ALLRAIL"):
            Backend.register_backend("allrail", _create, devices=["cpu", "cuda"])
    except Exception as error:  # noqa: BLE001 - whatever is broken, `import torch` is not
        logging.getLogger(__name__).debug("backend `allrail` is not registered: %r", error)


def _create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """Make a process group; called by torch."""
    from allrail.base import late

    return late.call("process group of torch", store, rank, size, timeout)
