"""Provenance of results: command, package versions, source revision, machine, time."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from dpb_gym import validation
from dpb_gym.errors import ParameterError

PACKAGES = ("dpb-gym", "numpy", "scipy", "numba", "gymnasium", "pyarrow")


def now() -> str:
    """Return the current time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@cache
def versions() -> dict[str, str]:
    """Return versions of Python and of the packages that can change a number."""
    installed = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed[name] = "unknown"
    return installed


@cache
def revision() -> str | None:
    """Return the source tree's Git revision, ``-dirty`` if it was changed, None if unknown.

    A copy of the package that is installed inside another repository has no revision. The result
    is cached for the life of the process.
    """
    package = Path(__file__).resolve().parents[1]
    return git_revision(package / "errors.py", package)


def origin() -> dict[str, Any]:
    """Return package versions, source revision and machine."""
    return {"versions": versions(), "revision": revision(), "machine": describe_machine()}


def git_revision(file: Path, changes: Path | None = None) -> str | None:
    """Return a tracked file's Git revision, ``-dirty`` if it was changed, None if unknown.

    Args:
        file: The file.
        changes: File or folder that must be unchanged; `file` by default.
    """
    folder = file.parent
    tracked = _git(folder, "ls-files", "--error-unmatch", file.name)
    commit = _git(folder, "rev-parse", "HEAD")
    if tracked is None or commit is None:
        return None
    status = ("status", "--porcelain", "--untracked-files=no", "--", str(changes or file))
    return commit + ("-dirty" if _git(folder, *status) else "")


LOCAL = frozenset({"--workers", "--backend", "--scheduler", "--html", "--log"})
"""Options of ``dpb run`` with a value that concern the machine and not the results."""
LOCAL_FLAGS = frozenset({"--quiet", "--json"})
_WORD = re.compile(r"""(?:\$'(?:\\.|[^'\\])*'|'[^']*'|"[^"]*"|[^\s'"])+""")
_ABSOLUTE = re.compile(r"""(^|[='"])/(?:[^'"]*/)?([^/'"]+)""")


def command_line() -> str:
    """Return the command line of this process, quoted for a shell, without the machine's folders.

    A path inside the working directory is relative to it; of other absolute paths, also those of
    Python and `dpb`, the name remains.
    """
    words = list(sys.orig_argv) or ["python"]
    if len(words) > 1 and Path(words[1]).name in ("dpb", "dpb.exe", "dpb-script.py"):
        words = ["dpb", *words[2:]]
    else:
        words = ["python", *words[1:]]
    return " ".join(shell_word(_portable(word)) for word in words)


def _portable(word: str) -> str:
    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    if not os.path.isabs(value):
        return word
    inside = os.path.relpath(value)
    outside = inside.split(os.sep)[0] == os.pardir
    return option + equals + (os.path.basename(value.rstrip(os.sep)) if outside else inside)


def shown_command(command: str, suite: str) -> str:
    """Return a stored command as a reader can type it.

    Args:
        command: As `command_line` returns it, or an older one with absolute paths.
        suite: Name of the suite. Results go to its folder in ``results``.
    """
    words = _WORD.findall(command)
    kept: list[str] = []
    is_run = words[:2] == ["dpb", "run"]
    value_of = ""
    for word in words:
        option, _, given = word.partition("=")
        if value_of:
            value_of, word = "", f"results/{suite}" if value_of == "--out" else ""
        elif is_run and option in (*LOCAL, "--out"):
            value_of = "" if given else option
            word = option if option == "--out" else ""
            word += f" results/{suite}" if given and word else ""
        elif is_run and word in LOCAL_FLAGS:
            word = ""
        else:
            word = _ABSOLUTE.sub(r"\1\2", word)
            if re.fullmatch(r"'[\w./-]+'", word):  # quotes of what was left out
                word = word[1:-1]
        kept += [word] if word else []
    return " ".join(kept)


def shell_word(word: str) -> str:
    """Return a word quoted for a shell, as ANSI-C string if it has invisible characters.

    A path may be any bytes, and Python shows those that are no text as surrogates, which no
    result file can store.
    """
    try:
        return shlex.quote(validation.text("word", word, empty=True, lines=True))
    except ParameterError:
        pass
    escapes = {"\\": "\\\\", "'": "\\'"}
    letters = []
    for byte in os.fsencode(word):
        letter = chr(byte)
        plain = letter.isascii() and letter.isprintable()
        letters.append(escapes.get(letter, letter) if plain else f"\\x{byte:02x}")
    return f"$'{''.join(letters)}'"


def describe_machine() -> dict[str, str]:
    """Return system, processor, BLAS and C library, without names of machines or users."""
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
