"""The published result of the arena matches its suite and the documents that quote it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dpb_gym import Result
from dpb_gym.report.leaderboard_data import (
    DEFAULTS,
    RULINGS,
    TUNED,
    Interval,
    LeaderboardData,
)
from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.suites.spec import ALGORITHM_VERSION
from dpb_gym.suites.suite import load_suite

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "leaderboard"
PUBLISHED = FOLDER / "dpb-bench-v1"
pytestmark = pytest.mark.skipif(
    not PUBLISHED.exists(), reason="the published results are not part of the sdist"
)


@pytest.mark.slow
def test_the_published_result_has_the_protocol_and_algorithm_versions() -> None:
    store = ResultDirectory.open(PUBLISHED)
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


@pytest.fixture(scope="module")
def data() -> LeaderboardData:
    return Result.load(PUBLISHED).to_leaderboard()


@pytest.mark.slow
def test_the_metadata_are_those_of_the_result(import_benchmark, data):
    sheet = import_benchmark("datasheet")
    path = PUBLISHED.with_suffix(".croissant.json")
    assert path.read_text(encoding="utf-8") == sheet.text(PUBLISHED)
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    assert f"<!-- data -->\n{sheet.table()}\n<!-- /data -->" in page
    croissant = pytest.importorskip("mlcroissant", reason="mlcroissant is not installed")
    assert not croissant.Dataset(str(path)).metadata.issues.errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("docs/leaderboard/index.md", "tables"),
        ("docs/index.md", "headline"),
        ("docs/where-ours-loses.md", "losses"),
        ("README.md", "agents"),
        ("docs/trust.md", "trust"),
        ("docs/trust.md", "aims"),
        ("docs/trust.md", "limits"),
        ("docs/trust.md", "messages"),
        ("docs/trust.md", "local-messages"),
        ("docs/arena.md", "tuned"),
        ("docs/arena.md", "cost"),
    ],
)
def test_claims_are_written_from_it(import_benchmark, data, path, name):
    """An edited number, or a result without its tables, fails this test."""
    script = import_benchmark("published")
    written = {
        "tables": lambda: script.index(data),
        "headline": lambda: script.headline(data),
        "losses": lambda: script.losses(data),
        "agents": lambda: script.readme(data),
        "trust": lambda: script.trust.table(data),
        "aims": lambda: script.trust.aims(data),
        "limits": lambda: script.trust.limit_table(data),
        "messages": lambda: script.trust.messages(),
        "local-messages": lambda: script.trust.local_losses(),
        "tuned": lambda: script.tuning(ROOT / "agents/recipes", [t.track for t in data.tracks]),
        "cost": lambda: script.cost(data, ResultDirectory.open(PUBLISHED).results()),
    }[name]()
    text = (ROOT / path).read_text(encoding="utf-8")
    assert f"<!-- {name} -->\n{written}\n<!-- /{name} -->" in text


@pytest.mark.slow
def test_rows_on_pages_of_agents_are_written_from_it(import_benchmark, data):
    script = import_benchmark("published")
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")]
    texts = [text for text in texts if "<!-- board " in text]
    assert len(texts) >= 2
    assert all(script.on_pages(text, data) == text for text in texts)


@pytest.mark.slow
def test_the_loss_of_a_local_score_message_is_quoted_right(import_benchmark):
    trust = import_benchmark("trust")
    losses = " / ".join(f"{loss:.0f}" for loss in trust.score_losses())
    assert losses in trust.score_losses.__doc__


ORDER = {
    "local": ("local",),
    "shuffler": ("local", "shuffler"),
    "aggregator": ("local", "shuffler", "aggregator"),
}


@pytest.mark.parametrize("ruling", RULINGS)
@pytest.mark.parametrize("trust", ORDER)
def test_what_is_not_compared_is_what_the_table_lacks(data, ruling, trust):
    """A recount from the rows: which sides have a row of this trust or less, at most the budget."""
    ours = {one.name for one in data.origins if one.standing == "ours"}
    sides: dict[tuple[str, str | None, float], set[bool]] = {}
    for task in data.tasks:
        private = [row for row in task.rows if row.private and not row.reference]
        limits = {(row.unit, row.budget.limit) for row in private}
        for unit, limit in limits:
            here = [
                row.name in ours
                for row in private
                if row.unit == unit and row.trust_model in ORDER[trust]
                and row.budget.limit <= limit and (ruling == TUNED or row.ruling == DEFAULTS)
            ]  # fmt: skip
            if here:
                sides[task.task, unit, limit] = set(here)
    count = data.tally(ruling, trust)
    assert count["all"] == len(sides) > 0
    compared = sum(side == {True, False} for side in sides.values())
    assert count["ahead"] + count["undecided"] + count["behind"] == compared
    assert count["not compared"] == len(sides) - compared


def test_the_counts_of_each_line_add_up(import_benchmark, data):
    lines = [
        line for line in import_benchmark("published").headline(data).splitlines() if "|" in line
    ]
    assert len(lines) == 2 + 8
    for line in lines[2:]:
        total, better, *others = [cell.split()[0] for cell in line.strip("| ").split(" | ")[2:]]
        assert int(total) == int(better) + sum(map(int, others))


def test_the_readme_has_three_numbers_for_each_problem(import_benchmark, data):
    text = import_benchmark("published").readme(data)
    lines = [line for line in text.splitlines() if " ± " in line]
    assert len(lines) == 3 and all(line.count(" ± ") == 3 for line in lines)


def test_multiples_are_of_the_best_row_without_privacy(import_benchmark, data):
    """With default or tuned parameters."""
    trust = import_benchmark("trust")
    task = data.tasks[0]
    best = trust.best_row(task)
    assert best.regret.mean == min(
        row.regret.mean for row in task.rows if not row.private and not row.reference
    )
    half = Interval(*[best.regret.mean / 2] * 3)
    tuned = replace(best, agent=f"{best.agent} (tuned)", ruling=TUNED, regret=half)
    assert trust.best(replace(task, rows=(*task.rows, tuned))) == best.regret.mean / 2
