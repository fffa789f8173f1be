"""``dpb show``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpb_gym.cli.listing import complete
from dpb_gym.cli.options import Json
from dpb_gym.cli.output import print_fields, print_json, print_table, print_text
from dpb_gym.errors import BudgetError, DPBError, unknown_name

if TYPE_CHECKING:
    from dpb_gym.registry import AgentSpec


def show(
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="An environment, agent, suite or data set.",
            autocompletion=complete("envs", "agents", "suites", "data"),
        ),
    ],
    budget: Annotated[
        str | None,
        typer.Option(help="What an agent promises at this budget: rho=0.5 or eps=1,delta=1e-5."),
    ] = None,
    json: Json = False,
) -> None:
    """Show everything about one environment, agent, suite or data set.

    Example: dpb show one-pass-linear --budget rho=0.1
    """
    from dpb_gym.envs.catalogue import ENVIRONMENTS
    from dpb_gym.evaluation.suite import suite_names
    from dpb_gym.registry import agent_specs

    bare = id.removeprefix("dpb_gym:")
    if budget is not None and id not in agent_specs():
        raise BudgetError(f"--budget is for agents; {id!r} is none")
    if bare in ENVIRONMENTS:
        _environment(bare, json)
    elif id in agent_specs():
        _agent(id, json, budget)
    elif id in suite_names() or id.endswith((".yaml", ".yml")):
        _suite(id, json)
    else:
        import dpb_data

        sets = {known.name: known for known in dpb_data.datasets()}
        if id not in sets:
            known = [*ENVIRONMENTS, *agent_specs(), *suite_names(), *sets]
            raise unknown_name("environment, agent, suite or data set", id, known)
        _dataset(sets[id].to_dict(), json)


def _environment(name: str, as_json: bool) -> None:
    from dpb_gym.envs.catalogue import environment

    found = environment(name)
    try:
        problem = found.make_problem()
        info: Any = problem.info.to_dict()
        fitted = problem.summary()
    except DPBError as error:
        info, fitted = {"unavailable": str(error)}, {}
    parameters = found.parameters
    reveals = found.reveals or "not said"
    record = {
        "id": found.id,
        "problem": found.kind,
        "summary": found.summary,
        "reveals": reveals,
        "parameters": parameters,
        "interface": list(found.interface),
        "info": info,
        "fitted": fitted,
    }
    if as_json:
        print_json(record)
        return
    about = {"problem": found.kind, "summary": found.summary, "reveals of people's data": reveals}
    print_fields(found.id, about)
    _parameters(parameters, found.meanings)
    print_fields("Of the Gymnasium interface alone", dict.fromkeys(found.interface, ""))
    print_fields("What agents know before the first round", info)
    if fitted:
        print_fields("How the problem was fitted to its data", fitted)


def _promises(spec: AgentSpec, budget: str | None) -> dict[str, str]:
    """What its curator says on a small problem of each kind, and what its unit leaves public."""
    from dpb_gym.envs.catalogue import make_problem
    from dpb_gym.evaluation.audit.api import SMALL, small_setting
    from dpb_gym.privacy import Budget
    from dpb_gym.privacy.guarantee import PUBLIC

    asked = Budget.parse(budget)
    found = {}
    for kind in spec.supports if asked is not None else ():
        if kind in SMALL:
            env_id, env_kwargs = small_setting(spec, kind)
            guarantee = spec.guarantee(make_problem(env_id, **env_kwargs).info, asked)
            assert guarantee is not None
            public = (
                ""
                if guarantee.notion in ("shuffle", "local")
                else f"; public: {PUBLIC[guarantee.unit]}"
            )
            found[f"guarantee for {kind}"] = f"{guarantee}{public}"
    return found


def _agent(name: str, as_json: bool, budget: str | None) -> None:
    from dpb_gym import docstrings
    from dpb_gym.registry import agent_spec

    spec = agent_spec(name)
    cls = spec.load()
    parameters = {**dict.fromkeys(inspect.signature(cls).parameters), **spec.defaults}
    doc = docstrings.parse(cls)
    promises = _promises(spec, budget)
    record = {
        "name": spec.name,
        "problems": list(spec.supports),
        "budget": spec.budget,
        **promises,
        "entry_point": spec.entry_point,
        "partial_feedback": spec.partial_feedback,
        "delayed_feedback": spec.delayed_feedback,
        "needs_horizon": spec.needs_horizon,
        "fixed_arms": spec.fixed_arms,
        "uses_oracle": spec.uses_oracle,
        "parameters": parameters,
        "documentation": inspect.getdoc(cls) or "",
    }
    if as_json:
        print_json(record)
        return
    print_fields(
        spec.name,
        {
            "summary": spec.summary,
            "problems": ", ".join(spec.supports),
            "budget": spec.budget,
            **promises,
            "class": spec.entry_point,
            "rounds without feedback": "allowed" if spec.partial_feedback else "not allowed",
            "delayed feedback": "allowed" if spec.delayed_feedback else "not allowed",
            "horizon": "must be told" if spec.needs_horizon else "may be unknown",
        },
    )
    _parameters(parameters, docstrings.parameters(cls))
    print_text("\n" + "\n\n".join([doc.summary, doc.body, *docstrings.mentioned(cls)]))


def _parameters(defaults: Mapping[str, Any], about: Mapping[str, str]) -> None:
    rows = [(name, value, about.get(name, "")) for name, value in defaults.items()]
    if rows:
        print_table(("parameter", "default", "meaning"), rows)


def _suite(name: str, as_json: bool) -> None:
    from dpb_gym.evaluation.plan import plan_suite
    from dpb_gym.evaluation.suite import load_suite

    suite = load_suite(name)
    tasks = []
    for plan in plan_suite(suite):
        task = plan.task
        tasks.append(
            {
                **task.model_dump(exclude={"block"}),
                "problem": task.kind,
                "missing": plan.missing,
                "replicates": task.replicates or suite.replicates,
                "runs": [run.title for run in plan.runs],
                "skipped": dict(plan.skipped),
            }
        )
    record = {
        "name": suite.name,
        "title": suite.title,
        "description": suite.description,
        "protocol": suite.protocol,
        "replicates": suite.replicates,
        "seed": suite.seed,
        "tuning_seed": suite.tuning_seed,
        "checkpoints": suite.checkpoints,
        "block": suite.block,
        "tasks": tasks,
    }
    if as_json:
        print_json(record)
        return
    plain_keys = ("title", "description", "replicates", "seed", "tuning_seed", "checkpoints")
    print_fields(suite.name, {key: record[key] for key in plain_keys})
    for entry in tasks:
        reasons = [f"{k} ({v})" for k, v in entry["skipped"].items() if "supports " not in v]
        others = len(entry["skipped"]) - len(reasons)
        skipped = "; ".join([*reasons, *([f"{others} agents of other problems"] if others else [])])
        parameters = ", ".join(f"{k}={v}" for k, v in entry["env_kwargs"].items())
        print_fields(
            f"\n{entry['name']}",
            {
                "environment": f"{entry['env']}  {parameters}".strip(),
                "horizon": f"{entry['horizon']:,}",
                "track": entry["track"] or "none",
                "replicates": entry["replicates"],
                "needs data": entry["requires"] or "no",
                "runs": entry["missing"] or ", ".join(entry["runs"]),
                "skipped": skipped or "none",
            },
        )


def _dataset(record: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(record)
        return
    files = record.pop("files", {})
    print_fields(record.pop("name"), {k: v for k, v in record.items() if v not in (None, [], "")})
    if files:
        print_table(["file", "SHA-256"], list(files.items()))
