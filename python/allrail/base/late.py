"""What a room calls in a room above it: by name, from this one list, imported at the first call.

No other import runs up (`make lint`). A test finds each of these names.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

RENDERERS = "allrail.output.report.renderers"
"""What writes, draws and shows answers."""
LATE = {
    "process group of torch": "allrail.torch.backend:create",
    "store of torch": "allrail.torch.store:store_of_job",
}
"""By what it is: the module and the function."""


def call(what: str, *arguments: Any, **named: Any) -> Any:
    """Call a function of an upper room.

    Args:
        what: A key of `LATE`.
        arguments: Of the function.
        named: Of the function.
    """
    module, _, function = LATE[what].partition(":")
    return getattr(import_module(module), function)(*arguments, **named)
