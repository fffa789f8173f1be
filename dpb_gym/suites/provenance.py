"""Where results came from: command, versions, source revision, guarantees, wall times."""

from __future__ import annotations

import contextlib
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("dpb-gym", "numpy", "scipy", "numba", "gymnasium", "pyarrow")


def now() -> str:
    """The time in ISO 8601, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@cache
def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide the numbers."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found


@cache
def revision() -> str | None:
    """Git revision of the source tree, with ``-dirty`` if it was changed; None if unknown.

    Only a tree that holds this package counts: an installed copy inside somebody else's
    repository has no revision. Asked once: it is the code that this process has read that counts.
    """
    package = Path(__file__).resolve().parents[1]
    return git_revision(package / "errors.py", package)


def origin() -> dict[str, Any]:
    """Code and machine of a computation."""
    return {"versions": versions(), "revision": revision(), "machine": describe_machine()}


def git_revision(file: Path, changes: Path | None = None) -> str | None:
    """Git revision of a tracked file, with ``-dirty`` if it was changed; None if unknown.

    Args:
        file: The file.
        changes: What must be unchanged; the file by default.
    """
    folder = file.parent
    tracked = _git(folder, "ls-files", "--error-unmatch", file.name)
    commit = _git(folder, "rev-parse", "HEAD")
    if tracked is None or commit is None:
        return None
    status = ("status", "--porcelain", "--untracked-files=no", "--", str(changes or file))
    return commit + ("-dirty" if _git(folder, *status) else "")


def command_line() -> str:
    """The command that started this process, ready for a shell, without the machine's paths
    to Python and to `dpb`."""
    words = list(sys.orig_argv) or ["python"]
    if len(words) > 1 and Path(words[1]).name in ("dpb", "dpb.exe", "dpb-script.py"):
        return shlex.join(["dpb", *words[2:]])
    return shlex.join(["python", *words[1:]])


def describe_machine() -> dict[str, str]:
    """System, processor, BLAS and C library, which may decide a last bit; no names of machines
    or people."""
    import numpy as np

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "cpu": _processor(),
        "blas": f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip(),
        "libc": " ".join(platform.libc_ver()).strip() or "unknown",
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
