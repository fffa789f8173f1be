"""Objects with `predict` as agents, and what is said of things that are no agents."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import dpb_gym
from dpb_gym.errors import AgentError, BudgetError, ParameterError, UnknownParameterError
from dpb_gym.predictors import PredictorMaker
from dpb_gym.privacy import Budget, Curator

SIZES: dict[str, dict[str, Any]] = {
    "DPB/Assortment-v0": {"n_items": 5, "capacity": 2, "dim": 2},
    "DPB/Pricing-v0": {"dim": 3},
    "DPB/Recommendation-v0": {"dim": 2, "n_candidates": 4, "available": 0.7},
}
HORIZON = 12


class Spaced:
    """A model with spaces, which acts by the sum of an observation and the round."""

    def __init__(self, env: Any) -> None:
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.calls: list[Any] = []

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, Any]:  # fmt: skip
        assert deterministic and (state is None) == bool(episode_start[0])
        parts = observation if isinstance(observation, dict) else {"all": observation}
        sums = sum(np.asarray(v, float).reshape(len(v), -1).sum(axis=1) for v in parts.values())
        rounds = 0 if state is None else state
        values = np.modf(np.abs(np.sin(sums + rounds)))[0]
        return np.stack([self.action(u) for u in values]), rounds + 1

    def action(self, u: float) -> Any:
        space = self.action_space
        if isinstance(space, gym.spaces.Box):
            return (space.low + u * (space.high - space.low)).astype(np.float32)
        if isinstance(space, gym.spaces.MultiBinary):
            return (np.arange(space.n) < max(1, int(u * space.n))).astype(np.int8)
        if isinstance(space, gym.spaces.MultiDiscrete):
            return (u * space.nvec).astype(np.int64) % space.nvec
        return np.int64(int(u * space.n))


def stepped(env: Any, model: Any, seed: int) -> float:
    """Regret of a model that plays the environment itself."""
    observation, _ = env.reset(seed=seed)
    state, total = None, 0.0
    for t in range(HORIZON):
        batch = (
            {name: value[None] for name, value in observation.items()}
            if isinstance(observation, dict)
            else observation[None]
        )
        actions, state = model.predict(batch, state, np.array([t == 0]), deterministic=True)
        observation, _, _, _, info = env.step(actions[0])
        total += info["regret"]
    return total


@pytest.mark.parametrize(
    ("env_id", "interface"),
    [
        ("DPB/Assortment-v0", {}),
        ("DPB/Assortment-v0", {"action_mode": "mask", "obs_mode": "dict"}),
        ("DPB/Assortment-v0", {"action_mode": "scores"}),
        ("DPB/Assortment-v0", {"action_mode": "index"}),
        ("DPB/Pricing-v0", {}),
        ("DPB/Pricing-v0", {"n_prices": 7}),
        ("DPB/Recommendation-v0", {"obs_mode": "dict"}),
    ],
)
def test_a_model_earns_what_it_earns_in_its_environment(
    env_id: str, interface: dict[str, Any]
) -> None:
    if env_id == "DPB/Recommendation-v0":
        SIZES[env_id].pop("available", None)
    env = gym.make(env_id, horizon=HORIZON, **SIZES[env_id], **interface)
    model = Spaced(env)
    result = dpb_gym.evaluate(
        env_id, {"mine": model}, HORIZON, 3, env_kwargs=SIZES[env_id], progress=False
    )
    expected = [stepped(env, model, seed) for seed in range(3)]
    np.testing.assert_allclose(result.final_regret("mine"), expected, rtol=1e-12)


def test_a_rescaled_price_is_mapped_back() -> None:
    env = gym.make("DPB/Pricing-v0", horizon=HORIZON, dim=3)
    low, high = np.float32(-1), np.float32(1)
    scaled = gym.wrappers.RescaleAction(env, low, high)
    model = Spaced(scaled)
    assert model.action_space != env.action_space
    result = dpb_gym.evaluate(
        "DPB/Pricing-v0", {"mine": model}, HORIZON, 2, env_kwargs={"dim": 3}, progress=False
    )
    expected = [stepped(scaled, model, seed) for seed in range(2)]
    np.testing.assert_allclose(result.final_regret("mine"), expected, rtol=1e-6)


@pytest.mark.parametrize("form", ["action", "tuple"])
def test_a_plain_object_sees_one_observation_at_a_time(form: str) -> None:
    seen = []

    class Plain:
        def predict(self, observation: Any) -> Any:
            seen.append(observation.shape)
            return np.array([0.5]) if form == "action" else (np.array([0.5]), None)

    result = dpb_gym.evaluate(
        "DPB/Pricing-v0", {"half": Plain(), "fixed": ("fixed-price", None, {"price": 0.5})},
        HORIZON, 2, env_kwargs={"dim": 3}, progress=False,
    )  # fmt: skip
    assert set(seen) == {(2,)} and len(seen) == 2 * HORIZON
    assert result.final_regret("half").tolist() == result.final_regret("fixed").tolist()


def test_a_model_of_other_actions_is_refused() -> None:
    model = Spaced(gym.make("DPB/Pricing-v0", horizon=HORIZON, n_prices=7))
    with pytest.raises(AgentError, match=r"trained on actions Discrete\(7\)"):
        dpb_gym.evaluate("DPB/Recommendation-v0", {"mine": model}, HORIZON, 2, progress=False)


class Price:
    def __init__(self, price: float) -> None:
        self.price = price

    def predict(self, observation: Any) -> Any:
        return np.array([self.price])


def test_stored_results_are_told_apart_by_the_model(tmp_path: Any) -> None:
    assert PredictorMaker(Price(0.2)).version != PredictorMaker(Price(0.3)).version
    assert PredictorMaker(Price(0.2)).version == PredictorMaker(Price(0.2)).version
    regrets = []
    for price in (0.2, 0.3, 0.3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.warn", lambda *_, **__: None)
            regrets.append(
                dpb_gym.evaluate(
                    "DPB/Pricing-v0", {"mine": Price(price)}, HORIZON, 2, out=tmp_path / "out",
                    progress=False,
                ).final_regret("mine").tolist()
            )  # fmt: skip
    assert regrets[0] != regrets[1] == regrets[2]


@pytest.mark.parametrize("thing", [object(), 3, lambda observation: 0.5, dict])
def test_other_things_are_refused_with_what_to_give(thing: Any) -> None:
    with pytest.raises(ParameterError, match=r"predict\(observation\).*Wrap others in a dpb_gym\."):
        dpb_gym.evaluate("DPB/Pricing-v0", {"mine": thing}, HORIZON, 2, progress=False)


def test_parameters_of_the_environment_are_sent_to_env_kwargs() -> None:
    wanted = r"argument 'unknown_horizon'.*env_kwargs=\{'unknown_horizon': True\}"
    with pytest.raises(UnknownParameterError, match=wanted) as caught:
        dpb_gym.evaluate("DPB/Pricing-v0", "random", HORIZON, unknown_horizon=True)  # type: ignore[call-arg]
    assert isinstance(caught.value, TypeError)


class Early(dpb_gym.SingleAgent):
    protects = ("central", "reward")

    def __init__(self) -> None:
        self.total = self.curator.running_sum(3, clip=1.0)


class Strange(dpb_gym.SingleAgent):
    protects = ("central", "reward")

    def __init__(self) -> None:
        own = Curator(Budget.zcdp(1.0), self.protects, noise="system", horizon=9, replicates=1)
        self.total = own.running_sum(3, clip=1.0)

    def act(self, context: Any) -> float:
        return 0.5


def test_releasers_of_the_constructor_are_named() -> None:
    with pytest.raises(AgentError, match="Early has no curator yet: make releasers in `begin`"):
        dpb_gym.evaluate("DPB/Pricing-v0", {"a": (Early, "rho=1")}, HORIZON, 2, progress=False)
    with pytest.raises((AgentError, BudgetError), match=r"self\.total is of another curator"):
        dpb_gym.evaluate("DPB/Pricing-v0", {"a": (Strange, "rho=1")}, HORIZON, 2, progress=False)


def test_a_short_slate_says_how_to_offer_fewer() -> None:
    env = gym.make("DPB/Assortment-v0", horizon=HORIZON, n_items=9, capacity=4)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"must have shape .* repeat one of them or use action"):
        env.unwrapped.step(np.arange(3))
