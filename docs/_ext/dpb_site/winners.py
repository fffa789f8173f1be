"""Generate the home page's table of best agents, and copy the leaderboard pages."""

from __future__ import annotations

import shutil
from pathlib import Path

from dpb_gym import Result
from dpb_gym.report.comparison_groups import scale_of, short
from dpb_gym.report.leaderboard_data import TrackResult
from dpb_gym.report.page import placed
from dpb_gym.report.tables import MARKS, Line, Matrix, Table, board
from dpb_site.markdown import table

RESULT = "dpb-bench-v1"


def write(root: Path, docs: Path) -> None:
    """Write ``winners.inc``, which the home page includes; empty without a published result.

    Args:
        root: Folder of the generated pages.
        docs: Folder of the hand-written pages.
    """
    folder, text = docs / "leaderboard" / RESULT, ""
    if folder.is_dir():
        shown = board(Result.load(folder).to_leaderboard())
        text = "\n\n".join(_matrix(matrix) for matrix in shown.matrices if matrix.scale)
    root.mkdir(parents=True, exist_ok=True)
    (root / "winners.inc").write_text(text + "\n", encoding="utf-8")


def copy_pages(docs: Path, out: Path) -> None:
    """Copy the leaderboard pages, so that a browser opens instead of downloads them.

    Each page links to the documentation and to its result, which is copied next to it.
    """
    for page in (docs / "leaderboard").glob("*.html"):
        home, result = out / "leaderboard", page.with_suffix("")
        home.mkdir(exist_ok=True)
        if result.is_dir():
            shutil.copytree(result, home / result.name, dirs_exist_ok=True)
        files = f"{result.name}/" if result.is_dir() else ""
        text = placed(page.read_text(encoding="utf-8"), "../", files)
        (home / page.name).write_text(text, encoding="utf-8")


def _matrix(matrix: Matrix) -> str:
    rows = [row for row in matrix.rows if isinstance(row.table.source, TrackResult)]
    heads = [short(budget) for budget in matrix.budgets]
    name = f"Track, {scale_of(matrix.budgets[0])}"
    return table(
        [name, *heads],
        [
            [f"{row.table.title}, {row.group.label}", *(_cell(row.table, win) for win in row.wins)]
            for row in rows
        ],
    )


def _cell(shown: Table, win: Line | None) -> str:
    if win is None:
        return "·"
    ratio = shown.ratio(win)
    times = "" if ratio is None else f" {ratio:.1f}×"
    return f"{win.row.agent}{times} {MARKS[win.mark][0]}"
