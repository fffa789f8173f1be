"""Generate a page per registered agent from its spec, docstring, guarantee and recipe."""

from __future__ import annotations

import inspect
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dpb_gym import Budget, docstrings
from dpb_gym.envs.registration import make_problem
from dpb_gym.errors import DPBError
from dpb_gym.registry import AgentSpec, agent_specs
from dpb_gym.report.comparison_groups import STANDINGS
from dpb_site.markdown import Pages, definitions, fence, slug, table, toctree

HOMES = {
    "assortment": "DPB/Assortment-v0",
    "assortment-pricing": "DPB/AssortmentPricing-v0",
    "pricing": "DPB/Pricing-v0",
    "recommendation": "DPB/Recommendation-v0",
}
BUDGETS = {
    "Budget.zcdp(0.5)": Budget.zcdp(0.5),
    "Budget.approx(1.0, 1e-5)": Budget.approx(1.0, 1e-5),
}
BUDGET_USES = {
    "never": "none: non-private",
    "optional": "optional: without a budget the agent is the non-private baseline",
    "required": "required",
}


def write(pages: Pages, docs: Path) -> None:
    """Write the pages of all agents and their index."""
    specs = agent_specs()
    promises = {name: guarantees(spec) for name, spec in specs.items()}
    for name, spec in specs.items():
        pages.write(f"agents/{slug(name)}", agent_page(spec, promises[name], docs))
    parts = [
        "# Agents",
        "Each agent's page states its guarantee; [what the guarantee means](/guarantees.md) "
        "explains it. See also how to [add an agent](/add-an-agent.md).",
        definitions([(f"source: {key}", text.capitalize()) for key, text in STANDINGS.items()]),
    ]
    for kind, env_id in HOMES.items():
        here = [spec for spec in specs.values() if kind in spec.supports]
        rows = [
            [_link(spec.name), spec.standing, _protects(promises[spec.name]), spec.summary]
            for spec in here
        ]
        heads = ["agent", "source", "protects", "what it does"]
        parts += [f"## {kind.capitalize()}", table(heads, rows)]
        parts.append(f"Environment: [`{env_id}`](/_generated/environments/{slug(env_id)}.md).")
    parts.append(toctree([slug(name) for name in specs], "hidden"))
    pages.write("agents/index", parts)


def agent_page(spec: AgentSpec, promises: dict[str, Any], docs: Path) -> list[str]:
    """Return the page of one agent as paragraphs."""
    cls = spec.maker
    doc = docstrings.parse(cls)
    facts = [
        ["Problems", ", ".join(spec.supports)],
        ["Budget", BUDGET_USES[spec.budget]],
        ["Class", f"`{spec.entry_point}`"],
    ]
    if spec.standing:
        facts.append(["Source", STANDINGS[spec.standing]])
    if not spec.partial_feedback:
        facts.append(["Rounds without feedback", "not allowed (`protocol='matrix'` only)"])
    if spec.fixed_arms:
        facts.append(["Arms", "the same in every round, as in `DPB/MultiArmed-v0`"])
    if spec.uses_oracle:
        facts.append(["Hidden state", "uses it: a baseline, not ranked"])
    names = _siblings(spec)
    shared = f"The class is also registered as {names}." if names else ""
    return [
        f"# {spec.name}",
        spec.summary,
        "\n".join(f"- **{title}**: {text}" for title, text in facts),
        doc.summary if doc.summary != spec.summary else "",
        doc.body,
        shared,
        "## Example",
        fence("python", example(spec, promises)),
        *_guarantee_part(spec, promises),
        *_parameter_part(spec, cls),
        *_recipe_part(spec.name),
        *_reading_part(spec.name, docs),
    ]


def example(spec: AgentSpec, promises: dict[str, Any]) -> str:
    """Return a program that compares the agent with random choice."""
    budget = next(iter(promises), None)
    agent = f'("{spec.name}", dpb_gym.{budget})' if budget else f'"{spec.name}"'
    kwargs = "".join(f"    env_kwargs={k},\n" for k in [_needs(spec)] if k)
    return f"""
import dpb_gym

result = dpb_gym.evaluate(
    "{_home(spec)}",
    agents={{
        "{spec.name}": {agent},
        "baseline": "random",
    }},
    horizon=500,
    replicates=2,
{kwargs})
result.table()
"""


def _home(spec: AgentSpec) -> str:
    """Return the environment of the agent's example."""
    return "DPB/MultiArmed-v0" if spec.fixed_arms else HOMES[spec.supports[0]]


def _needs(spec: AgentSpec) -> dict[str, Any]:
    """Return the environment's parameters: identified users, if the agent protects users."""
    whole = spec.protects is not None and spec.protects[1] == "user-rewards"
    return {"interactions_per_user": 2} if whole else {}


def guarantees(spec: AgentSpec) -> dict[str, Any]:
    """Return the guarantees at the example budgets, by budget; empty for non-private agents."""
    if spec.budget == "never":
        return {}
    problem = make_problem(_home(spec), **_needs(spec)).info
    stated: dict[str, Any] = {}
    for title, budget in BUDGETS.items():
        try:
            stated[title] = spec.guarantee(problem, budget)
        except DPBError as error:
            stated[title] = f"not supported: {error}"
    # An agent may support one kind of budget only; the example uses the first budget.
    return dict(sorted(stated.items(), key=lambda item: isinstance(item[1], str)))


def _guarantee_part(spec: AgentSpec, promises: dict[str, Any]) -> list[str]:
    title = "## Guarantee"
    if not promises:
        return [title, "None: the policy uses raw records."]
    rows = [[f"`{budget}`", str(promise)] for budget, promise in promises.items()]
    return [
        title,
        f"On `{_home(spec)}` with default parameters, according to its ledger "
        "([explanation](/guarantees.md)):",
        table(["budget", "guarantee"], rows),
    ]


def _protects(promises: dict[str, Any]) -> str:
    given = [p for p in promises.values() if not isinstance(p, str) and p is not None]
    return f"{given[0].unit}, {given[0].notion}" if given else "–"


def _parameter_part(spec: AgentSpec, cls: type) -> list[str]:
    described = docstrings.parameters(cls)
    entries = []
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        value = spec.params.get(name, parameter.default)
        shown = f" = `{value!r}`" if value is not parameter.empty else ""
        entries.append((f"`{name}`{shown}", described[name] or "Not described."))
    if not entries:
        return []
    text = f"Third element of an agent given as `({spec.name!r}, budget, parameters)`."
    return ["## Parameters", text, definitions(entries)]


def _siblings(spec: AgentSpec) -> str:
    others = [
        other.name
        for other in agent_specs().values()
        if other.entry_point == spec.entry_point and other.name != spec.name
    ]
    return ", ".join(_link(name) for name in others)


def _recipe_part(name: str) -> list[str]:
    path = recipe_folder() / f"{name}.yaml"
    if not path.exists():
        return []
    return [
        "## Recipe",
        "The tuned parameters, and the tasks on which they were tuned.",
        fence("yaml", path.read_text(encoding="utf-8")),
    ]


def recipe_folder() -> Path:
    """Return the folder of recipes: next to the agents in a checkout, inside the package else."""
    spec = find_spec("dpb_agents")
    assert spec is not None and spec.origin is not None
    package = Path(spec.origin).parent
    inside = package / "recipes"
    return inside if inside.is_dir() else package.parent / "recipes"


def _reading_part(name: str, docs: Path) -> list[str]:
    """Return links to hand-written pages that mention the agent, the most relevant first."""
    word = re.compile(rf"`{re.escape(name)}`")
    mentions = []
    for page in [*docs.glob("*.md"), *docs.glob("agents/*.md"), *docs.glob("papers/*.md")]:
        text = page.read_text(encoding="utf-8")
        title = text.lstrip("# ").partition("\n")[0]
        own = page.stem == name or re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", title)
        count = len(word.findall(text))
        if own or count:
            mentions.append((not own, -count, title, page.relative_to(docs).as_posix()))
    if not mentions:
        return []
    lines = [f"- [{title}](/{path})" for _, _, title, path in sorted(mentions)]
    return ["## More", "\n".join(lines)]


def _link(name: str) -> str:
    return f"[`{name}`](/_generated/agents/{slug(name)}.md)"
