"""The (epsilon, delta) benchmark of CS: constants by hand, true cost, same policy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpb_agents.assortment.dpmnl import DPMNL, _lemma_s6
from dpb_agents.assortment.dpmnl_approx import (
    LITERAL_APPROX,
    DPMNLApprox,
    advanced_composition,
    converted,
)
from dpb_gym.envs.registration import make_problem
from dpb_gym.errors import ParameterError
from dpb_gym.privacy import Budget
from dpb_gym.registry import agent_spec, make_agent
from dpb_gym.streams import AgentStreams


def begun(budget: Budget | None, params: dict[str, Any] | None = None, **env: Any) -> Any:
    agent = make_agent("dpmnl-approx", **(params or {}))
    problem = make_problem("DPB/Assortment-v0", **env)
    agent.set_up(problem.info, AgentStreams([0, 1]), budget)
    return agent


def chi_radius(d: int, delta: float) -> float:
    log = math.log(2 / delta)
    return math.sqrt(d + 2 * math.sqrt(d * log) + 2 * log)


# ------------------------------------------------------------------ conversion and composition


def test_conversions() -> None:
    """The figures of erratum A7 at rho = 1, T = 10,000."""
    rho = Budget.zcdp(1.0)
    paper, correct = converted(rho, 10_000, "paper"), converted(rho, 10_000, "correct")
    assert paper.epsilon == pytest.approx(37.84, abs=0.01)
    assert correct.epsilon == pytest.approx(9.58, abs=0.01)
    assert paper.delta == correct.delta == pytest.approx(1e-8)
    asked = Budget.approx(2.0, 1e-6)
    assert converted(asked, 10_000, "paper") is converted(asked, 10_000, "correct") is asked
    # below rho = 1 / (2 log T) the paper's epsilon is the smaller one
    limit = 1 / (2 * math.log(10_000))
    for factor, larger in ((0.5, False), (2.0, True)):
        small = Budget.zcdp(factor * limit)
        pair = converted(small, 10_000, "paper").epsilon, converted(small, 10_000, "correct")
        assert (pair[0] > pair[1].epsilon) is larger


@settings(deadline=None)
@given(st.floats(1e-3, 50.0), st.integers(1, 60), st.floats(1e-12, 0.1))
def test_advanced_composition_inverts_the_theorem(epsilon: float, calls: int, slack: float) -> None:
    def total(one: float) -> float:
        advanced = one * math.sqrt(2 * calls * math.log(1 / slack)) + calls * one * math.expm1(one)
        return min(calls * one, advanced)

    one = advanced_composition(epsilon, calls, slack)
    assert total(one) <= epsilon * (1 + 1e-9) < total(one * (1 + 1e-6)) * (1 + 2e-9)


def test_the_printed_inverse_is_not_valid_at_large_epsilon() -> None:
    """Lemma S19 asks for epsilon < 1; at the paper's epsilon = 34 its inverse overspends."""
    epsilon, calls, delta = 0.9 * 37.84, 2, 5e-9
    one = epsilon / math.sqrt(8 * calls * math.log(1 / delta))
    advanced = one * math.sqrt(2 * calls * math.log(1 / delta)) + calls * one * math.expm1(one)
    assert advanced > epsilon


# ------------------------------------------------------------------ constants


@pytest.mark.parametrize("calibration", ["paper", "verified"])
def test_both_printed_counts_of_levels(calibration: str) -> None:
    """Erratum A17: 15 and 14 levels at T = 10,000."""
    env = {"dim": 5, "capacity": 10, "context_norm": "clip"}
    for horizon, ratio in ((10_000, 14 / 15), (8191, 13 / 14), (8192, 1.0)):
        many, few = (
            begun(
                Budget.zcdp(1.0),
                {"calibration": calibration, "levels": text},
                horizon=horizon,
                **env,
            )
            for text in ("algorithm-5", "lemma-s6")
        )
        sigma_ratio = few._releasers.gram.sigma / many._releasers.gram.sigma
        assert sigma_ratio == pytest.approx(math.sqrt(ratio))
        assert (few.curator.guarantee.rho <= 1.0) or calibration == "paper"


@pytest.mark.parametrize("conversion", ["paper", "correct"])
def test_the_papers_constants(conversion: str) -> None:
    """Algorithms 4 and 5 and the width of section S.3.3, by hand."""
    D, T, d, K = 10, 10_000, 5, 10
    params = {"calibration": "paper", "conversion": conversion, "max_updates": D}
    known = begun(Budget.zcdp(0.5), params, horizon=T)._releasers
    log_T = math.log(T)
    epsilon = 0.5 + 2 * log_T if conversion == "paper" else 0.5 + 2 * math.sqrt(log_T)
    e1, e2, half = 0.9 * epsilon, 0.1 * epsilon, 0.5 / T**2
    one, one_delta = e1 / math.sqrt(8 * D * math.log(1 / half)), half / (2 * D)
    plan = known.estimator.plan
    r = chi_radius(d, one_delta)
    assert plan.ridge == pytest.approx(2 * 5 / one)
    assert plan.sigma == pytest.approx(2 * 2 * (r + math.sqrt(r**2 + one)) / one)
    variance = 32 * 15 * K * math.log(4 / half) ** 2 / e2**2
    # isometric noise of diagonal variance 2 v has variance v off the diagonal
    assert known.gram.sigma**2 == pytest.approx(2 * variance)
    t = 77
    width = math.sqrt(d / 2 * math.log(1 + (t + 1) / d) + math.log(t + 1))
    width += 4 * 5 / (e1 * math.sqrt(K)) + plan.sigma * math.sqrt(4 * d * log_T / K)
    # lambda-tilde: sigma_cov of one of the two matrices, m = floor(log2 T) + 1 (erratum A13)
    assert known.floor == pytest.approx(math.sqrt(variance * 14) * _lemma_s6(d, T))
    width += math.sqrt(3 * known.floor)
    assert known.width(t) == pytest.approx(width)
    twice = begun(Budget.zcdp(0.5), {**params, "sigma": "algorithm-4"}, horizon=T)._releasers
    assert twice.estimator.plan.sigma == pytest.approx(2 * plan.sigma)


def test_verified_constants() -> None:
    D, T, K = 4, 2000, 6
    budget = Budget.approx(3.0, 1e-6)
    known = begun(budget, {"max_updates": D}, horizon=T, capacity=K)._releasers
    one = advanced_composition(2.7, D, 2.5e-7)
    plan = known.estimator.plan
    assert plan.ridge == pytest.approx(2 / one)  # 1 / ((1 - q) epsilon), errata A3 and A9
    r = chi_radius(5, 5e-7 / (2 * D))
    assert plan.sigma == pytest.approx(4 * (r + math.sqrt(r**2 + one)) / one)
    assert known.gram.sensitivity == pytest.approx(math.sqrt(2) * K)
    variance = 32 * 12 * K**2 * math.log(4 / 5e-7) ** 2 / 0.3**2
    assert known.gram.sigma**2 == pytest.approx(2 * variance)
    shift = known.gram.noise_std_max * (math.sqrt(10) + math.sqrt(4 * math.log(T)))
    assert known.shift == pytest.approx(2 * shift)


# ------------------------------------------------------------------ the guarantee


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0, 40.0])
@pytest.mark.parametrize("calls", [1, 5, 40])
@pytest.mark.parametrize("env", [{}, {"capacity": 1}, {"dim": 12, "capacity": 20}])
def test_the_accountant_confirms_the_classical_calibration(
    epsilon: float, calls: int, env: dict[str, int]
) -> None:
    """The ledger refuses what is not covered; what is spent is far below what was asked."""
    params = {"max_updates": calls}
    guarantee = begun(Budget.approx(epsilon, 1e-6), params, horizon=1000, **env).curator.guarantee
    assert (guarantee.notion, guarantee.unit) == ("joint", "user-round")
    assert 0 < guarantee.epsilon(1e-6) < 0.9 * epsilon


@pytest.mark.parametrize("rho", [0.01, 0.1, 1.0, 5.0])
def test_a_zcdp_budget_is_kept_in_both_currencies(rho: float) -> None:
    guarantee = begun(Budget.zcdp(rho), {"max_updates": 10}, horizon=10_000).curator.guarantee
    assert guarantee.rho <= rho * (1 + 1e-9)
    textbook = rho + 2 * math.sqrt(2 * rho * math.log(10_000))
    assert guarantee.epsilon(1e-8) < textbook


def test_the_papers_conversion_reports_that_it_costs_more_than_rho() -> None:
    """Erratum A7: verified releases at the epsilon of section 5.1."""
    budget = Budget.zcdp(1.0)
    guarantee = begun(budget, {"conversion": "paper"}, horizon=10_000).curator.guarantee
    assert guarantee.rho > 10
    assert 9.6 < guarantee.epsilon(1e-8) < 37.84


def test_the_printed_calibration_states_its_true_cost() -> None:
    """Wasteful, although the ridge of Theorem 5 is too small (A9): far below what is asked."""
    params = {"calibration": "paper", "max_updates": 10}
    asked = converted(Budget.zcdp(1.0), 10_000, "correct")
    guarantee = begun(Budget.zcdp(1.0), params, horizon=10_000).curator.guarantee
    assert guarantee.epsilon(1e-8) < 0.1 * asked.epsilon


def test_bad_budgets_and_parameters() -> None:
    with pytest.raises(ParameterError, match="rank min"):
        begun(Budget.zcdp(1.0), {"calibration": "paper"}, capacity=1)
    for params, message in [
        ({"calibration": "zcdp"}, "calibration must be one of"),
        ({"conversion": "tight"}, "conversion must be one of"),
        ({"sigma": 2.0}, "sigma must be one of"),
        ({"sigma": "algorithm-4"}, "calibration='paper'"),
        ({"share": 0.0}, "share must be"),
        ({"max_updates": 0}, "max_updates must be"),
        ({"every": 5}, ": the Gram matrix is released in every round"),
    ]:
        with pytest.raises(ParameterError, match=message):
            make_agent("dpmnl-approx", **params)


# ------------------------------------------------------------------ printed forms


def printed(*literal: str) -> Any:
    """alpha-tilde at rho = 1, T = 10,000, d = 5, K = 10, D_MLE = 10, converted as printed."""
    params = {"calibration": "paper", "max_updates": 10, "conversion": "paper"}
    agent = begun(Budget.zcdp(1.0), {**params, "literal": list(literal)}, horizon=10_000)
    return agent, agent._releasers


def test_every_printed_form_has_a_test() -> None:
    assert set(LITERAL_APPROX) == {"epsilon-mle", "lambda-tilde", "line-15"}
    with pytest.raises(ParameterError, match="literal takes names of"):
        printed("algorithm-3")


def test_lambda_tilde_has_the_levels_of_algorithm_5() -> None:
    """m = 15 instead of 14: sqrt(15 / 14) = 1.035 times."""
    literal, ours = printed("lambda-tilde")[1], printed()[1]
    assert literal.floor / ours.floor == pytest.approx(math.sqrt(15 / 14))
    assert literal.gram.sigma == ours.gram.sigma


def test_one_epsilon_mle_in_alpha_tilde() -> None:
    """4 R / (epsilon_mle sqrt(K)) with epsilon_1' instead of epsilon_1."""
    (agent, literal), (_, ours) = printed("epsilon-mle"), printed()
    split = agent._split(agent._asked)
    gap = 4 * 5 / math.sqrt(10) * (1 / split.call_epsilon - 1 / split.mle_epsilon)
    assert literal.width(100) - ours.width(100) == pytest.approx(gap) == pytest.approx(7.1, abs=0.1)


# ------------------------------------------------------------------ the policy


def test_it_is_the_same_policy() -> None:
    assert agent_spec("dpmnl-approx").budget == "required"
    for method in ("begin", "act", "observe"):
        assert getattr(DPMNLApprox, method) is getattr(DPMNL, method)


def test_replicates_do_not_depend_on_the_batch(play: Any) -> None:
    params = {"explore": 30, "growth": 1.0001, "scale": 0.01}
    env = {"n_items": 20, "capacity": 4, "context_norm": "clip", "budget": Budget.approx(90, 1e-5)}
    batch = play("dpmnl-approx", list(range(6)), 300, params=params, **env)
    assert (batch.agent.updates > 1).any()
    for seeds in ([0], [2, 5]):
        part = play("dpmnl-approx", seeds, 300, params=params, **env)
        np.testing.assert_array_equal(np.array(part.actions), np.array(batch.actions)[:, seeds])
        np.testing.assert_array_equal(part.regret, batch.regret[seeds])


@pytest.mark.parametrize("calibration", ["paper", "verified"])
def test_beats_random_and_falls_with_epsilon(
    play: Any, random_regret: Any, calibration: str
) -> None:
    seeds, horizon, env = list(range(12)), 800, {"context_norm": "clip"}
    params = {"explore": 100, "max_updates": 2, "calibration": calibration}
    loose = play("dpmnl-approx", seeds, horizon, Budget.approx(400, 1e-5), params, **env).regret
    tight = play("dpmnl-approx", seeds, horizon, Budget.approx(1, 1e-5), params, **env).regret
    reference = random_regret(seeds, horizon, **env)
    assert stats.ttest_rel(0.7 * reference, loose, alternative="greater").pvalue < 1e-2
    assert stats.ttest_rel(tight, loose, alternative="greater").pvalue < 1e-2
