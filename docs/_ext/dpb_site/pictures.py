"""Draw the pictures of the site with the examples."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Output and arguments of each example.
PICTURES = {
    "private_vs_nonprivate": (
        "private_vs_nonprivate.png",
        ("--horizon", "5000", "--replicates", "16"),
    ),
    "gallery": ("gallery", ()),
}


def draw(docs: Path, folder: Path) -> None:
    """Draw the pictures that are older than their examples.

    Raises:
        subprocess.CalledProcessError: If an example fails.
    """
    for name, (out, size) in PICTURES.items():
        _draw(docs.parent / "examples" / f"{name}.py", folder / out, size)


def _draw(script: Path, out: Path, size: tuple[str, ...]) -> None:
    if out.exists() and out.stat().st_mtime > script.stat().st_mtime:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [sys.executable, str(script), *size, "--out", str(out)],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "MPLBACKEND": "Agg"},
    )
