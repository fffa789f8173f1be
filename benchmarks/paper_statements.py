"""Write docs/papers/where.md: where each numbered statement of the papers is.

``python benchmarks/paper_statements.py`` writes the tables of the page from docs/papers/where.yaml.
`faults` returns what is wrong with the entries; a test fails if there is any.
"""

from __future__ import annotations

import argparse
import ast
import functools
import re
from pathlib import Path
from typing import Any

import yaml
from marked import replaced

from dpb_gym.papers.figure_spec import figure_files

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "docs/papers/where.yaml"
PAGE = ROOT / "docs/papers/where.md"
TARGETS = ("code", "test", "figure", "reason")
KEYS = {"about", "errata", *TARGETS}
HEAD = "| statement | about | here | errata |\n|---|---|---|---|\n"


def read() -> dict[str, Any]:
    """Return the entries of all papers."""
    papers: dict[str, Any] = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    return papers


def table(statements: dict[str, dict[str, Any]]) -> str:
    """Return a row per statement of one paper."""
    return HEAD + "\n".join(
        f"| {name} | {entry['about']} | {_places(entry)} | {', '.join(entry.get('errata', ()))} |"
        for name, entry in statements.items()
    )


def _places(entry: dict[str, Any]) -> str:
    places = [f"`{entry[key]}`" for key in ("code", "test") if key in entry]
    if "figure" in entry:
        places.append(f"`dpb reproduce {entry['figure']}`")
    if "reason" in entry:
        places.append(entry["reason"])
    return "<br>".join(places)


def on_page(page: str, papers: dict[str, Any]) -> str:
    """Return the page with the table of each paper written again."""
    return replaced(page, "where", lambda paper, _: table(papers[paper]["statements"]))


def faults(papers: dict[str, Any]) -> list[str]:
    """Return a line per fault of the entries.

    A fault is a number of the paper's text without an entry, an entry without a number of the text,
    an entry without a target, and a path, name, figure or erratum that does not exist.
    """
    labels = _labels((ROOT / "docs/errata.md").read_text(encoding="utf-8"))
    lines = []
    for paper, data in papers.items():
        stated = {f"{kind} {k}" for kind, numbers in data["numbers"].items() for k in numbers}
        entries = data["statements"]
        lines += [f"{paper}, {name}: no entry" for name in sorted(stated - set(entries))]
        lines += [f"{paper}, {name}: not in the paper" for name in sorted(set(entries) - stated)]
        for name, entry in entries.items():
            lines += [f"{paper}, {name}: {fault}" for fault in _faults(entry, labels)]
    return lines


def _faults(entry: dict[str, Any], labels: set[str]) -> list[str]:
    lines = [f"unknown key {key}" for key in sorted(set(entry) - KEYS)]
    if not entry.get("about"):
        lines.append("says nothing about it")
    if not any(entry.get(target) for target in TARGETS):
        lines.append("no code, test, figure or reason")
    for key in ("code", "test"):
        if key in entry and not _exists(entry[key]):
            lines.append(f"{key} {entry[key]} does not exist")
    if "figure" in entry and entry["figure"] not in figure_files():
        lines.append(f"figure {entry['figure']} does not exist")
    missing = [label for label in entry.get("errata", ()) if label not in labels]
    return lines + [f"erratum {label} does not exist" for label in missing]


def _exists(place: str) -> bool:
    """Return whether a file defines a function or class, given as path::name or path::A.b."""
    path, _, name = place.partition("::")
    if not name or not (ROOT / path).is_file():
        return False
    scope = _body(path)
    for part in name.split("."):
        inner = [x for x in scope if getattr(x, "name", None) == part]
        if not inner:
            return False
        scope = getattr(inner[0], "body", [])
    return True


@functools.cache
def _body(path: str) -> list[ast.stmt]:
    return ast.parse((ROOT / path).read_text(encoding="utf-8")).body


def _labels(page: str) -> set[str]:
    """Return the labels in the headings of the page of errata."""
    heads = re.findall(r"^### ([APR]\d+[^.:]*)[.:] ", page, flags=re.M)
    return {label for head in heads for label in re.findall(r"[APR]\d+", head)}


if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    papers = read()
    if wrong := faults(papers):
        raise SystemExit("\n".join(wrong))
    PAGE.write_text(on_page(PAGE.read_text(encoding="utf-8"), papers), encoding="utf-8")
