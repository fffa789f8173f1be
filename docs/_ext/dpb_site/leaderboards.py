"""Copy the leaderboard pages."""

from __future__ import annotations

import shutil
from pathlib import Path

from dpb_gym.report.page import placed


def copy_pages(docs: Path, out: Path) -> None:
    """Copy the leaderboard pages, so that a browser opens instead of downloads them.

    Each page links to the documentation and to its result, which is copied next to it.
    """
    for page in (docs / "leaderboard").glob("*.html"):
        home, result = out / "leaderboard", page.with_suffix("")
        home.mkdir(exist_ok=True)
        if result.is_dir():
            shutil.copytree(result, home / result.name, dirs_exist_ok=True)
        for metadata in page.parent.glob(f"{page.stem}.croissant.json"):
            shutil.copy(metadata, home / metadata.name)
        files = f"{result.name}/" if result.is_dir() else ""
        text = placed(page.read_text(encoding="utf-8"), "../", files)
        (home / page.name).write_text(text, encoding="utf-8")
