"""Rows of the table of integrations, printed as one line of JSON each."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

WORKS, NEEDS, FAILS = "works unmodified", "needs this line", "does not"

warnings.simplefilter("ignore")


def attempt(
    program: str,
    what: str,
    call: Callable[[], Any],
    line: str = "",
    instead: Callable[[], Any] | None = None,
) -> None:
    """Run a check and print its row.

    Args:
        program: The program or algorithm.
        what: What it does.
        call: The check without any change; returns what was seen.
        line: The line that a user adds if `call` fails.
        instead: The check with that line.
    """
    row = {"program": program, "what": what, "verdict": WORKS, "line": "", "seen": ""}
    try:
        row["seen"] = str(call() or "")
    except BaseException as error:  # also SystemExit of a script
        row |= {"verdict": FAILS, "seen": _said(error)}
        if instead is not None:
            try:
                row |= {"seen": str(instead() or row["seen"]), "verdict": NEEDS, "line": line}
            except BaseException as second:
                row |= {"seen": _said(second)}
    print("ROW " + json.dumps(row), flush=True)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


def difference(ours: Any, theirs: Any) -> str:
    """Return the largest difference, relative to the values; raise if it exceeds 1e-9."""
    import numpy as np

    a, b = np.asarray(ours, float), np.asarray(theirs, float)
    assert a.shape == b.shape, f"shapes {a.shape} and {b.shape}"
    largest = float(np.max(np.abs(a - b) / np.maximum(np.abs(b), 1e-300), initial=0.0))
    largest = min(largest, float(np.max(np.abs(a - b), initial=0.0)))
    assert largest <= 1e-9, f"differs by {largest:.2g}"
    return f"largest difference {largest:.1g}"
