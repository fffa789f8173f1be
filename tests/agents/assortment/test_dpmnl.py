"""DPMNL: cost, noise scales, the private MLE, and learning."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from dpb_agents.assortment.choice_records import ChoiceMLE
from dpb_agents.assortment.dpmnl import LITERAL
from dpb_gym.envs.registration import make_problem
from dpb_gym.errors import BudgetError, BudgetExceeded, HorizonExceeded, ParameterError
from dpb_gym.privacy import Budget, Curator, NoiseSource
from dpb_gym.registry import agent_spec, make_agent
from dpb_gym.streams import AgentStreams

Array = NDArray[Any]


def begun(
    budget: Budget | None, params: dict[str, Any] | None = None, seeds: Any = (0, 1), **env: Any
) -> Any:
    agent = make_agent("dpmnl", **(params or {}))
    problem = make_problem("DPB/Assortment-v0", **env)
    agent.set_up(problem.info, AgentStreams(list(seeds)), budget)
    return agent


# ------------------------------------------------------------------ the guarantee


@pytest.mark.parametrize("mechanism", ["binary-tree", "blt", "sqrt-toeplitz"])
@pytest.mark.parametrize("rho", [0.02, 1.0])
def test_spends_its_zcdp_budget_and_no_more(mechanism: str, rho: float) -> None:
    agent = begun(Budget.zcdp(rho), {"mechanism": mechanism}, horizon=2000)
    guarantee = agent.curator.guarantee
    assert (guarantee.notion, guarantee.unit) == ("joint", "user-round")
    assert guarantee.relation == "replace-one"
    assert rho * (1 - 2e-4) <= guarantee.rho <= rho * (1 + 1e-9)


def test_spends_its_approximate_budget_and_no_more() -> None:
    agent = begun(Budget.approx(2.0, 1e-6), horizon=2000)
    assert 2.0 * (1 - 1e-5) <= agent.curator.guarantee.epsilon(1e-6) <= 2.0 * (1 + 1e-9)


def test_the_guarantee_is_known_before_the_first_round(play: Any) -> None:
    params = {"explore": 20, "max_updates": 3}
    env = {"n_items": 10, "capacity": 2, "horizon": 200}
    before = begun(Budget.zcdp(0.7), params, **env).curator.guarantee
    run = play("dpmnl", [0, 1], budget=Budget.zcdp(0.7), params=params, **env)
    assert run.agent.curator.guarantee == before
    assert (run.agent.updates <= 3).all()


def test_the_printed_calibration_reports_its_true_cost() -> None:
    """Erratum A1: with K items the printed Gram noise costs K times its share."""
    params = {"calibration": "paper", "max_updates": 10}
    agent = begun(Budget.zcdp(1.0), params, horizon=10_000)
    assert agent.curator.guarantee.rho > 10 * 0.1
    assert agent.curator.guarantee.rho == pytest.approx(1.003, abs=1e-3)
    ten = begun(Budget.zcdp(1.0), {**params, "share": 0.1}, horizon=10_000)
    assert ten.curator.guarantee.rho > 9.0
    one = begun(Budget.zcdp(1.0), {**params, "share": 0.5}, capacity=2, horizon=100)
    assert one.curator.guarantee.rho == pytest.approx(1.0, abs=0.01)


def test_the_printed_constants_by_hand() -> None:
    """sigma_cov^2 = K m / rho2, Delta and sigma of Theorem 1, lambda of Lemma S6, by hand."""
    params = {"calibration": "paper", "max_updates": 10}
    agent = begun(Budget.zcdp(1.0), params, horizon=10_000)
    known = agent._releasers
    m = 14
    assert known.gram.sigma**2 == pytest.approx(10 * m / 0.1, rel=1e-6)
    rho = 0.9 / 10
    plan = known.estimator.plan
    assert plan.ridge == pytest.approx(4 / (math.exp(0.5 * rho / 5) - 1))
    assert plan.sigma == pytest.approx(2 * (math.sqrt(5 + rho) + math.sqrt(5)) / (0.5 * rho))
    # Lemma S6 by hand at d = 5; errata A10 quotes the shift as 1.1e4 at rho = 1
    log5 = math.log(5)
    ratio = (log5 / 5) ** (1 / 3)
    factor = (
        2 * math.sqrt(5) + 2 * 5 ** (1 / 6) * log5 ** (1 / 3) + 2 * math.sqrt(4 * math.log(1e4))
    )
    factor += 6 * (1 + ratio) * math.sqrt(log5) / math.sqrt(math.log(1 + ratio))
    bound = math.sqrt(10 * m / 0.1) * math.sqrt(m) * factor
    assert known.shift == pytest.approx(2 * bound) == pytest.approx(1.05e4, rel=0.01)
    assert known.floor == known.shift / 2
    # Lemma S10 prints the ridge without the 1 / sqrt(K) of its proof (erratum A17)
    t = 77
    width = math.sqrt(2.5 * math.log(1 + t / 5) + math.log(t)) + plan.ridge
    width += plan.sigma * math.sqrt(4 * 5 * math.log(1e4) / 10) + math.sqrt(3 * bound)
    assert known.width(t) == pytest.approx(width)


def test_the_printed_noise_is_independent_from_entry_to_entry() -> None:
    """N(0, sigma^2) at every i <= j; isometric noise would have half of it off the diagonal."""
    known = begun(Budget.zcdp(1.0), {"calibration": "paper"}, range(3000), horizon=4)._releasers
    known.gram.add(np.zeros(3000), along=np.zeros((3000, 1, 5)))
    noise = known.gram.value / known.gram.sigma
    np.testing.assert_array_equal(noise, noise.transpose(0, 2, 1))
    np.testing.assert_allclose(noise.var(axis=0), 1.0, atol=0.12)


@given(seed=st.integers(0, 10**6), d=st.integers(1, 6), K=st.integers(1, 8))
@settings(max_examples=50)
def test_entries_of_a_gram_matrix_move_by_at_most_sqrt_2_k(seed: int, d: int, K: int) -> None:
    rng = np.random.default_rng(seed)
    upper = np.triu_indices(d)

    def record() -> Array:
        x = rng.normal(size=(K, d)) * (rng.random(d) < 0.5)
        x /= np.maximum(1e-9, np.linalg.norm(x, axis=1))[:, None]
        return (x.T @ x)[upper]

    worst = max(np.linalg.norm(record() - record()) for _ in range(40))
    assert worst <= math.sqrt(2) * K * (1 + 1e-12)


def test_as_run_has_unclipped_features_and_no_guarantee(play: Any) -> None:
    """Errata A8, A16: the paper's experiments release sums of unclipped features."""
    runs = {}
    for calibration in ("paper", "as-run"):
        params = {"calibration": calibration, "explore": 20, "max_updates": 3}
        env = {"n_items": 10, "capacity": 2, "horizon": 40}
        runs[calibration] = play("dpmnl", [0, 1], budget=Budget.zcdp(1.0), params=params, **env)
    clipped, as_run = (run.agent for run in runs.values())
    assert clipped.curator.guarantee.private and not as_run.curator.guarantee.private
    stored = [agent._releasers.estimator.records.x[:, :40] for agent in (clipped, as_run)]
    longest = [np.linalg.norm(x, axis=-1).max() for x in stored]
    assert longest[0] <= 1 + 1e-6 and longest[1] > 2


def test_noise_of_the_verified_calibration_by_hand() -> None:
    agent = begun(Budget.zcdp(1.0), {"mechanism": "binary-tree"}, horizon=10_000)
    known = agent._releasers
    assert known.gram.sensitivity == pytest.approx(math.sqrt(2) * 10)
    assert known.gram.sigma**2 == pytest.approx(100 * 14 / 0.1, rel=1e-6)
    assert known.estimator.plan.event.zcdp == pytest.approx(0.9 / 5, rel=2e-4)
    # lambda bounds the norm of every release's noise (isometric: off the diagonal 1/sqrt 2)
    rng = np.random.default_rng(0)
    s = known.gram.noise_std_max
    noise = rng.normal(size=(4000, 5, 5)) * s / math.sqrt(2)
    noise = (
        np.triu(noise, 1)
        + np.triu(noise, 1).transpose(0, 2, 1)
        + (math.sqrt(2) * noise * np.eye(5))
    )
    assert np.abs(np.linalg.eigvalsh(noise)).max() < known.floor


def test_bad_budgets_and_parameters() -> None:
    with pytest.raises(BudgetError, match="takes a zCDP budget"):
        begun(Budget.approx(1.0, 1e-5), {"calibration": "paper"})
    with pytest.raises(ParameterError, match="divides by zero"):
        begun(Budget.zcdp(1.0), {"calibration": "paper"}, capacity=1)
    for params, message in [
        ({"share": 1.0}, "share must be"),
        ({"max_updates": 0}, "max_updates must be"),
        ({"mechanism": "tree"}, "mechanism must be one of"),
        ({"calibration": "exact"}, "calibration must be one of"),
        ({"rule": "max"}, "rule must be one of"),
        ({"every": 0}, "every must be"),
        ({"kappa": 2.0}, ": it is 1"),
        ({"literal": ["line-15"]}, "calibration='paper'"),
        ({"literal": ["line-16"], "calibration": "paper"}, "literal takes names of"),
        ({"samples": 3}, ": they are"),
    ]:
        with pytest.raises(ParameterError, match=message):
            make_agent("dpmnl", **params)


# ------------------------------------------------------------------ printed forms


def printed(*literal: str, **params: Any) -> Any:
    options = {"calibration": "paper", "max_updates": 10, "literal": list(literal), **params}
    return begun(Budget.zcdp(1.0), options, horizon=10_000)


def test_every_printed_form_has_a_test() -> None:
    assert set(LITERAL) == {"algorithm-3", "lemma-s10", "line-15"}


def test_levels_of_algorithm_3() -> None:
    """sigma_Cov^2 = K m / rho_2 with m = 1 + ceil(log2 T) = 15; lambda keeps Lemma S6's 14."""
    literal, ours = printed("algorithm-3")._releasers, printed()._releasers
    assert literal.gram.sigma**2 == pytest.approx(1500.0)
    assert ours.gram.sigma**2 == pytest.approx(1400.0, rel=1e-6)
    assert literal.floor == pytest.approx(ours.floor, rel=1e-6)


def test_the_logarithm_of_lemma_s10() -> None:
    """At t = 3000 and d = 5 the statistical term is 12.0 as printed and 4.90 as proved."""
    literal, ours = printed("lemma-s10")._releasers.width, printed()._releasers.width
    dimension, log = 2.5 * math.log1p(600), math.log(3000)
    assert math.sqrt(dimension) + log == pytest.approx(12.0, abs=0.02)
    assert math.sqrt(dimension + log) == pytest.approx(4.90, abs=0.01)
    gap = math.sqrt(dimension) + log - math.sqrt(dimension + log)
    assert literal(3000) - ours(3000) == pytest.approx(gap)


def test_line_15_compares_with_the_round_before(play: Any) -> None:
    """det V doubles within one round next to never, and since the last update it does."""
    updates = {}
    for literal in ((), ("line-15",)):
        params = {"calibration": "paper", "explore": 20, "max_updates": 9, "literal": literal}
        env = {"n_items": 8, "capacity": 2, "dim": 2, "params": params}
        updates[literal] = play("dpmnl", [0, 1], 2000, Budget.zcdp(5000.0), **env).agent.updates
    assert (updates[()] > 4).all() and (updates["line-15",] == 1).all()


def test_line_15_by_hand(play: Any) -> None:
    """Updates are in the rounds in which the released V has twice the determinant of before."""
    params = {"calibration": "paper", "explore": 3, "max_updates": 99, "literal": ["line-15"]}
    env = {"n_items": 8, "capacity": 2, "dim": 2, "params": {**params, "growth": 1.01}}
    run = play("dpmnl", [0, 1, 2], 60, Budget.zcdp(300.0), stop=0, **env)
    expected = np.zeros(3, int)
    for t in range(1, 61):
        before = run.agent._V.logdet.copy()
        run.play(1)
        grown = run.agent._V.logdet > before + math.log(1.01)
        expected += (t == 3) | (grown & (t > 3))
        np.testing.assert_array_equal(run.agent.updates, expected)
    assert (expected > 2).all() and (expected < 57).all()


# ------------------------------------------------------------------ the private MLE


def private_mle(updates: int, rho: float = 5.0) -> ChoiceMLE:
    noise = NoiseSource.from_seed(4, 2)
    curator = Curator(Budget.zcdp(rho), ("joint", "user-round"), noise=noise)
    return ChoiceMLE(curator, 4, 3, 60, calls=updates)


def fill(estimator: ChoiceMLE, scale: float, clip: bool = False) -> None:
    rng = np.random.default_rng(1)
    for _ in range(60):
        x = scale * rng.normal(size=(2, 6, 3)).astype(np.float32)
        if clip:
            x /= np.maximum(1.0, np.linalg.norm(x, axis=2, keepdims=True))
        slates = np.array([rng.choice(6, 4, replace=False) for _ in range(2)])
        choice = rng.integers(-1, 4, 2)
        estimator.add(x, slates, choice)


def test_features_are_clipped_before_they_count() -> None:
    far = private_mle(1)
    near = private_mle(1)
    fill(far, 50.0)
    fill(near, 50.0, clip=True)
    due = np.array([True, True])
    np.testing.assert_allclose(far.release(due), near.release(due), atol=1e-5)
    with pytest.raises(ParameterError, match="finite"):
        private_mle(1).add(
            np.full((2, 4, 3), np.inf, np.float32), np.tile(np.arange(4), (2, 1)), np.zeros(2, int)
        )


def test_records_are_dropped_after_the_last_release() -> None:
    estimator, due = private_mle(2), np.array([True, False])
    fill(estimator, 1.0)
    grown = estimator.records.x.nbytes
    assert estimator.memory(60) == 2 * 60 * (4 * 4 * 3 + 8)
    for asked in (due, ~due, due):
        estimator.release(asked)
        assert estimator.records.x.nbytes == grown > 0  # the second replicate has a release left
    kept = estimator.release(~due)
    assert estimator.records.x.nbytes == estimator.records.offered.nbytes == 0
    assert estimator.memory(60) == 0
    np.testing.assert_array_equal(estimator.value, kept)
    with pytest.raises(BudgetExceeded, match="all 2 releases"):
        estimator.release(due)


def test_dropped_records_are_counted(play: Any) -> None:
    """The horizon is enforced, and actions are those of an agent that keeps its records."""
    params = {"explore": 20, "max_updates": 1}
    env = {"n_items": 10, "capacity": 2, "params": params}
    run = play("dpmnl", [0, 1], 40, Budget.zcdp(1.0), **env)
    records = run.agent._releasers.estimator.records
    assert records.count == 40 and records.x.shape[1] == 0
    context, actions = run.instance.context(), run.actions[-1]
    with pytest.raises(HorizonExceeded):
        run.agent.observe(context, actions, run.instance.respond(actions).feedback)


def test_all_calls_are_charged_at_once() -> None:
    estimator = private_mle(2)
    fill(estimator, 1.0)
    due = np.array([True, False])
    estimator.release(due)
    assert estimator.curator.ledger.spent == pytest.approx(5.0, rel=2e-4)
    estimator.release(due)
    with pytest.raises(BudgetExceeded, match="all 2 releases of private MLEs"):
        estimator.release(due)
    estimator.release(~due)


# ------------------------------------------------------------------ the agent


@pytest.mark.parametrize("revenues", ["equal", "random"])
def test_without_a_budget_it_is_greedy_mnl(play: Any, revenues: str) -> None:
    params = {"explore": 7, "growth": 1.3}
    env = {"n_items": 20, "capacity": 4, "dim": 3, "revenues": revenues}
    env["context_norm"] = "clip"  # dpmnl clips the features of its Gram matrix
    exact = play("greedy-mnl", [0, 1, 2], 200, params=params, **env)
    ours = play("dpmnl", [0, 1, 2], 200, params={**params, "rule": "greedy"}, **env)
    assert agent_spec("dpmnl").budget == "required" and (exact.agent.updates > 3).all()
    np.testing.assert_array_equal(np.array(ours.actions), np.array(exact.actions))
    np.testing.assert_array_equal(ours.agent._theta, exact.agent._theta)


@pytest.mark.parametrize("rule", ["ucb", "greedy", "ts"])
@pytest.mark.parametrize("mechanism", ["binary-tree", "blt"])
def test_replicates_do_not_depend_on_the_batch(play: Any, rule: str, mechanism: str) -> None:
    params = {"explore": 30, "rule": rule, "mechanism": mechanism, "growth": 1.2, "scale": 0.01}
    env = {"n_items": 20, "capacity": 4, "context_norm": "clip", "budget": Budget.zcdp(50.0)}
    batch = play("dpmnl", list(range(8)), 400, params=params, **env)
    assert len(set(batch.agent.updates)) > 1 or batch.agent.updates[0] > 2
    for seeds in ([0], [6], [2, 5, 7]):
        part = play("dpmnl", seeds, 400, params=params, **env)
        np.testing.assert_array_equal(np.array(part.actions), np.array(batch.actions)[:, seeds])
        np.testing.assert_array_equal(part.regret, batch.regret[seeds])


@pytest.mark.slow
@pytest.mark.parametrize(
    "env",
    [
        {"context_norm": "clip"},
        {},
        {"context_norm": "clip", "revenues": "random"},
        {"context_norm": "clip", "n_items": 12, "capacity": 3, "revenues": [0.2] * 6 + [1.5] * 6},
        {"context_norm": "clip", "n_items": 15, "capacity": 1},
    ],
)
def test_beats_random(play: Any, random_regret: Any, env: dict[str, Any]) -> None:
    seeds, horizon = list(range(12)), 600
    params = {"explore": 100, "max_updates": 3, "mechanism": "blt"}
    regret = play("dpmnl", seeds, horizon, Budget.zcdp(5.0), params, **env).regret
    reference = random_regret(seeds, horizon, **env)
    assert stats.ttest_rel(0.8 * reference, regret, alternative="greater").pvalue < 1e-2


def test_regret_falls_with_the_budget(play: Any) -> None:
    seeds, params = list(range(10)), {"explore": 100, "max_updates": 3, "mechanism": "blt"}
    env = {"context_norm": "clip", "params": params}
    means = [
        play("dpmnl", seeds, 1500, Budget.zcdp(rho), **env).regret.mean()
        for rho in (0.01, 0.3, 30.0)
    ]
    assert means[0] > 1.5 * means[1] > 1.5 * means[2]


def test_full_capacity(play: Any) -> None:
    params = {"explore": 20}
    run = play("dpmnl", [0, 1], 60, Budget.zcdp(1.0), params, n_items=4, capacity=4, dim=2)
    assert not run.regret.any()


@pytest.mark.slow
def test_the_paper_agent_reproduces_an_independent_prototype(play: Any) -> None:
    """T0 = 500, D_MLE = 10, 90% to the MLE, rho = 1, clipped: 149 +- 10 in a prototype."""
    params = {"calibration": "paper", "explore": 500, "max_updates": 10}
    run = play("dpmnl", list(range(10)), 10_000, Budget.zcdp(1.0), params, context_norm="clip")
    error = math.hypot(10, run.regret.std(ddof=1) / math.sqrt(10))
    assert abs(run.regret.mean() - 149) < 3 * error
