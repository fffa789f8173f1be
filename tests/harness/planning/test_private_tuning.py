"""Tuning whose selection is charged: choice, cost, noise of its own, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpb_gym
from dpb_gym.errors import ParameterError
from dpb_gym.planning.private_tuning import COUNTING, cost_of_run, tune_privately
from dpb_gym.privacy import Budget, SelectionEvent

T, GRID = 30, {"price": [0.0, 0.5]}


class Shop(dpb_gym.SingleAgent):
    """Ask one price, and release the summed demand at the end of the season."""

    protects = ("central", "reward")
    runs: list[Any]

    def __init__(self, price: float = 0.0) -> None:
        self.price = price

    def begin(self) -> None:
        self.sums = self.curator.batch_sum(1, reward=(0.0, 1.0))

    def act(self, context: Any) -> float:
        return self.price

    def observe(self, context: Any, action: float, feedback: Any) -> None:
        self.sums.add(feedback.demand, along=[1.0])
        if context.t == T:
            released = float(self.sums.release()[0])
            self.runs.append((self.price, self.curator.budget.rho, released))


def choose(budget: str, noise_seed: int, runs: float = 20.0, agent: Any = Shop) -> Any:
    Shop.runs = []
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=T)
    how = {"noise_seed": noise_seed, "replicates": 2, "runs": runs}
    return tune_privately(agent, problem, budget, GRID, **how)


@pytest.mark.slow
def test_the_best_point_is_chosen_and_the_selection_is_charged() -> None:
    counts = []
    for seed in range(6):
        choice = choose("rho=1e6", seed)
        sold = 0.5 in {price for price, *_ in Shop.runs}
        assert choice.params == ({"price": 0.5} if sold else {}) and (choice.score > 1.0) == sold
        assert choice.guarantee.curve.events == (
            SelectionEvent(cost_of_run(Budget.zcdp(1e6), 20), 20.0),
        )
        assert 0.999e6 < choice.guarantee.rho <= 1e6 and choice.guarantee.basis == "computed"
        assert (choice.guarantee.notion, choice.guarantee.unit) == Shop.protects
        counts.append(len(Shop.runs) // 2)
        budgets = {rho for _, rho, _ in Shop.runs}
        assert budgets == {(1 - COUNTING) * choice.guarantee.curve.events[0].rho}
        releases = [released for *_, released in Shop.runs]
        assert len(set(releases)) == len(releases), "every run has noise of its own"
    assert len(set(counts)) > 2 and 5 < np.mean(counts) < 50, "the number of runs is random"


class Stating(Shop):
    """State a sensitivity, which nothing enforces."""

    def begin(self) -> None:
        self.sums = self.curator.batch_sum(1, reward=(0.0, 1.0), sensitivity=1.0 - self.price)


class LateShop(Shop):
    """Charge more than a run may cost, when the season is over."""

    def observe(self, context: Any, action: float, feedback: Any) -> None:
        super().observe(context, action, feedback)
        if context.t == T:
            self.curator.as_printed("a paper")
            self.curator.charge(dpb_gym.privacy.ZCDPEvent(1e7), what="later")


def test_the_guarantee_says_what_the_runs_rest_on() -> None:
    """It is the same whichever points were played."""
    lines = {str(choose("rho=1e6", seed, runs=2.0, agent=Stating).guarantee) for seed in range(6)}
    assert len(lines) == 1 and "sensitivity 0.5" in lines.pop()


def test_a_charge_after_the_start_counts() -> None:
    with pytest.raises(ParameterError, match="within budget"):
        choose("rho=1e6", 0, agent=LateShop)


@pytest.mark.slow
def test_scores_are_noisy() -> None:
    wrong = 0
    for seed in range(12):
        choice = choose("rho=1e-7", seed, runs=8.0)
        wrong += not choice.params and 0.5 in {price for price, *_ in Shop.runs}
    assert wrong >= 2


@pytest.mark.parametrize("budget", ["rho=0.5", "eps=1,delta=1e-5", "eps=8,delta=1e-6"])
def test_the_cost_of_runs_uses_the_budget(budget: str) -> None:
    asked = Budget.parse(budget)
    rho = cost_of_run(asked, 32.0)
    spent = [
        event.zcdp if asked.rho else dpb_gym.Guarantee(
            "central", "reward", curve=dpb_gym.privacy.Composition.of(event)
        ).epsilon(asked.delta)
        for event in (SelectionEvent(rho, 32.0), SelectionEvent(1.01 * rho, 32.0))
    ]  # fmt: skip
    assert 0.999 * asked.limit < spent[0] <= asked.limit < spent[1]


def test_runs_beyond_their_budget_and_other_units_are_refused() -> None:
    class Printed(Shop):
        def begin(self) -> None:
            self.curator.as_printed("a paper")
            self.sums = self.curator.batch_sum(1, reward=(0.0, 1.0), sigma=0.1)

    class People(Shop):
        protects = ("central", "user-rewards")

        def begin(self) -> None:
            self.sums = self.curator.batch_sum(1, reward=(0.0, 1.0), limit=1)

    for agent, message in ((Printed, "within budget"), (People, "a reward or user-round")):
        with pytest.raises(ParameterError, match=message):
            choose("rho=1", 0, agent=agent)
    with pytest.raises(ParameterError, match="needs a budget"):
        choose("none", 0)


def test_the_command_prints_what_is_included(capfd: Any) -> None:
    pytest.importorskip("opendp")
    from dpb_gym.cli import main

    command = "tune one-pass-pricing --env DPB/Pricing-v0 --private --runs 1.5 --replicates 2"
    more = ["--budget", "eps=8,delta=1e-6", "--grid", "first=[1, 2]", "--horizon", "40"]
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), *more])
    assert ended.value.code == 0
    shown = " ".join(capfd.readouterr().out.split())
    assert "selection included" in shown and "eps=8 at delta=1e-06" in shown
