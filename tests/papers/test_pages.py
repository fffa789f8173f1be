"""Pages of papers are written from stored results, and these from the code of today."""

from __future__ import annotations

import importlib
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpb_gym import agent_specs, evaluate, make_problem
from dpb_gym.planning.private_tuning import cost_of_run
from dpb_gym.privacy import Budget, Curator, NoiseSource
from dpb_gym.registry import make_agent
from dpb_gym.streams import AgentStreams

ROOT = Path(__file__).parents[2]
PAPERS = ("adaprivate-ts", "private-assortment", "private-pricing")
pytestmark = pytest.mark.skipif(
    not (ROOT / "docs/papers/results").exists(), reason="stored results are not part of the sdist"
)


@pytest.fixture
def pages(import_benchmark: Any) -> Any:
    return import_benchmark("paper_pages")


@pytest.mark.parametrize("paper", PAPERS)
def test_pages_are_written_from_stored_results(pages: Any, paper: str) -> None:
    """An edited number fails this test."""
    text = (pages.PAGES / f"{paper}.md").read_text(encoding="utf-8")
    assert pages.written(text, pages.read(paper), pages.summaries()[paper]) == text


@pytest.mark.parametrize("paper", PAPERS)
def test_a_page_begins_with_lines_about_every_claim_of_its_paper(pages: Any, paper: str) -> None:
    """A sentence stands under the verdict of each of its claims, and leaves none out."""
    lines = pages.summaries()[paper]["lines"]
    said = [(claim, line["verdict"]) for line in lines for claim in line["claims"]]
    assert sorted(said) == sorted(pages.own_claims(pages.read(paper)).items())
    assert len(lines) <= 10
    head = (pages.PAGES / f"{paper}.md").read_text(encoding="utf-8").splitlines()[:8]
    assert "<!-- summary -->" in head


def test_few_verdicts_are_open(pages: Any) -> None:
    """Of all claims, those of controls included, at most one in ten is UNDECIDED."""
    verdicts = [
        claim["verdict"]
        for paper in PAPERS
        for data in pages.read(paper).values()
        for claim in data["claims"]
    ]
    assert verdicts.count("UNDECIDED") <= len(verdicts) / 10


def test_every_figure_of_the_recommendation_paper_is_stored(pages: Any) -> None:
    text = (pages.PAGES / "adaprivate-ts.md").read_text(encoding="utf-8")
    figures = {target for target in pages.figure_files() if target.startswith("adaprivate-ts/")}
    assert {f"adaprivate-ts/{name}" for name in pages.read("adaprivate-ts")} == figures
    for figure in figures:
        assert f"| `/{figure.split('/')[1]}` |" in text, figure


def texts(block: str) -> dict[str, str]:
    """Return the pages with a block of this name."""
    contents = {
        path.relative_to(ROOT / "docs").as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((ROOT / "docs").rglob("*.md"))
    }
    return {name: text for name, text in contents.items() if f"<!-- {block} " in text}


def test_rows_on_other_pages_are_those_of_stored_tables(pages: Any) -> None:
    by_page = texts("rows")
    assert len(by_page) >= 3
    for name, text in by_page.items():
        assert pages.with_rows(text) == text, name


@pytest.fixture
def cells(import_benchmark: Any) -> Any:
    return import_benchmark("measured")


def test_cells_on_pages_are_those_of_stored_suites(cells: Any) -> None:
    by_page = texts("cells")
    for name, text in by_page.items():
        assert cells.on_pages(text) == text, name
    used = {word for text in by_page.values() for word in re.findall(r"<!-- cells ([\w-]+):", text)}
    assert used | {"robustness-v0"} == {path.stem for path in cells.SUITES.glob("*.json")}


def test_stored_suites_are_those_of_the_code_of_today(cells: Any) -> None:
    stale = []
    for path in sorted(cells.SUITES.glob("*.json")):
        data, now = cells.read(path.stem), cells.digests(path.stem)
        old = [name for name, code in now["agents"].items() if data["agents"].get(name) != code]
        if old or data["suite"] != now["suite"]:
            stale.append(f"{path.stem}: {', '.join(old) or 'its file'}")
    assert not stale, f"run again, or rekey.py where no number can have changed: {'; '.join(stale)}"


def test_cells_of_a_suite_are_shown_by_budget_or_by_task(cells: Any, monkeypatch: Any) -> None:
    data = {
        "cells": [
            ["d-3", "one-pass-pricing", "eps=2,delta=2e-8", "1234.5", "7.25"],
            ["d-3", "random", "none", "9.876", "0.5"],
            ["d-5", "random", "none", "12.34", "0.5"],
        ]
    }
    monkeypatch.setattr(cells, "read", lambda name: data)
    assert cells.table("one-pass-pricing", ["d-3"]).splitlines()[2:] == [
        "| one-pass-pricing | 1,234 ± 7 | – |",
        "| random | – | 9.88 ± 0.50 |",
    ]
    assert cells.table("one-pass-pricing", ["d-3", "d-5"]).splitlines()[2:] == [
        "| one-pass-pricing | eps=2 | 1,234 ± 7 | – |",
        "| random | no budget | 9.88 ± 0.50 | 12.3 ± 0.5 |",
    ]


@pytest.fixture
def growth(import_benchmark: Any) -> Any:
    return import_benchmark("growth")


def test_the_growth_of_regret_is_written_from_the_code_of_today(growth: Any) -> None:
    marked, data = importlib.import_module("marked"), json.loads(growth.STORED.read_text())
    page = (ROOT / "docs/where-ours-loses.md").read_text(encoding="utf-8")
    assert marked.block(page, "growth") == growth.table(data["cases"])
    assert set(data["cases"]) == {case.agent for case in growth.CASES}
    now = {name: growth.code(name) for name in data["agents"]}
    assert data["agents"] == now, "run benchmarks/growth.py --replicates 12, or rekey.py"


def test_the_table_of_laws_is_written_from_the_code_of_today(import_benchmark: Any) -> None:
    laws, marked = import_benchmark("response_pricing"), importlib.import_module("marked")
    data = json.loads(laws.STORED.read_text(encoding="utf-8"))
    assert marked.block(laws.PAGE.read_text(encoding="utf-8"), "law") == laws.page(data["worlds"])
    assert list(data["worlds"]) == list(laws.WORLDS)
    now = {name: laws.code(name) for name in data["agents"]}
    assert data["agents"] == now, "run benchmarks/response_pricing.py --replicates 12"


WRITTEN = re.compile(r"<!-- (\w+)(?: [^>\n]*)? -->\n.*?<!-- /\1 -->|```.*?```", re.DOTALL)


def test_decimals_in_the_text_of_a_reproduction_are_in_its_tables() -> None:
    page = (ROOT / "docs/papers/adaprivate-ts.md").read_text(encoding="utf-8")
    blocks = " ".join(match[0] for match in WRITTEN.finditer(page))
    quoted = set(re.findall(r"(?<![\w.])\d+\.\d+", WRITTEN.sub("", page)))
    assert not {number for number in quoted if number not in blocks}


def test_means_with_errors_stand_in_written_blocks() -> None:
    """A typed mean on any page fails this test. Quotes of papers may have them."""
    typed = re.compile(r"\d ?(?:±|\+-) ?\.?\d|\d \[\d[\d.,]*, \d")
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name = path.relative_to(ROOT / "docs").as_posix()
        if name.startswith("_"):
            continue
        text = WRITTEN.sub("", path.read_text(encoding="utf-8"))
        means = typed.findall("\n".join(x for x in text.splitlines() if not x.startswith(">")))
        assert not means, f"{name}: {means}"


def test_stored_results_are_those_of_the_code_of_today(pages: Any) -> None:
    stale = []
    for path in sorted(pages.RESULTS.glob("*/*.json")):
        target = f"{path.parent.name}/{path.stem}"
        data, now = pages.read(path.parent.name)[path.stem], pages.digests(target)
        old = [name for name, code in now["agents"].items() if data["agents"].get(name) != code]
        if old or data["figure"] != now["figure"]:
            stale.append(f"{target}: {', '.join(old) or 'its file'}")
    assert not stale, f"run again, or rekey.py where no number can have changed: {'; '.join(stale)}"


def test_code_digests_see_statements_but_no_comments(pages: Any) -> None:
    plain = 'def f(x):\n    """Return x."""\n    return x  # as it is\n'
    same, other = "def f(x):\n    return x\n", "def f(x):\n    return x + 1\n"
    assert pages._plain(plain.encode()) == pages._plain(same.encode())
    assert pages._plain(plain.encode()) != pages._plain(other.encode())


def test_blocks_are_replaced_by_name_and_words(pages: Any) -> None:
    marked = importlib.import_module("marked")
    page = "a\n<!-- one x -->\nold\n<!-- /one -->\n<!-- two -->\nkept\n<!-- /two -->\nb\n"
    new = marked.replaced(page, "one", lambda words, old: f"{words} {old}!")
    assert new == page.replace("\nold\n", "\nx old!\n")
    assert marked.block(page, "two") == "kept"
    with pytest.raises(SystemExit, match="three"):
        marked.block(page, "three")


def test_noise_and_true_costs_on_pages_are_those_of_the_agents_of_today(
    import_benchmark: Any,
) -> None:
    noise, by_page = import_benchmark("noise"), texts("noise")
    assert len(by_page) >= 5
    for name, text in by_page.items():
        assert noise.on_pages(text) == text, f"{name}: run benchmarks/noise.py"


def test_effects_of_constants_are_those_of_the_agents_of_today(import_benchmark: Any) -> None:
    constants, marked = import_benchmark("constants"), importlib.import_module("marked")
    data, page = json.loads(constants.STORED.read_text()), (ROOT / "docs/one-pass.md").read_text()
    assert marked.block(page, "constants") == constants.table(data)
    assert list(data) == ["one-pass-pricing", "one-pass-mnl"]
    for agent, stored in data.items():
        assert stored["code"] == constants.code(agent), f"run constants.py {agent} --store"


def test_effects_of_rules_are_those_of_the_agents_of_today(import_benchmark: Any) -> None:
    ablation, marked = import_benchmark("ablation"), importlib.import_module("marked")
    data, page = json.loads(ablation.STORED.read_text()), (ROOT / "docs/one-pass.md").read_text()
    assert marked.block(page, "ablation") == ablation.table(data)
    assert list(data) == list(ablation.RULES)
    for agent, stored in data.items():
        assert stored["code"] == ablation.code(agent), f"run ablation.py --agent {agent}"
        assert set(stored["regrets"]) == set(ablation.worlds(agent))
        for by_rule in stored["regrets"].values():
            assert list(by_rule) == [ablation.WHOLE, *ablation.RULES[agent]]


def test_every_rule_of_the_table_can_be_switched_off(import_benchmark: Any) -> None:
    ablation = import_benchmark("ablation")
    data = json.loads(ablation.STORED.read_text())
    for agent, rules in ablation.RULES.items():
        for rule, settings in rules.items():
            for name, value in settings.items():
                if " " in name:
                    owner, attribute = ablation.target(name)
                    assert getattr(owner, attribute) is not value, name
                else:
                    make_agent(agent, **{name: value})  # raises if there is no such parameter
            changes = [cell.change for cell in ablation.effects(data[agent]["regrets"], rule)]
            assert any(changes), f"{agent} is the same without {rule}"


def test_regret_of_private_tuning_is_that_of_the_agents_of_today(import_benchmark: Any) -> None:
    tuning, marked = import_benchmark("private_tuning"), importlib.import_module("marked")
    data, page = json.loads(tuning.STORED.read_text()), (ROOT / "docs/arena.md").read_text()
    assert marked.block(page, "private") == tuning.table(data)
    for agent in tuning.ENVS:
        assert data[agent]["code"] == tuning.code(agent), f"run private_tuning.py {agent}"


def test_the_page_of_speed_is_written_from_stored_timings(import_benchmark: Any) -> None:
    speed = import_benchmark("speed")
    data, page = json.loads(speed.STORED.read_text()), speed.PAGE.read_text(encoding="utf-8")
    assert speed.on_page(page, data) == page
    blocks = {words.split()[0] for words in re.findall(r"<!-- speed ([\w ]+) -->", page)}
    assert blocks == set(data)


@pytest.mark.parametrize(
    ("env_id", "agent", "budget"),
    [
        ("DPB/Recommendation-v0", "lin-ucb", "none"),
        ("DPB/Assortment-v0", "one-pass-mnl", "rho=1"),
        ("DPB/Pricing-v0", "private-pricing", "rho=1"),
    ],
)
def test_the_speed_is_that_of_the_rounds_of_the_harness(
    import_benchmark: Any, env_id: str, agent: str, budget: str
) -> None:
    """Rounds in stretches, and rounds one by one where an agent has no stretches."""
    lanes = import_benchmark("speed").Lockstep(env_id, agent, 2, 30, budget)
    lanes.run(10)
    lanes.run(20)
    result = evaluate(
        env_id, {"agent": (agent, budget)}, horizon=30, replicates=2, checkpoints=[30]
    )
    assert lanes.regret.tolist() == [row["regret"] for row in result.records()]


@pytest.fixture
def lifetime(import_benchmark: Any) -> Any:
    return import_benchmark("lifetime")


def test_the_page_of_accounts_is_written_from_the_stored_result(lifetime: Any) -> None:
    data, page = json.loads(lifetime.STORED.read_text()), lifetime.PAGE.read_text(encoding="utf-8")
    assert lifetime.on_page(page, data) == page
    stale = {
        f"lifetime.py {part}: {name}"
        for part, stored in data.items()
        for name, digest in stored.get("agents", {}).items()
        if lifetime.code(name) != digest
    }
    assert not stale, f"run again, or rekey.py where no number can have changed: {', '.join(stale)}"


def test_the_speed_of_accounts_is_written_from_the_stored_result(import_benchmark: Any) -> None:
    account = import_benchmark("account")
    data, page = json.loads(account.STORED.read_text()), account.PAGE.read_text(encoding="utf-8")
    assert account.on_page(page, data) == page
    assert data["people"] == 1_000_000 and account.text(data) in page


@pytest.fixture
def others(import_benchmark: Any) -> Any:
    return import_benchmark("other_pages")


def test_the_page_of_worlds_is_written_from_stored_results(others: Any) -> None:
    marked, worlds = importlib.import_module("marked"), others.worlds()
    page = (others.DOCS / "outside.md").read_text()
    assert marked.block(page, "worlds") == others.outside(worlds)
    assert marked.block(page, "leads") == others.leads(worlds)


def test_worlds_are_compared_within_trust_models(others: Any) -> None:
    def row(agent: str, by: str, trust: str, regret: float) -> dict[str, Any]:
        return {
            "setting": "s",
            "agent": agent,
            "by": by,
            "trust": trust,
            "regret": regret,
            "true": 1,
        }

    rows = [
        row("strict", "authors", "local", 9.0),
        row("loose", "authors", "joint", 5.0),
        row("ours", "us", "joint", 2.0),
        row("worse", "us", "joint", 3.0),
        row("mine", "us", "local", 18.0),
    ]
    text = others.leads({"w": {"rows": rows}})
    assert text.startswith("In 1 of 2 comparisons") and "in 0 less" in text and "in 1 more" in text
    assert "in 1 of 1 settings" in text
    first, second = text.splitlines()[-2:]
    assert "loose 5 | 1 | `ours` 2 | 1 | 2.50 |" in first
    assert "strict 9 | 1 | `mine` 18 | 1 | 0.50 |" in second


def test_the_page_of_the_home_ground_is_written_from_stored_results(others: Any) -> None:
    if not others.HOME.exists():
        pytest.skip("the home ground has no stored results")
    data = others.Result.load(others.HOME).to_leaderboard()
    board = others.home(data)
    marked = importlib.import_module("marked")
    assert marked.block((others.DOCS / "outside.md").read_text(), "home") == board
    stored = json.loads(others.HOME.with_suffix(".json").read_text())
    played = {row.name for task in data.tasks for row in task.rows}
    assert set(stored) == played
    stale = [name for name in stored if stored[name] != others.code(name)]
    assert not stale, f"run home-ground-v0 again, or verify and rekey.py: {', '.join(stale)}"


def test_stored_worlds_are_those_of_the_agents_of_today(others: Any) -> None:
    for world, data in others.worlds().items():
        now = {name: others.code(name) for name in data["agents"]}
        assert data["agents"] == now, f"run again: dpb outside {world}"


@pytest.fixture
def grid(import_benchmark: Any) -> Any:
    return import_benchmark("robustness")


def test_the_grid_of_robustness_is_written_from_stored_results(grid: Any) -> None:
    marked, data = importlib.import_module("marked"), json.loads(grid.STORED.read_text())
    page = (ROOT / "docs/agents/robustness.md").read_text(encoding="utf-8")
    assert list(data["cases"]) == list(grid.cases())
    assert marked.block(page, "grid") == grid.table(data["cases"])
    assert marked.block(page, "long") == grid.long_table(data["cases"], data["long"])
    losses = (ROOT / "docs/where-ours-loses.md").read_text(encoding="utf-8")
    assert marked.block(losses, "within") == grid.table(data["cases"]).partition("\n\n")[0]


def test_regret_under_conditions_is_written_from_the_stored_suite(grid: Any) -> None:
    marked = importlib.import_module("marked")
    page = (ROOT / "docs/conditions.md").read_text(encoding="utf-8")
    assert marked.block(page, "robustness") == grid.ruled(grid.shares())


def test_the_stored_grid_is_of_the_agents_of_today(grid: Any) -> None:
    stored = json.loads(grid.STORED.read_text())["agents"]
    now = {name: grid.code(name) for name in stored}
    assert stored == now, "run benchmarks/robustness.py --case CASE, or rekey.py"


def test_cells_compare_as_documented(grid: Any) -> None:
    ours = np.array([[1.0, 3.0, 4.0], [2.0, 5.0, 6.0], [1.5, 4.0, 5.0]])
    best = np.array([[1.0, 1.0, 2.0], [1.0, 2.0, 3.0], [1.0, 2.0, 2.6]])
    cell = grid.cell(ours, best, chance=100.0, T=1000)
    assert cell.ratio == pytest.approx(15.0 / 7.6)
    assert cell.rounds == pytest.approx((5.0 - 7.6 / 3) * 10.0)
    assert cell.tail == pytest.approx(1.0 / 1.5) and cell.ahead == "theirs"
    paired = ours[:, -1] - cell.ratio * best[:, -1]
    half = 4.302653 * paired.std(ddof=1) / 3**0.5 / (7.6 / 3)
    assert cell.half == pytest.approx(half, rel=1e-6)
    assert grid.cell(ours, best, chance=1e5, T=1000).tail == 0.0
    assert grid.cell(ours, ours[::-1], chance=1.0, T=1000).ahead == "-"


def test_tails_have_the_interval_of_a_ratio_of_paired_means(grid: Any) -> None:
    curves = np.array([[1.0, 3.0, 4.0], [2.0, 5.0, 5.5], [1.5, 4.0, 5.0]])
    ratio, half = grid.late_share(curves)
    assert ratio == pytest.approx(2.5 / 4.5)
    errors = np.array([1.0, 0.5, 1.0]) - ratio * curves[:, 0]
    assert half == pytest.approx(4.302653 * errors.std(ddof=1) / 3**0.5 / 1.5, rel=1e-6)


def is_of_this_package(name: str) -> bool:
    """Return whether an agent is not one that another test has registered."""
    return agent_specs()[name].maker.__module__.startswith("dpb_agents.")


def test_published_audits_are_of_the_agents_of_today(import_benchmark: Any) -> None:
    audits, marked = import_benchmark("audit_power"), importlib.import_module("marked")
    stored = json.loads(audits.AGENTS.read_text(encoding="utf-8"))
    page = (ROOT / "docs/audit.md").read_text(encoding="utf-8")
    rows = [line.split("`")[1] for line in marked.block(page, "audits").splitlines()[2:]]
    ours = [name for name in audits.private_agents() if is_of_this_package(name)]
    assert sorted(rows) == sorted(stored) == sorted(ours)
    stale = [name for name in stored if stored[name]["code"] != audits.code(name)]
    assert not stale, f"run audit_power.py --published --only AGENT: {', '.join(stale)}"


def test_records_of_published_audits_are_those_of_the_page(import_benchmark: Any) -> None:
    """Results show the verdict of a record whose `source` is the digest of the agent's code."""
    audits, marked = import_benchmark("audit_power"), importlib.import_module("marked")
    stored = json.loads(audits.AGENTS.read_text(encoding="utf-8"))
    page = (ROOT / "docs/audit.md").read_text(encoding="utf-8")
    for line in marked.block(page, "audits").splitlines()[2:]:
        name, _, _, _, verdict, control, runs = (cell.strip(" `") for cell in line.split("|")[1:8])
        new = audits.record_of(name, verdict, control, int(runs.replace(",", "")))
        assert stored[name] == new, f"run rekey.py if {name} has the same numbers"


@pytest.fixture
def fits(import_benchmark: Any) -> Any:
    return import_benchmark("expedia_fits")


def test_fits_to_generated_searches_are_those_of_today(fits: Any) -> None:
    marked = importlib.import_module("marked")
    lines = marked.block(fits.PAGE.read_text(encoding="utf-8"), "fits").splitlines()
    assert lines[2:6] == fits.rows("generated")


@pytest.mark.filterwarnings("ignore:.*is cut off")
def test_fits_to_real_searches_are_those_of_today(fits: Any) -> None:
    folder = Path(os.environ.get("DPB_DATA", "")) / "expedia"
    if not all((folder / file).is_file() for file, _ in fits.FILES.values()):
        pytest.skip("needs the files of searches in the folder DPB_DATA")
    marked = importlib.import_module("marked")
    lines = marked.block(fits.PAGE.read_text(encoding="utf-8"), "fits").splitlines()
    assert lines[6:] == fits.real(folder)


def test_the_share_of_a_private_tuning_run_is_that_of_the_accounting() -> None:
    page = " ".join((ROOT / "docs/arena.md").read_text(encoding="utf-8").split())
    assert "about a seventh at epsilon 1, and a fifth at epsilon 4" in page
    for epsilon, share in ((1.0, 1 / 7), (4.0, 1 / 5)):
        budget = Budget.approx(epsilon, 1e-5)
        curator = Curator(budget, noise=NoiseSource.from_seed(0), horizon=1)
        curator.batch_sum(1, clip=1.0)
        curator.seal()
        part = cost_of_run(budget, 32) / curator.guarantee.rho
        assert part == pytest.approx(share, rel=0.05)
    assert "0.002 of rho = 0.5 per run" in page
    assert f"{cost_of_run(Budget.zcdp(0.5), 32):.3f}" == "0.002"


@pytest.fixture
def floors(import_benchmark: Any) -> Any:
    return import_benchmark("floors")


def test_simple_rivals_are_written_from_stored_results_of_the_agents_of_today(floors: Any) -> None:
    marked, data = importlib.import_module("marked"), json.loads(floors.STORED.read_text())
    assert list(data["problems"]) == [*floors.LOGS, *floors.ARMS]
    assert marked.block(floors.PAGE.read_text(encoding="utf-8"), "floors") == floors.table(
        data["problems"]
    )
    now = {name: floors.code(name) for name in data["agents"]}
    assert data["agents"] == now, "run benchmarks/floors.py --problem PROBLEM"


def test_marks_say_which_of_two_has_more_regret(floors: Any) -> None:
    ours = np.array([4.0, 5.0, 6.0, 5.0])
    assert floors.against(ours, ours - 2.0 + 0.1 * ours) == "3.5 **"
    assert floors.against(ours, ours + np.array([-1.0, 1.0, 2.0, -1.0])) == "5.25 \\*"
    assert floors.against(ours, ours + 2.0) == "7"
    text = floors.table({"shop": {"one-pass-mnl rho=1": [4.0, 5.0], "random none": [1.0, 2.0]}})
    assert "than random in 1 of 1, than best single action in 0 of 0, than dp-se in 0 of 0" in text
    assert text.endswith("| shop | `one-pass-mnl` | rho=1 | 4.5 | 1.5 ** | – | – |")


def test_arms_of_a_log_are_the_places_of_its_candidates(floors: Any) -> None:
    problem = make_problem("DPB/Recommendation-v0", horizon=9, n_candidates=4)
    agent, instance = make_agent("dp-se-by-place"), problem.instance([3])
    agent.set_up(problem.info, AgentStreams([3]), Budget.zcdp(1.0))
    chosen = []
    for _ in range(9):
        context = instance.context()
        action = agent.act(context)
        agent.observe(context, action, instance.respond(action).feedback)
        chosen.append(int(action[0]))
        if len(chosen) < 9:
            instance.advance()
    assert sorted(chosen[:4]) == [0, 1, 2, 3], "arms are played in turn, in a random order"
    assert chosen[4:] == chosen[:5]


def test_rekeying_replaces_digests_of_agents_only(import_benchmark: Any) -> None:
    rekey, old = import_benchmark("rekey"), "0123456789abcdef"
    stored = {"suite": old[::-1], "agents": {"lin-ucb": old}, "dpmnl": {"code": "f" * 16}}
    new = json.loads(rekey.rekeyed(json.dumps(stored)))
    assert new["suite"] == stored["suite"]
    assert new["agents"]["lin-ucb"] == rekey.code("lin-ucb") != old
    assert new["dpmnl"]["code"] == rekey.code("dpmnl")
    record = {"code": old, "source": old, "verdict": "PASS"}
    (audited,) = json.loads(rekey.rekeyed_audits(json.dumps({"dpmnl": record}))).values()
    assert audited["code"] == rekey.code("dpmnl") and audited["verdict"] == "PASS"
    assert audited["source"] == rekey.code_hash(rekey.agent_specs()["dpmnl"].maker)
