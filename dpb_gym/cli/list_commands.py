"""The commands ``dpb list``, ``dpb show`` and ``dpb data``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Option

import dpb_gym
from dpb_gym import docstrings, privacy, suites
from dpb_gym.cli import options
from dpb_gym.cli.completion import complete
from dpb_gym.cli.listings import KINDS
from dpb_gym.cli.options import JSON, print_fields, print_json, print_table, print_text
from dpb_gym.envs.registration import ENVIRONMENTS, environment
from dpb_gym.errors import BudgetError, DPBError, unknown_name
from dpb_gym.problems.kinds import kind_of
from dpb_gym.problems.rounds import SOLD_OUT

if TYPE_CHECKING:
    from dpb_gym.registry import AgentSpec

HEADINGS = {
    "info": "What agents know before the first round",
    "fitted": "How the problem was fitted to its data",
    "reveals": "reveals of people's data",
}
NAME: Any = Argument(help="Name of a data set; see: dpb data list", autocompletion=complete("data"))


def list_(
    kind: str = Argument(
        metavar="envs|agents|suites|data",
        help="What to list.",
        autocompletion=complete("listings"),
    ),
    json: bool = JSON,
) -> None:
    """List environments, agents, suites or data sets.

    Example: dpb list agents
    """
    if kind not in KINDS:
        raise unknown_name("listing", kind, KINDS)
    records = KINDS[kind]()
    if json:
        print_json(records)
        return
    columns = ["name", "path", "description"] if kind == "data" else list(records[0])
    print_table(columns, [[_cell(record[c]) for c in columns] for record in records])


def _cell(value: Any) -> str:
    if value is None:
        return "not here (dpb data fetch)"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={each}" for key, each in value.items()) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def list_data(json: bool = JSON) -> None:
    """List the data sets and their paths.

    Example: dpb data list
    """
    list_("data", json)


def fetch(name: str = NAME) -> None:
    """Download a data set into the cache and check it.

    Example: dpb data fetch ml-latest-small
    """
    import dpb_data

    known = dpb_data.dataset(name)
    if known.urls:
        options.note(f"terms of {known.name}: {known.terms} {known.homepage}")
    print(dpb_data.fetch(name))


def path(name: str = NAME) -> None:
    """Print the path of a data set.

    Example: dpb data path ml-latest-small
    """
    import dpb_data

    print(dpb_data.path(name))


def check(
    name: str = Argument(help="Name of a data set, or a path.", autocompletion=complete("data")),
    json: bool = JSON,
) -> None:
    """Check a data set: check sums, format, every value, counts.

    Example: dpb data check ml-latest-small
    """
    import dpb_data

    report = dpb_data.check(name)
    if json:
        print_json({**vars(report), "ok": report.ok})
    else:
        print(report)
    if not report.ok:
        raise typer.Exit(1)


def show(
    id: str = Argument(
        metavar="ID",
        help="An environment, agent, suite or data set.",
        autocompletion=complete("envs", "agents", "suites", "data"),
    ),
    budget: str | None = Option(
        None, help="What an agent promises at this budget: rho=0.5 or eps=1,delta=1e-5."
    ),
    json: bool = JSON,
) -> None:
    """Show everything about one environment, agent, suite or data set.

    Example: dpb show one-pass-linear --budget rho=0.1
    """
    bare = id.removeprefix("dpb_gym:")
    meanings: Mapping[str, str] = {}
    agents = dpb_gym.agent_specs()
    names = suites.suite_names()
    if budget is not None and id not in agents:
        raise BudgetError(f"--budget is for agents; {id!r} is none")
    if bare in ENVIRONMENTS:
        record, meanings = _environment(bare)
    elif id in agents:
        record, meanings = _agent(id, budget)
    elif id in names or id.endswith((".yaml", ".yml")):
        record = _suite(id)
    else:
        import dpb_data
        from dpb_data.dataset_registry import published_as

        sets = {known.name: known for known in dpb_data.datasets()}
        if id not in sets:
            known = [*ENVIRONMENTS, *agents, *names, *sets]
            unknown = unknown_name("environment, agent, suite or data set", id, known)
            raise published_as(id) or unknown
        record = sets[id].to_dict()
    if json:
        print_json(record)
    else:
        _print_record(record, meanings)


def bounds(
    paper: str = Argument(
        metavar="PAPER",
        help="private-assortment, private-pricing, ...",
        autocompletion=complete("papers"),
    ),
    set_: list[str] = options.settings("A parameter of the theorems (horizon=100000, dim=5)"),
    json: bool = JSON,
) -> None:
    """Print noise, ridges, T0 and regret bounds of a paper's theorems, beside sound ones.

    Example: dpb bounds private-pricing --set dim=5
    """
    from dpb_gym import papers

    paper_bounds = papers.bounds(paper, **options.read_settings(set_))
    if json:
        print_json(paper_bounds.to_dict())
        return
    print_fields(
        paper_bounds.paper, {key: f"{value:.4g}" for key, value in paper_bounds.parameters.items()}
    )
    rows = [
        [x.statement, x.quantity, f"{x.printed:.4g}", "" if x.sound is None else f"{x.sound:.4g}"]
        for x in paper_bounds.lines
    ]
    print_table(["statement", "quantity", "printed", "sound"], rows)
    for sentence in paper_bounds.sentences:
        print_text(sentence)


def _print_record(record: dict[str, Any], meanings: Mapping[str, str]) -> None:
    """Print the plain values of a record, then its nested parts.

    `meanings` explains parameters by name, and the whole record under ``""``.
    """
    (_, title), *rest = record.items()
    plain: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    for key, value in rest:
        nested = isinstance(value, dict) or key == "tasks"
        (parts if nested else plain)[HEADINGS.get(key, key.replace("_", " "))] = value
    plain.pop("documentation", None)
    print_fields(title, {k: _cell(v) for k, v in plain.items() if v not in (None, [], "")})
    for name, part in parts.items():
        if name == "parameters":
            rows = [(key, value, meanings.get(key, "")) for key, value in part.items()]
            print_table(("parameter", "default", "meaning"), rows)
        elif part and isinstance(part, dict):
            print_fields(name, part)
        for task in part if name == "tasks" else ():
            own = {agent: why for agent, why in task["skipped"].items() if "supports " not in why}
            others = f"{len(task['skipped']) - len(own)} agents of other problems"
            task["skipped"] = [*(f"{agent} ({why})" for agent, why in own.items()), others]
            print_fields(
                f"\n{task.pop('name')}",
                {k.replace("_", " "): _cell(v) for k, v in task.items() if v},
            )
    if "" in meanings:
        print_text("\n" + meanings[""])


def _environment(name: str) -> tuple[dict[str, Any], Mapping[str, str]]:
    env = environment(name)
    try:
        problem = env.make_problem()
        info: Any = problem.info.to_dict()
        fitted = problem.summary()
    except DPBError as error:
        info = {"unavailable": str(error)}
        fitted = {}
    record = {
        "id": env.id,
        "problem": env.kind,
        "summary": env.summary,
        "reveals": env.reveals or "not said",
        "parameters": env.parameters,
        "interface": list(env.interface),
        "info": info,
        "fitted": fitted,
    }
    return record, env.meanings


def _guarantees(spec: AgentSpec, budget: str | None) -> dict[str, str]:
    """Return the guarantee on a small problem of each kind, and the data that stay public."""
    from dpb_gym.audits.agent_audit import small_setting
    from dpb_gym.privacy.guarantee import PUBLIC

    asked = privacy.Budget.parse(budget)
    guarantees = {}
    kinds = [k for k in spec.supports if kind_of(k).audit is not None]
    for kind in kinds if asked is not None else ():
        env_id, env_kwargs = small_setting(spec, kind)
        guarantee = spec.guarantee(dpb_gym.make_problem(env_id, **env_kwargs).info, asked)
        assert guarantee is not None
        no_curator = guarantee.notion in ("aggregate", "shuffle", "local")
        public = "" if no_curator else f"; public: {PUBLIC[guarantee.unit]}"
        stock = "" if "stock" in kind_of(kind).refuses else f"; with stock {SOLD_OUT}"
        guarantees[f"guarantee for {kind}"] = f"{guarantee}{public}{stock}"
    return guarantees


def _agent(name: str, budget: str | None) -> tuple[dict[str, Any], Mapping[str, str]]:
    from dpb_gym.report.comparison_groups import STANDINGS

    spec = dpb_gym.agent_spec(name)
    cls = spec.maker
    facts = ("entry_point", "partial_feedback", "delayed_feedback", "needs_horizon", "fixed_arms")
    record = {
        "name": spec.name,
        "summary": spec.summary,
        "problems": list(spec.supports),
        "budget": spec.budget,
        "standing": STANDINGS.get(spec.standing, ""),
        **_guarantees(spec, budget),
        **{fact: getattr(spec, fact) for fact in (*facts, "uses_oracle")},
        "parameters": {**dict.fromkeys(inspect.signature(cls).parameters), **spec.defaults},
        "documentation": inspect.getdoc(cls) or "",
    }
    doc = docstrings.parse(cls)
    text = "\n\n".join([doc.summary, doc.body, *docstrings.mentioned(cls)])
    return record, {**docstrings.parameters(cls), "": text}


def _suite(name: str) -> dict[str, Any]:
    from dpb_gym.running.plan import plan_suite

    suite = suites.load_suite(name)
    tasks = [
        {
            **plan.task.model_dump(exclude={"block"}),
            "problem": plan.task.kind,
            "missing": plan.missing,
            "replicates": plan.task.replicates or suite.replicates,
            "runs": [run.title for run in plan.runs],
            "skipped": dict(plan.skipped),
        }
        for plan in plan_suite(suite)
    ]
    keys = ("title", "description", "replicates", "seed", "tuning_seed", "checkpoints")
    fields = {key: getattr(suite, key) for key in (*keys, "protocol", "block")}
    return {"name": suite.name, **fields, "tasks": tasks}
