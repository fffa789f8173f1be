"""Build hooks: compiled kernels in the wheel, and a README with absolute addresses.

The wheel has compiled kernels if DPB_KERNELS names their folder.

    python hatch_build.py FOLDER [AGENT ...]

compiles them for every processor of this architecture (x86-64: with AVX2), by default those of
all agents. Elsewhere, and with other versions of numba or Python, kernels are compiled on first
use.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

TARGET = "dpb_gym/kernels/compiled"


def absolute(text: str, urls: dict[str, str]) -> str:
    """Return the README with pictures and pages on the documentation site, files at the source.

    In a checkout the relative addresses work without a network. A package index has no files.

    Args:
        text: README.md.
        urls: ``[project.urls]`` with Documentation and Source.
    """
    site, source = urls["Documentation"], f"{urls['Source']}/blob/main/"
    text = re.sub(r'(?<=[("])docs/(_static/[^)" ]+)', rf"{site}\1", text)
    text = re.sub(r"(?<=\()docs/([^) #]+)\.md", rf"{site}\1.html", text)
    return re.sub(r"(?<=\]\()(?!https?:|#)([^) ]+)", rf"{source}\1", text)


class AbsoluteReadme(MetadataHookInterface):
    """Set the description of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = absolute(text, metadata["urls"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class CompiledKernels(BuildHookInterface):
    """Include the files of DPB_KERNELS, and tag the wheel with its Python and platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = os.environ.get("DPB_KERNELS")
        if not folder or version == "editable":
            return
        for path in sorted(Path(folder).rglob("*.nb[ci]")):
            name = path.relative_to(folder).as_posix()
            build_data["force_include"][str(path)] = f"{TARGET}/{name}"
        python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        system = sysconfig.get_platform().replace("linux", "manylinux_2_28")
        for mark in "-.":
            system = system.replace(mark, "_")
        build_data.update(pure_python=False, tag=f"{python}-{python}-{system}")


def portable(folder: str | os.PathLike[str]) -> dict[str, str]:
    """Return environment variables with which numba compiles shipped kernels into a folder."""
    from platform import machine

    from dpb_gym.kernel_cache import PORTABLE

    name, _ = PORTABLE[machine()]
    place = str(Path(folder).resolve())
    return {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": place}


if __name__ == "__main__":
    program = "from dpb_gym.cli import main; main()"
    command = [sys.executable, "-c", program, "warm", *sys.argv[2:]]
    subprocess.run(command, check=True, env={**os.environ, **portable(sys.argv[1])})
