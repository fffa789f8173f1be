"""Write the tables on the pages of docs/papers from stored reproductions.

``python benchmarks/paper_pages.py reproductions/adaprivate-ts ...`` stores the results of every
figure in output folders of ``dpb reproduce PAPER`` in docs/papers/results and writes the pages. A
stored figure has its claims, its tables, and digests of its file and of the code of its agents.
Without folders the pages are written from what is stored. A test fails where a digest differs from
the code of today: run the figure again. rekey.py stores the digests of today without a new
run, for a change that cannot change a number.

A page has three kinds of blocks: ``<!-- summary -->``, the sentences of docs/papers/summaries.yaml
with the numbers of verdicts, ``<!-- verdicts -->``, a row per claim, and ``<!-- tables FIGURE: ID
-->``, tables of a figure by their ids. Other pages have ``<!-- rows PAPER/FIGURE ID: ROW -->``,
rows of a table by their names, separated by semicolons.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from marked import replaced

from dpb_gym.papers import load_figures
from dpb_gym.papers.figure_spec import figure_files
from dpb_gym.registry import agent_spec
from dpb_gym.suites import code_digest

PAGES = Path(__file__).parents[1] / "docs" / "papers"
RESULTS = PAGES / "results"
HEAD = (
    "| figure | claim | verdict | supports | contradicts | open | equal | conditions met? |\n"
    "|---|---|---|---|---|---|---|---|\n"
)
OUTCOMES = ("supported", "contradicted", "undecided", "equal")


def code(agent: str) -> str:
    """Return a digest of an agent's module and helpers, without comments and docstrings."""
    maker = agent_spec(agent).maker
    own = Path(sys.modules[maker.__module__].__file__ or "").read_bytes()
    helpers = code_digest._helpers(maker.__module__)
    digest = hashlib.sha256()
    for source in (own, *(content for _, content in sorted(helpers.items()))):
        digest.update(_plain(source).encode())
    return digest.hexdigest()[:16]


def _plain(source: bytes) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def digests(target: str) -> dict[str, Any]:
    """Return the digests of a figure's file and of the code of its agents."""
    (figure,) = load_figures(target)
    text = figure_files()[target].read_text(encoding="utf-8")
    names = sorted({agent.name for agent in figure.suite.agents})
    return {
        "figure": hashlib.sha256(text.encode()).hexdigest()[:16],
        "agents": {name: code(name) for name in names},
    }


def stored(folder: Path) -> dict[str, Any]:
    """Return what is stored of one figure's output folder."""
    data = json.loads((folder / "verdicts.json").read_text(encoding="utf-8"))
    text = (folder / "figure.md").read_text(encoding="utf-8")
    parts = dict(part.split("\n", 1) for part in text.split("\n## ")[1:])
    claims = []
    for claim in data["claims"]:
        outcomes = [comparison["outcome"] for comparison in claim["comparisons"]]
        kept = {key: claim[key] for key in ("id", "text", "by", "untested", "chosen", "verdict")}
        claims.append({**kept, "counts": [outcomes.count(outcome) for outcome in OUTCOMES]})
    return {
        "target": data["target"],
        "run": {key: value for key, value in data["run"].items() if key != "command"},
        **digests(data["target"]),
        "claims": claims,
        "tables": {t["id"]: [t["title"], grid(parts[t["title"]])] for t in data["tables"]},
    }


def grid(text: str) -> str:
    """Return the lines of a table in a part of a page."""
    return "\n".join(line for line in text.splitlines() if line.startswith("|"))


def rows(data: dict[str, Any]) -> list[str]:
    """Return one row per claim of a stored figure."""
    lines = []
    for claim in data["claims"]:
        control = claim["by"] == "control"
        text = ("*control:* " if control else "") + claim["text"].removesuffix(".")
        chosen = f"yes; chosen: {claim['chosen']}" if claim["chosen"] else "yes"
        met = "–" if control else claim["untested"] or chosen
        # Where equal comparisons were not counted apart, they are among those that contradict.
        counts = [str(count) for count in (*claim["counts"], "–")[: len(OUTCOMES)]]
        cells = [data["target"].split("/")[1], text, claim["verdict"], *counts, met]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def own_claims(results: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the verdict of every claim of the paper itself, by FIGURE/ID."""
    return {
        f"{figure}/{claim['id']}": claim["verdict"]
        for figure, data in results.items()
        for claim in data["claims"]
        if claim["by"] != "control"
    }


def summaries() -> dict[str, dict[str, Any]]:
    """Return docs/papers/summaries.yaml: by paper its claim and its lines."""
    papers: dict[str, dict[str, Any]] = yaml.safe_load(
        (PAGES / "summaries.yaml").read_text(encoding="utf-8")
    )
    return papers


def summary(own: dict[str, Any], verdicts: dict[str, str]) -> str:
    """Return the first lines of a page.

    Args:
        own: The paper's entry of docs/papers/summaries.yaml.
        verdicts: See `own_claims`.
    """
    numbers = Counter(verdicts.values())
    named = dict.fromkeys(line["verdict"] for line in own["lines"])
    counts = ", ".join(f"{numbers[verdict]} {verdict}" for verdict in named)
    lines = [f"* **{line['verdict']}:** {line['says']}" for line in own["lines"]]
    return "\n".join(
        [
            f"**The paper claims:** {own['claim']}",
            "",
            f"**Of its {len(verdicts)} claims here:** {counts}.",
            "",
            *lines,
        ]
    )


def written(page: str, results: dict[str, dict[str, Any]], own: dict[str, Any]) -> str:
    """Return a page with the summary, the rows and the tables of stored figures.

    Args:
        page: Text of the page. Rows and tables of figures that are not stored do not change.
        results: Stored figures by their names.
        own: See `summary`; empty where the page has none.
    """

    def first(_: str, __: str) -> str:
        return summary(own, own_claims(results))

    def verdicts(_: str, old: str) -> str:
        kept: dict[str, list[str]] = {}
        for line in old.splitlines()[2:]:
            kept.setdefault(line.split("|")[1].strip(), []).append(line)
        kept |= {name: rows(data) for name, data in results.items()}
        return HEAD + "\n".join(line for name in sorted(kept, key=order) for line in kept[name])

    def tables(words: str, old: str) -> str:
        figure, _, ids = words.partition(":")
        if figure not in results:
            return f"\n{old}\n"
        made = [results[figure]["tables"][name.strip()] for name in ids.split(",")]
        return "\n" + "\n\n".join(f"{title}:\n\n{lines}" for title, lines in made) + "\n"

    page = replaced(page, "summary", first)
    return replaced(replaced(page, "verdicts", verdicts), "tables", tables)


def with_rows(page: str) -> str:
    """Return a page with rows of the stored tables that its blocks name."""

    def rows_of(words: str, _: str) -> str:
        place, _, names = words.partition(":")
        target, table = place.split()
        paper, figure = target.split("/")
        lines = read(paper)[figure]["tables"][table][1].splitlines()
        wanted = [name.strip() for name in names.split(";")]
        return "\n".join([*lines[:2], *(x for x in lines if x.split("|")[1].strip() in wanted)])

    return replaced(page, "rows", rows_of)


def order(name: str) -> tuple[bool, str]:
    """Return the sort key: figures and tables by number, then the rest."""
    return not name[-1].isdigit(), name


def read(paper: str) -> dict[str, dict[str, Any]]:
    """Return the stored figures of a paper by their names."""
    files = sorted((RESULTS / paper).glob("*.json"))
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}


def _save(data: dict[str, Any]) -> None:
    path = RESULTS / f"{data['target']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Store the figures of every given folder and write all pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "folders", nargs="*", type=Path, metavar="FOLDER", help="of `dpb reproduce`"
    )
    for folder in parser.parse_args().folders:
        for file in sorted(folder.glob("*/verdicts.json")):
            if not file.parent.name.endswith("-quick"):
                _save(stored(file.parent))
    lines = summaries()
    for page in sorted(PAGES.glob("*.md")):
        figures, own = read(page.stem), lines.get(page.stem, {})
        page.write_text(written(page.read_text(encoding="utf-8"), figures, own), encoding="utf-8")
    for page in sorted(PAGES.parent.rglob("*.md")):
        if "<!-- rows " in (text := page.read_text(encoding="utf-8")):
            page.write_text(with_rows(text), encoding="utf-8")


if __name__ == "__main__":
    main()
