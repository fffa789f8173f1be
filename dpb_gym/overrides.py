"""Which methods a shortcut stands for."""

from __future__ import annotations


def overridden(thing: object, shortcut: str, *methods: str) -> bool:
    """Return whether one of the methods is overridden below the class that defines `shortcut`.

    The shortcut computes what the methods of its own class do, so it must not be used then.
    """
    for cls in type(thing).__mro__:
        if shortcut in vars(cls):
            break
        if any(method in vars(cls) for method in methods):
            return True
    return any(method in vars(thing) for method in (shortcut, *methods))
