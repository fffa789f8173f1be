"""Fail unless a tag, the package, the citation file and the changelog name one version.

python benchmarks/release_check.py v0.1.0
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = {
    "dpb_gym/__init__.py": r'^__version__ = "(.+)"$',
    "CITATION.cff": r"^version: (.+)$",
    "CHANGELOG.md": r"^## \[(\d.*?)\] - \d{4}-\d\d-\d\d$",
}


def problems(tag: str) -> list[str]:
    """Return what keeps a tag from being released; the changelog's entry needs a date."""
    mismatches = []
    for name, pattern in PLACES.items():
        match = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.M)
        version = match[1] if match else "no released version"
        if tag != f"v{version}":
            mismatches.append(f"{name} has {version}, the tag is {tag}")
    return mismatches


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tag", help="for example v0.1.0")
    sys.exit("\n".join(problems(parser.parse_args().tag)) or None)
