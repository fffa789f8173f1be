"""What happens to the owners of private data when a process forks.

A fork copies a session with its raw records and its noise. If both processes went on, they would
release the same records twice under one budget. So in the child every owner is handed over:
it raises on use, and the parent's goes on. This holds for `os.fork` and everything that calls
the interpreter's fork hooks, such as `multiprocessing` and servers that fork before they serve.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

FORKED = (
    "this process was forked from the one that runs it, and the parent process goes on with it: "
    "use it there, or serve a new session here after the fork"
)


class Owner(Protocol):
    """An object that raises on use once it was handed over."""

    def hand_over(self, why: str) -> None: ...


# weak, so that a session that nobody uses is freed with its raw records
OWNERS: weakref.WeakSet[Owner] = weakref.WeakSet()
"""Objects that are handed over in each child of this process, as long as they exist."""
_simulated = False


def fork_simulation() -> int:
    """Fork a simulation, in which the child may go on; return what `os.fork` returns.

    For customers that are simulated, or processes whose noise is not used. The child must not
    release data of real customers.
    """
    # the fork hooks take no argument, so the permission is passed by the module
    global _simulated
    _simulated = True
    try:
        return os.fork()
    finally:
        _simulated = False


def _hand_over() -> None:
    if not _simulated:
        for owner in list(OWNERS):
            owner.hand_over(FORKED)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_hand_over)
