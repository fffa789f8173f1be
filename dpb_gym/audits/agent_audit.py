"""`audit`: lower bounds on the privacy loss of an agent, end to end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpb_gym import validation
from dpb_gym.agent import Agent, BatchedSingle, SingleAgent
from dpb_gym.audits.audit_records import remember
from dpb_gym.audits.audit_report import PASS, AuditReport
from dpb_gym.audits.distinguisher import MIN_RUNS, audit_outputs, audit_scores
from dpb_gym.audits.interference import interferes
from dpb_gym.audits.origin import origin_of
from dpb_gym.audits.paired_run import PILOT_RUNS, Observed, play, seeds_from
from dpb_gym.audits.worlds import Pair, audit_form, pairs_for
from dpb_gym.envs.registration import environment, make_problem
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.privacy import Budget
from dpb_gym.problems.base import Problem
from dpb_gym.registry import AgentSpec, agent_spec, check_supported, spec_of
from dpb_gym.streams import check_seed
from dpb_gym.suites.spec import AgentRun

FIXED_ARMS = ("DPB/MultiArmed-v0", {"n_arms": 3})
SHORTEST = 32
LONGEST = 2048
FEW_RUNS = 4
LOCAL_RUNS = 400  # of a pilot, which estimates the effect on messages
CONTROL_RUNS = 2000
CONTROL = 1.0 / 3.0  # share of the noise in the control, which an audit with power rejects


def audit(
    agent: str | type[Agent] | type[SingleAgent] | Callable[[], Any],
    budget: Budget | None = None,
    runs: int = 2000,
    *,
    params: Mapping[str, Any] | None = None,
    env_id: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    horizon: int | None = None,
    pair: Pair | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    deployment: int | None = None,
    say: Callable[[str], None] | None = None,
) -> AuditReport:
    """Run an agent on two neighbouring worlds and bound its privacy loss from below.

    One customer (or all rounds of one user, for a claim per user) is exchanged; all others, their
    contexts and their potential outcomes, are fixed. The attack is the exact likelihood ratio of
    everything that the curator's releasers release. If their distribution is unknown, it is a
    linear discriminant on the actions, or on the message of a local claim. Two controls follow.
    The run with other raw feedback and fixed releases must act the same. The audit with a third
    of the noise must fail, otherwise it has no power. See `docs/audit.md`.

    Use a budget at which an audit has power (rho 0.5 to 2), not a small one of a deployment: the
    same code calibrates the noise of both.

    Args:
        agent: Registered name, agent class, or function that returns an agent.
        budget: Budget of the agent; None for a non-private agent, which has no claim.
        runs: Runs in each world, at least 50; 2000 detect a noise variance of half the right
            size.
        params: Parameters of the agent, over ``audit_params`` of its class, which choose a size
            at which a few hundred rounds exercise all of its code.
        env_id: Environment; by default a small one of the agent's kind.
        env_kwargs: Its parameters, over those of the small one.
        horizon: Rounds; by default the fewest after which every releaser has released.
        pair: The two worlds; by default the built-in pair whose records differ most, in units
            of the charged sensitivity.
        seed: Seed of customers and agents.
        confidence: Joint confidence of all bounds.
        deployment: Rounds of the tests for raw data and of all noise, those of the agent's
            deployment; by default `horizon`, or else the environment's own.
        say: Called with a line of progress before each step.

    Returns:
        The report; ``report.verdict`` is ``"PASS"``, ``"FAIL"``, ``"READS RAW DATA"``,
        ``"NO POWER"`` or ``"NO CLAIM"``.

    Raises:
        UnknownNameError: If the agent or environment is not registered.
        AgentError: If the agent cannot play the environment, or uses the oracle.
        ParameterError: If a parameter is out of range.
        BudgetError: If the budget is invalid.

    Example:
        >>> from dpb_gym import Budget
        >>> report = audit("adaprivate-ucb", Budget.zcdp(0.5), runs=200, params={"batch": 8})
        >>> report.verdict
        'PASS'
    """
    runs = validation.integer("runs", runs, MIN_RUNS)
    confidence = validation.real("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    kind, small, kwargs = _setting(agent, env_id, dict(env_kwargs or {}))
    spec = spec_of(agent, kind)
    asked = spec.over(params or {})
    telling, most = (_own(spec.maker, name) for name in ("audit_params", "audit_horizon"))
    spec = spec.over({**(telling or {}), **spec.params, **(params or {})})
    if spec.uses_oracle:
        raise AgentError(f"agent {spec.name!r} sees the truth: there is nothing to audit")
    run = AgentRun(spec=spec, budget=Budget.parse(budget))
    deployed = deployment or horizon or make_problem(small, **kwargs).horizon
    deployed = validation.integer("deployment", deployed, 2)
    fixed = kwargs.pop("horizon", most) if horizon is None else horizon
    fixed = validation.optional(validation.integer, "horizon", fixed, 2)

    stage = _Stage(run, small, kwargs, check_seed(seed))
    info = stage.problem(fixed or SHORTEST).info
    if info.stock is not None:
        raise ParameterError(
            "what is sold out follows from responses, whatever an agent does with them: audit it "
            "without stock"
        )
    check_supported(spec, info, run.budget is not None)
    say = say or (lambda line: None)
    say("choosing worlds and rounds")
    known = _pilot(stage, fixed, pair)
    report = _audited(stage, known, runs, confidence, deployed, say)
    if isinstance(agent, str) and pair is None and run.budget is not None:
        origin = origin_of(
            agent, run.budget, runs, params=params, env_id=env_id, env_kwargs=env_kwargs,
            horizon=horizon, seed=seed, confidence=confidence, deployment=deployment,
        )  # fmt: skip
        report = replace(report, origin=origin)
    remember(report, AgentRun(spec=asked), kind)
    return report


def _audited(
    stage: _Stage,
    known: tuple[int, Pair, list[int]],
    runs: int,
    confidence: float,
    deployed: int,
    say: Callable[[str], None],
) -> AuditReport:
    """Return the report of all steps after the choice of worlds and rounds; see `audit`."""
    say(f"{known[1].name}, target in round {known[2][0]}: 2 x {runs} runs of {known[0]} rounds")
    report = stage.report(*known, runs, confidence)
    if report.verdict != PASS:
        return report
    if deployed > known[0]:
        say(f"noise of all releases in {deployed} rounds")
        deployment = stage.play(deployed, *known[1:], runs=FEW_RUNS, scored=False)
        report = _noted(report, deployment, "in deployment")
    raw = interferes(stage.run, stage.problem(deployed), seeds_from(stage.seed, 1), say)
    tested = str(raw) if raw else f"nothing but releases depends on records, in {deployed} rounds"
    report = replace(
        report,
        interference=raw is not None and not raw.far,
        distance=raw is not None and raw.far,
        details={**report.details, "raw data": tested},
    )
    if report.verdict != PASS:
        return report
    say("control with a third of the noise")
    control = stage.report(*known, min(runs, CONTROL_RUNS), confidence, CONTROL)
    return replace(report, control=control.verdict)


def _noted(report: AuditReport, observed: Observed, where: str) -> AuditReport:
    """Return the report with the result of the residuals."""
    if observed.residuals is None:
        return report
    text, wrong = observed.residuals
    noted = {**report.details, where: text}
    return replace(report, residuals=report.residuals or wrong, details=noted)


def _own(maker: Any, name: str) -> Any:
    """Return an attribute of the class itself; a subclass may take other parameters."""
    return vars(maker).get(name) if isinstance(maker, type) else None


def _setting(
    agent: Any, env_id: str | None, kwargs: dict[str, Any]
) -> tuple[str, str, dict[str, Any]]:
    if env_id is not None:
        return environment(env_id).kind, env_id, kwargs
    if not isinstance(agent, str):
        raise ParameterError("give env_id with an agent that is not a registered name")
    spec = agent_spec(agent)
    kind = spec.supports[0]
    small, defaults = small_setting(spec, kind)
    return kind, small, {**defaults, **kwargs}


def small_setting(spec: AgentSpec, kind: str) -> tuple[str, dict[str, Any]]:
    """Return id and parameters of a small environment of this kind that the agent supports."""
    if spec.fixed_arms:
        return FIXED_ARMS
    env_id, env_kwargs = audit_form(kind).small
    return env_id, dict(env_kwargs)


@dataclass(frozen=True)
class _Stage:
    """An agent, its environment, and the seed of both."""

    run: AgentRun
    env_id: str
    env_kwargs: Mapping[str, Any]
    seed: int

    def problem(self, rounds: int) -> Problem:
        return make_problem(self.env_id, **{**self.env_kwargs, "horizon": rounds})

    def play(self, rounds: int, pair: Pair, targets: list[int], **how: Any) -> Observed:
        return play(self.run, self.problem(rounds), pair, targets, seed=self.seed, **how)

    def report(
        self,
        rounds: int,
        pair: Pair,
        targets: list[int],
        runs: int,
        confidence: float,
        factor: float = 1.0,
    ) -> AuditReport:
        """Return the audit report of one run."""
        observed = self.play(rounds, pair, targets, runs=runs, part=1, factor=factor)
        run = self.run
        last = f" to {targets[-1]}" if len(targets) > 1 else ""
        said: dict[str, Any] = {
            "subject": run.title if run.budget is None else f"{run.label} at {run.budget}",
            "confidence": confidence,
            "details": {
                "worlds": pair.name,
                "rounds": f"{rounds} of {self.env_id}, target in round {targets[0]}{last}",
                "boundary": observed.boundary,
            },
        }
        if observed.uneven:
            none = np.zeros(runs)
            report = audit_scores(none, none, observed.guarantee, **said)
            told = {**report.details, "raw data": observed.uneven}
            return replace(report, interference=True, details=told)
        if observed.scores is not None and observed.guarantee is not None:
            scores = observed.scores
            report = audit_scores(scores[:runs], scores[runs:], observed.guarantee, **said)
        else:
            first, second = (
                {name: view[half] for name, view in observed.views.items()}
                for half in (slice(runs), slice(runs, None))
            )
            report = audit_outputs(first, second, observed.guarantee, **said)
        return _noted(report, observed, "residuals") if factor == 1.0 else report


def _pilot(stage: _Stage, fixed: int | None, pair: Pair | None) -> tuple[int, Pair, list[int]]:
    """Find the horizon and a built-in pair and round that differ most, with a few runs."""
    rounds = fixed or SHORTEST
    info = stage.problem(fixed or SHORTEST).info
    run = stage.run
    agent = run.spec.make()
    unit = agent.protects[1] if run.budget is not None and agent.protects else "user-round"
    partial = run.spec.partial_feedback and not isinstance(agent, BatchedSingle)
    candidates = [pair] if pair is not None else pairs_for(info, unit, partial)

    while True:
        targets = _targets(stage.problem(rounds), unit, stage.seed)
        quiet = stage.play(rounds, candidates[0], targets).quiet
        if not quiet or fixed is not None or rounds >= LONGEST:
            break
        rounds *= 2
    rng = np.random.default_rng([stage.seed, rounds])
    later = {int(rng.integers(1, max(2, rounds // 4))), int(rng.integers(1, max(2, rounds // 2)))}
    first = rng.permutation([1, *later - {1}]).tolist()
    places = [targets] if len(targets) > 1 else [[t] for t in first]
    options = [(candidate, place) for candidate in candidates for place in places]
    if len(options) == 1:
        return rounds, *options[0]
    some = LOCAL_RUNS if agent.protects and agent.protects[0] == "local" else PILOT_RUNS
    power = [stage.play(rounds, *option, runs=some).power for option in options]
    first = next(i for i, distance in enumerate(power) if distance >= 0.97 * max(power))
    return rounds, *options[first]


def _targets(problem: Problem, unit: str, seed: int) -> list[int]:
    """Return the target's rounds: the first, or all rounds of its user."""
    if unit not in ("user", "user-rewards"):
        return [1]
    instance = problem.instance([seed])
    users = []
    for t in range(1, problem.horizon + 1):
        ids = instance.context().users
        if ids is None:
            raise ParameterError("a claim about users needs an environment that identifies them")
        users.append(int(ids[0]))
        if t < problem.horizon:
            instance.advance()
    return [t for t, user in enumerate(users, start=1) if user == users[0]]
