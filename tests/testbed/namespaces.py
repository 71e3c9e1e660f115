"""Network namespaces, with root or without.

Without root a process first enters a user namespace in which it is root. Nothing here has a name in
the file system, so all of it is gone with the last process that is in it.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_NEW_USER = 0x10000000  # CLONE_NEWUSER


def _unshare(flags: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(flags):
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")


def enter_new() -> None:
    """Put this process into a network namespace of its own, without a way out.

    Raises:
        OSError: The kernel does not let us.
    """
    if os.geteuid() == 0:
        _unshare(_NEW_NETWORK)
        return
    user, group = os.geteuid(), os.getegid()
    _unshare(_NEW_USER | _NEW_NETWORK)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def configure(tool: str, lines: list[str]) -> None:
    """Run several commands of `ip` or `tc` at once, in this process's namespace.

    Args:
        tool: `ip` or `tc`.
        lines: What would be typed after its name.

    Raises:
        RuntimeError: One of them was refused; with what the tool said.
        FileNotFoundError: There is no such tool.
    """
    if not lines:
        return
    done = subprocess.run(
        [tool, "-batch", "-"], input="\n".join(lines), text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{tool}: {done.stderr.strip()}")
