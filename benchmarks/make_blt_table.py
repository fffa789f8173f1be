"""Writes `data/blt.json`: ``python benchmarks/make_blt_table.py``."""

from __future__ import annotations

import json
import math
from pathlib import Path

import dpb_gym.privacy
from dpb_gym.privacy.toeplitz import BUFFERS, optimise_blt

LARGEST = 2**24


def step_counts() -> list[int]:
    """Every count to 16, powers of 2^(1/4) to 2^24, and the powers of ten."""
    counts = set(range(1, 17)) | {10**k for k in range(2, 8)}
    counts |= {math.ceil(2 ** (j / 4)) for j in range(16, 4 * 24 + 1)}
    return sorted(n for n in counts if n <= LARGEST)


def main() -> None:
    """Runs the optimiser for every count and writes the table."""
    rows = {}
    for steps in step_counts():
        theta, omega = optimise_blt(steps)
        rows[str(steps)] = {"theta": theta, "omega": omega}
    text = json.dumps({"buffers": BUFFERS, "parameters": rows}, indent=None)
    path = Path(dpb_gym.privacy.__file__).parent / "data" / "blt.json"
    path.write_text(text.replace('}, "', '},\n "') + "\n")


if __name__ == "__main__":
    main()
