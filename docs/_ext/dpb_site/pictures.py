"""The picture on the first page, drawn by the example that it illustrates."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

NAME = "private_vs_nonprivate"
SIZE = ("--horizon", "5000", "--replicates", "16")


def draw(docs: Path, folder: Path) -> None:
    """Draws the picture unless it is newer than the example.

    Raises:
        subprocess.CalledProcessError: If the example fails.
    """
    script = docs.parent / "examples" / f"{NAME}.py"
    picture = folder / f"{NAME}.png"
    if picture.exists() and picture.stat().st_mtime > script.stat().st_mtime:
        return
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [sys.executable, str(script), *SIZE, "--out", str(picture)],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "MPLBACKEND": "Agg"},
    )
