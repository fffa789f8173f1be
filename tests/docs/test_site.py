"""The site has a page with a working example per registered environment and agent."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import gymnasium
import pytest

import dpb_gym
from dpb_gym.envs.registration import ENVIRONMENTS
from dpb_gym.registry import agent_specs

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\((/[^)#\s]+\.md)")
# Other tests may register environments and agents in this process.
OWN_ENVS = [i for i in ENVIRONMENTS if i.startswith("DPB/")]
OWN_AGENTS = [n for n, s in agent_specs().items() if s.entry_point.startswith("dpb_agents.")]


@pytest.fixture(scope="module")
def extension():
    sys.path.insert(0, str(DOCS / "_ext"))
    yield importlib.import_module("dpb_site")
    sys.path.remove(str(DOCS / "_ext"))


@pytest.fixture(scope="module")
def site(extension, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    extension.generate(DOCS, folder)
    return folder


@pytest.mark.parametrize("env_id", OWN_ENVS)
def test_every_environment_has_a_page_whose_example_runs(site, env_id, capsys):
    page = (site / "environments" / f"{env_id.replace('/', '-')}.md").read_text()
    assert page.startswith(f"# {env_id}\n")
    for title in ("Example", "Parameters", "Observation and action", "Source"):
        assert f"\n## {title}\n" in page
    for name, value in ENVIRONMENTS[env_id].parameters.items():
        assert f"`{name}` = `{value!r}`" in page
    assert "See the problem's class." not in page, "a parameter is not described"
    code = FENCE.findall(page)[0]
    exec(code, {})
    assert env_id in capsys.readouterr().out


@pytest.mark.parametrize("env_id", OWN_ENVS)
def test_every_environment_has_the_picture_that_it_renders(site, env_id):
    """Drawn here in the same way, by the present code."""
    from matplotlib.image import imread

    name = env_id.replace("/", "-")
    assert f"```{{image}} {name}.png" in (site / "environments" / f"{name}.md").read_text()
    env = gymnasium.make(env_id, render_mode="rgb_array", horizon=40)
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(40):
        env.step(env.action_space.sample())
    shown = (imread(site / "environments" / f"{name}.png")[..., :3] * 255).round()
    assert (shown == env.render()).all() and shown.std() > 1


@pytest.mark.parametrize("name", OWN_AGENTS)
def test_every_agent_has_a_page_with_its_guarantee(site, name):
    page = (site / "agents" / f"{name}.md").read_text()
    spec = agent_specs()[name]
    assert page.startswith(f"# {name}\n") and spec.summary in page
    private = "per reward" in page or "per user" in page
    assert "## Guarantee" in page and private == (spec.budget != "never")
    assert "rho=0 " not in page, "the guarantee was computed before the releasers were calibrated"
    assert "Not described." not in page, "a parameter is not described"
    code = FENCE.findall(page)[0]
    assert f'"{name}"' in code


# One agent per class.
CLASSES = {agent_specs()[n].entry_point: n for n in OWN_AGENTS}


@pytest.mark.parametrize("name", CLASSES.values())
def test_examples_of_agents_run(site, name, capsys):
    code, *_ = FENCE.findall((site / "agents" / f"{name}.md").read_text())
    exec(code.replace("horizon=500", "horizon=300"), {"dpb_gym": dpb_gym})
    out = capsys.readouterr().out
    assert name in out and "baseline" in out


def test_indices_list_every_page(site):
    listed = (site / "environments" / "index.md").read_text()
    assert all(f"`{env_id}`" in listed for env_id in OWN_ENVS)
    listed = (site / "agents" / "index.md").read_text()
    assert all(f"\n{name}\n" in listed for name in OWN_AGENTS)


def test_there_are_at_most_25_guides_and_each_is_in_one_table_of_contents():
    """Pages of agents and papers are reference: the catalogue and `papers.md` list them."""
    guides = {page.stem for page in DOCS.glob("*.md")} - {"index"}
    blocks = re.findall(r"^```\{toctree\}\n(.*?)^```", (DOCS / "index.md").read_text(), re.M | re.S)
    listed = [line for block in blocks for line in block.splitlines() if line in guides]
    assert len(guides) < 25 and sorted(listed) == sorted(guides)


def test_the_home_page_links_to_the_leaderboard(extension, tmp_path):
    importlib.import_module("dpb_site.leaderboards").copy_pages(DOCS, tmp_path)
    home = (DOCS / "index.md").read_text(encoding="utf-8")
    (page,) = re.findall(r'href="(leaderboard/[^"]+)"', home)
    published = (DOCS / "leaderboard" / "dpb-bench-v1").is_dir()
    assert (tmp_path / page).is_file() or not published


def test_leaderboard_pages_are_copied_with_their_results_and_links(extension, tmp_path):
    result = dpb_gym.evaluate("DPB/Pricing-v0", {"a": "random"}, horizon=5, replicates=2)
    result.save(tmp_path / "docs" / "leaderboard" / "mine")
    result.html(tmp_path / "docs" / "leaderboard" / "mine.html")
    (tmp_path / "out").mkdir()
    importlib.import_module("dpb_site.leaderboards").copy_pages(tmp_path / "docs", tmp_path / "out")
    text = (tmp_path / "out" / "leaderboard" / "mine.html").read_text(encoding="utf-8")
    assert '<meta name="docs" content="../">' in text
    assert '<meta name="files" content="mine/">' in text
    assert (tmp_path / "out" / "leaderboard" / "mine" / "manifest.json").is_file()


def test_the_changelog_is_that_of_the_repository(site):
    changes = (DOCS.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    assert (site / "changelog.md").read_text(encoding="utf-8") == changes


def test_links_between_pages_resolve(site):
    for page in site.rglob("*.md"):
        for target in LINK.findall(page.read_text()):
            where = site.parent if target.startswith("/_generated/") else DOCS
            path = where / target.lstrip("/").replace("_generated", site.name, 1)
            assert path.exists(), f"{page.name}: {target}"


def test_every_module_of_the_api_has_a_page(extension, site):
    api = importlib.import_module("dpb_site.api")
    for name in api.MODULES:
        module = importlib.import_module(name)
        assert api.public_names(module), f"{name} exports nothing"
        assert all(hasattr(module, member) for member in api.public_names(module))
        assert (site / "api" / f"{name}.md").exists()


def test_pages_of_agents_show_recipes(site):
    folder = importlib.import_module("dpb_site.agents").recipe_folder()
    for recipe in folder.glob("*.yaml"):
        page = site / "agents" / f"{recipe.stem}.md"
        assert not page.exists() or "## Recipe" in page.read_text()
    assert "## Recipe" in (site / "agents" / "one-pass-linear.md").read_text()


def test_stale_pages_are_removed(extension, tmp_path):
    pages = importlib.import_module("dpb_site.markdown").Pages(tmp_path)
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "gone.md").write_text("# gone\n")
    pages.write("agents/here", ["# here"])
    pages.remove_stale()
    assert [p.name for p in tmp_path.rglob("*.md")] == ["here.md"]


def test_patterns_without_pages_are_removed_from_tables_of_contents(extension):
    leftovers = importlib.import_module("dpb_site.leftovers")
    source = "```{toctree}\n:glob:\n\nagents/*\nnothing*\n```\n"
    kept = leftovers.existing_patterns(source, ["index", "agents/a"])
    assert "agents/*" in kept and "nothing" not in kept
