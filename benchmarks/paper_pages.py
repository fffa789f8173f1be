"""Write the tables on the pages of docs/papers from reproductions.

``python benchmarks/paper_pages.py reproductions/private-assortment ...``: one output folder of
``dpb reproduce PAPER`` per paper. The script replaces two kinds of blocks on the paper's page, each
up to its ``<!-- end -->``: ``<!-- verdicts -->``, a row per claim, and ``<!-- tables FIGURE: ID
-->``, tables of a figure by their ids. Blocks of figures without results do not change.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parents[1] / "docs" / "papers"
VERDICTS = re.compile(r"<!-- verdicts -->\n(.*?)<!-- end -->", re.DOTALL)
TABLES = re.compile(r"<!-- tables ([\w-]+): ([\w, -]+) -->\n(.*?)<!-- end -->", re.DOTALL)
HEAD = "| figure | claim | verdict | supports | contradicts | open |\n|---|---|---|---|---|---|\n"


def rows(data: dict[str, Any]) -> list[str]:
    """Return one row per claim of a figure's verdicts.json."""
    name = data["target"].split("/")[1]
    lines = []
    for claim in data["claims"]:
        outcomes = [comparison["outcome"] for comparison in claim["comparisons"]]
        counts = [outcomes.count(o) for o in ("supported", "contradicted", "undecided")]
        own = "*control:* " if claim["by"] == "control" else ""
        text = claim["text"].removesuffix(".")
        cells = [name, own + text, claim["verdict"], *map(str, counts)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def rewritten(page: str, folder: Path) -> str:
    """Return the page with the rows of all figures in the folder."""
    match = VERDICTS.search(page)
    if match is None:
        raise SystemExit("the page has no <!-- verdicts --> block")
    kept: dict[str, list[str]] = {}
    for line in match[1].splitlines()[2:]:
        if line.startswith("|"):
            kept.setdefault(line.split("|")[1].strip(), []).append(line)
    for file in sorted(folder.glob("*/verdicts.json")):
        if not file.parent.name.endswith("-quick"):
            kept[file.parent.name] = rows(json.loads(file.read_text(encoding="utf-8")))
    lines = [line for name in sorted(kept, key=order) for line in kept[name]]
    block = "<!-- verdicts -->\n" + HEAD + "\n".join(lines) + "\n<!-- end -->"
    return page[: match.start()] + block + page[match.end() :]


def with_tables(page: str, folder: Path) -> str:
    """Return the page with the tables of all figures in the folder."""

    def block(match: re.Match[str]) -> str:
        figure, ids = match[1], [name.strip() for name in match[2].split(",")]
        source = folder / figure
        if not (source / "figure.md").exists():
            return match[0]
        data = json.loads((source / "verdicts.json").read_text(encoding="utf-8"))
        titles = {table["id"]: table["title"] for table in data["tables"]}
        text = (source / "figure.md").read_text(encoding="utf-8")
        parts = dict(part.split("\n", 1) for part in text.split("\n## ")[1:])
        made = [f"{titles[name]}:\n\n{grid(parts[titles[name]])}" for name in ids]
        return f"<!-- tables {figure}: {match[2]} -->\n\n" + "\n\n".join(made) + "\n\n<!-- end -->"

    return TABLES.sub(block, page)


def grid(text: str) -> str:
    """Return the lines of a table in a part of a page."""
    return "\n".join(line for line in text.splitlines() if line.startswith("|"))


def order(name: str) -> tuple[bool, str]:
    """Return the sort key: figures and tables by number, then the rest."""
    return not name[-1].isdigit(), name


def main() -> None:
    """Update the page of every given folder."""
    for folder in map(Path, sys.argv[1:] or ["reproductions/private-assortment"]):
        target = next(iter(sorted(folder.glob("*/verdicts.json"))), None)
        if target is None:
            raise SystemExit(f"{folder}: no figure/verdicts.json")
        paper = json.loads(target.read_text(encoding="utf-8"))["target"].split("/")[0]
        page = PAGES / f"{paper}.md"
        text = rewritten(page.read_text(encoding="utf-8"), folder)
        page.write_text(with_tables(text, folder), encoding="utf-8")
        print(f"{page.name}: written")


if __name__ == "__main__":
    main()
