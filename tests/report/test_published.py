"""The published result of the arena is what the package would compute and show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dpb_gym import Result
from dpb_gym.evaluation.spec import ALGORITHM_VERSION
from dpb_gym.evaluation.store import Store
from dpb_gym.evaluation.suite import load_suite

FOLDER = Path(__file__).parents[2] / "docs" / "leaderboard"
PUBLISHED = FOLDER / "dpb-bench-v1"
pytestmark = pytest.mark.skipif(
    not PUBLISHED.exists(), reason="the published results are not part of the sdist"
)


def test_it_belongs_to_the_suite_and_says_which_algorithms_computed_it() -> None:
    store = Store.open(PUBLISHED)
    suite = load_suite("dpb-bench-v1")
    assert store.manifest["protocol"] == suite.protocol
    (version,) = {entry.cell.algorithm for entry in store.entries.values()}
    assert version == store.manifest["algorithm"]
    said = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert (f"computed by version {version} of the algorithms" in said) == (
        version != ALGORITHM_VERSION
    )
    assert len(list(PUBLISHED.iterdir())) + 2 <= 4 + len(list(PUBLISHED.glob(".lock")))
    rows = {r.cell.row[:2] for r in store.results()}  # checks every digest
    assert {task for task, _ in rows} == {task.name for task in suite.tasks}


def test_the_tables_of_the_index_are_its_numbers() -> None:
    result = Result.load(PUBLISHED)
    means = {
        (
            s.task,
            s.agent,
            s.budget.replace(",delta=1e-5", "").replace("eps", "epsilon"),
        ): s.regret[:, -1].mean()
        for s in result.series
    }
    task, checked, agent = "", 0, ""
    for line in (FOLDER / "index.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| task"):
            agent = line.split("|")[3].strip()
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if not line.startswith("|") or len(cells) != 5 or "=" not in cells[1]:
            continue
        task = cells[0] or task
        shown = float(cells[2].split(" ± ")[0].replace(",", ""))
        other, value = re.fullmatch(r"(.*) ([\d,.]+)", cells[3]).groups()  # type: ignore[union-attr]
        for name, number in ((agent, shown), (other, float(value.replace(",", "")))):
            mean = means[task, name, cells[1]]
            assert number == pytest.approx(mean, abs=0.051 if mean < 100 else 0.51)
        checked += 1
    assert checked > 50
