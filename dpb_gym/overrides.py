"""Which methods a shortcut stands for."""

from __future__ import annotations


def overridden(thing: object, owner: type, *methods: str) -> bool:
    """Return whether one of the methods of `thing` is not that of `owner`.

    `owner` has a shortcut that computes what its own methods do, so it must not be used then.
    Methods that were set on `thing` itself count as well.
    """
    own = vars(thing)
    kind = type(thing)
    for method in methods:
        # of the classes, because a bound method is a new object at each access
        if method in own or getattr(kind, method) is not getattr(owner, method):
            return True
    return False
