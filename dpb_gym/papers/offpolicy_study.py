"""The off-policy study: measurements of trained agents beyond regret and reward."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dpb_gym import offline
from dpb_gym.agent import Agent
from dpb_gym.envs.registration import make_problem
from dpb_gym.results.cell_result import CellResult
from dpb_gym.suites.schema import Spec, plain

STUDY_VERSION = 2
"""Increased when a measurement changes."""


class OffPolicyStudy(Spec):
    """Off-policy evaluation of trained agents; the numbers are stored with their results.

    Attributes:
        kind: ``"ope"``: off-policy estimates of the frozen agent from a uniform log.
        rounds: Rounds of that log, which follow those of the training.
        samples: Actions drawn from a random policy per round.
    """

    kind: Literal["ope"]
    rounds: int = Field(default=10_000, ge=2)
    samples: int = Field(default=20, ge=1)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything its numbers depend on, as plain JSON values."""
        return {"version": STUDY_VERSION, **self.model_dump(mode="json")}

    def __call__(self, agent: Agent, result: CellResult) -> dict[str, list[float]]:
        """Return off-policy estimates of the frozen agent from a uniform log of later rounds.

        Returns:
            Per replicate: ``true-value`` of the frozen policy on the log's contexts,
            ``oracle-value`` of the best candidates there, ``random-value``, the absolute errors
            ``naive-error`` (mean reward earned while learning), ``ips-error``, ``snips-error``,
            ``dr-error``, the same in standard errors (``ips-z``, ``snips-z``, ``dr-z``), the
            estimates ``ips``, ``snips``, ``dr``, and ``ess`` (effective sample size over rounds).
        """
        task = result.cell.task
        rounds = self.rounds
        problem = make_problem(task.env, **task.env_kwargs, horizon=task.horizon + rounds)
        logs = offline.collect(problem, rounds, result.cell.seeds, skip=task.horizon)
        policies = offline.probabilities(agent, logs, samples=self.samples)
        measures: dict[str, list[float]] = {}

        def record(name: str, value: float) -> None:
            measures.setdefault(name, []).append(float(value))

        for b, (log, policy) in enumerate(zip(logs, policies)):
            assert log.expected is not None
            value = float((policy * log.expected).sum(axis=1).mean())
            record("true-value", value)
            record("oracle-value", log.expected.max(axis=1).mean())
            record("random-value", log.expected.mean())
            record("naive-error", abs(result.reward[b, -1] / task.horizon - value))
            estimates = offline.evaluate_offline(
                policy, log, estimators=("ips", "snips", "dr"), resamples=0
            )
            for name in ("ips", "snips", "dr"):
                record(name, estimates[name].value)
                error = abs(estimates[name].value - value)
                record(f"{name}-error", error)
                # equal rewards in a very short log have no spread
                record(f"{name}-z", error / max(estimates[name].std_error, 1e-12))
            record("ess", estimates.effective_sample_size / rounds)
        return {name: plain(values, name) for name, values in measures.items()}
