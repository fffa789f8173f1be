"""Worlds that others published, played unchanged: their agents and ours, at the same epsilon.

A world is built from its authors' files in a folder of the user, such as a clone of their
repository. **Their Python code is executed.** Nothing of it is part of this package.

The authors state an epsilon. `Rival.true` is what we compute from the noise of their code at their
delta, for all messages that depend on one customer's record, replace-one.
"""

from __future__ import annotations

import importlib
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import DataError, unknown_name
from dpb_gym.privacy import Composition, GaussianEvent, Guarantee
from dpb_gym.problems.base import Array, ProblemInfo
from dpb_gym.serving import serve


class PublishedWorld:
    """One replicate of a published environment.

    Args:
        features: Features ``(K, d)`` of the arms in the first round.
        step: Function of features and an arm that returns the reward and the pseudo-regret of the
            arm, and the features of the next round.

    Attributes:
        features: Those of this round.
    """

    def __init__(self, features: Array, step: Callable[[Array, int], tuple[Any, Any, Any]]) -> None:
        self.features, self._step = features, step

    def play(self, arm: int) -> tuple[float, float]:
        """Return the reward and the pseudo-regret of an arm, and start the next round."""
        reward, regret, self.features = self._step(self.features, arm)
        return float(reward), float(regret)


@dataclass(frozen=True)
class Rival:
    """An agent of the authors.

    Attributes:
        regret: Function of a seed and a number of rounds that returns its regret.
        true: Its true epsilon at the authors' delta, or an upper bound.
        trust: Trust model, as in guarantees.
    """

    regret: Callable[[int, int], float]
    true: float
    trust: str


@dataclass(frozen=True)
class Setting:
    """A published experiment.

    Attributes:
        rounds: Its horizon.
        info: The problem as our agents see it.
        epsilon: The stated epsilon.
        delta: The stated delta; 0 for pure privacy.
        open: Function of a seed and a number of rounds that returns the world.
        rivals: Agents of the authors by name.
        ours: Our agents, by the trust model of their guarantees. An agent that plays under several
            has the budget's ending, as in ``"one-pass-linear@aggregator"``.
        published: Regret that the authors publish, by agent, or empty.
        scale: Public factor of the features, so that their norm is at most about 1.
    """

    rounds: int
    info: ProblemInfo
    epsilon: float
    delta: float
    open: Callable[[int, int], PublishedWorld]
    rivals: Mapping[str, Rival]
    ours: Mapping[str, tuple[str, ...]]
    published: Mapping[str, float] = field(default_factory=dict)
    scale: float = 1.0


@contextmanager
def _path(folder: Path) -> Iterator[None]:
    """Import modules from a folder; forget them and their folder afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def _module(folder: Path, name: str) -> ModuleType:
    if not (folder / f"{name.replace('.', '/')}.py").is_file():
        raise DataError(f"{folder} has no {name.replace('.', '/')}.py: give a clone of the world")
    with _path(folder):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise DataError(f"{name}.py of this world needs {error.name}: install it") from None


def _seed(seed: int) -> None:
    """Seed the global generator, which the authors' code uses."""
    np.random.seed(seed)  # noqa: NPY002


def gaussian_epsilon(distance: float, delta: float) -> float:
    """Return epsilon at delta of unit Gaussian noise on messages at this distance."""
    curve = Composition.of(GaussianEvent(1.0, distance))
    return Guarantee("local", "user-round", curve=curve).epsilon(delta)


def _bandit(env: Any, features: Array) -> PublishedWorld:
    """An environment with `randomize`, `reward` and `pregret`, and the same arms in every round."""

    def step(_: Array, arm: int) -> tuple[Any, Any, Array]:
        env.randomize()
        return env.reward(arm), env.pregret(arm), features

    env.reset_random()
    return PublishedWorld(features, step)


def _bandit_regret(make: Callable[[int], Any], agent: Any, options: Any) -> Callable[..., float]:
    def regret(seed: int, rounds: int) -> float:
        env = make(seed)
        total = 0.0
        env.reset_random()
        _seed(1000 + seed)
        player = agent(env, rounds, options)
        for t in range(rounds):
            env.randomize()
            arm = player.get_arm(t)
            player.update(t, arm, env.reward(arm))
            total += float(env.pregret(arm))
        return total

    return regret


def _shuffle_linear(folder: Path, epsilon: float) -> Setting:
    """Figures of Chowdhury & Zhou (2022): 100 fixed arms, d = 5, Bernoulli rewards."""
    code: Any = _module(folder, "LinBanditPrivate")
    d = 5
    arms = 100
    delta = 0.1
    batch = 20
    code.d = d  # their agents read this global

    def make(seed: int) -> Any:
        random = np.random.RandomState(2)  # draws as their script does, run after run
        for _ in range(seed + 1):
            X = random.randn(arms, d - 1)
            X = np.hstack([X / np.linalg.norm(X, axis=1, keepdims=True), np.ones((arms, 1))])
            X[:d] = np.eye(d)
            X[:d, -1] = 1.0
            theta = random.randn(d - 1)
            theta = np.append(0.5 * theta / np.linalg.norm(theta), 0.5)
        return code.LinBandit(X, theta, epsilon, delta, batch, noise="bernoulli", seed=seed)

    def open_(seed: int, rounds: int) -> PublishedWorld:
        return _bandit(env := make(seed), env.X)

    # |x| <= sqrt(2): records (x, 1) and (x', 1) with opposite first parts change x by 2 and x x',
    # in the norm of its symmetric noise, by sqrt(8).
    local = math.sqrt(12.0) * epsilon
    noise = {
        "LDPLinUCB": local / math.sqrt(math.log(2.5 / delta)),
        "SDPLinUCBPAmp": local * math.sqrt(batch / math.log(2.5 * batch / delta)),
    }
    true = {name: gaussian_epsilon(distance, delta) for name, distance in noise.items()}
    trust = {"LDPLinUCB": "local", "SDPLinUCBPAmp": "shuffle", "JDPLinUCB": "joint"}
    rivals = {
        # JDPLinUCB adds the same noise to successive sums, so that their difference is exact.
        name: Rival(_bandit_regret(make, getattr(code, name), {}), true.get(name, math.inf), of)
        for name, of in trust.items()
    }
    info = ProblemInfo("recommendation", 20_000, d, (0.0, 1.0), n_candidates=arms, n_arms=arms)
    ours = {
        "joint": ("one-pass-linear-joint",),
        "shuffle": ("one-pass-linear-joint@shuffler",),
        "local": ("local-lin-greedy", "local-glm-sgd", "one-pass-linear-joint@local"),
    }
    return Setting(20_000, info, epsilon, delta, open_, rivals, ours, scale=math.sqrt(0.5))


def _private_arms(folder: Path, epsilon: float, gap: float) -> Setting:
    """Figure 1 of the same authors' code on ten arms with Gaussian rewards."""
    code: Any = _module(folder, "MABPrivate")
    arms = 10

    def make(seed: int) -> Any:
        mu = gap * np.random.RandomState(seed).rand(arms) + (0.5 - gap / 2)
        return code.GaussBandit(mu, epsilon, seed=seed)

    def open_(seed: int, rounds: int) -> PublishedWorld:
        return _bandit(make(seed), np.eye(arms))

    def rival(agent: Any, growth: int, true: float, trust: str) -> Rival:
        options = {"crs": 1, "delta": 0.1, "dc": growth}
        return Rival(_bandit_regret(make, agent, options), true, trust)

    rivals = {
        # One Laplace number for the sums of all arms, which cancels where they are compared.
        "DPSE": rival(code.DPSE, 2, math.inf, "central"),
        # Discrete Laplace noise of scale 1 / epsilon on sums that hold a reward once.
        "BatchSEDistDP": rival(code.BatchSEDistDP, 4, epsilon, "aggregator"),
    }
    info = ProblemInfo("recommendation", 10**6, arms, (0.0, 1.0), n_candidates=arms, n_arms=arms)
    ours = {"central": ("one-pass-linear",), "aggregator": ("one-pass-linear@aggregator",)}
    return Setting(10**6, info, epsilon, 1e-6, open_, rivals, ours)


def _ratings(env: Any, seed: int) -> PublishedWorld:
    """MovieLensEnv of Zheng et al.: ratings of 20 films, completed by an SVD, scaled to [-1, 1]."""

    def step(_: Array, arm: int) -> tuple[Any, Any, Array]:
        rewards = env.current_rewards()
        return rewards[arm], rewards.max() - rewards[arm], np.asarray(env.observation())

    random.seed(seed)
    return PublishedWorld(np.asarray(env.observation()), step)


def _ldp_ratings(folder: Path, epsilon: float) -> Setting:
    """The experiment of Zheng et al. (2020): 20 films, features of 20 numbers, MovieLens 100K."""
    dataset: Any = _module(folder, "src.dataset")
    agent: Any = _module(folder, "src.linucb").LinUCB
    file = folder / "ua.base"
    delta = 0.1
    if not file.is_file():
        raise DataError(f"{file} is missing: place MovieLens 100K's ratings there")
    env = dataset.MovieLensEnv(str(file), 20, 20)

    def regret(seed: int, rounds: int) -> float:
        world = _ratings(env, seed)
        _seed(seed)
        player = agent(20, epsilon=epsilon, delta=delta, alpha=0.1, T=rounds)
        for t in range(rounds):
            player.update_status(t + 1)
            gram, sums, arm = player.construct(world.features, env.current_rewards())
            world.play(arm)
            player.server_update(gram, sums)
        return float(player.regret)

    # x x' changes by sqrt(2) in Frobenius norm and r x by 2, in units of the code's noise, which
    # lacks the factor sqrt(2) of its comment.
    sigma = 4.0 * math.sqrt(math.log(1.25 / delta)) / epsilon
    rivals = {"LinUCB": Rival(regret, gaussian_epsilon(math.sqrt(6.0) / sigma, delta), "local")}
    info = ProblemInfo("recommendation", 10**6, 20, (-1.0, 1.0), n_candidates=20)
    # nearly all features have norm at most 0.1
    return Setting(10**6, info, epsilon, delta, lambda seed, _: _ratings(env, seed), rivals,
                   {"local": ("local-lin-greedy", "local-lin-ucb", "one-pass-linear-joint@local")},
                   {"LinUCB": 962.4}, scale=10.0)  # fmt: skip


def _autoregressive(seed: int, d: int, arms: int) -> PublishedWorld:
    """Contexts with autoregressive correlation 0.1, five coordinates matter, Gaussian noise."""
    draws = np.random.default_rng(seed)
    beta = np.zeros(d)
    lags = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    root = np.linalg.cholesky(0.1**lags)
    beta[:5] = draws.uniform(0.5, 1.0, 5) * draws.choice([-1.0, 1.0], 5)

    def step(features: Array, arm: int) -> tuple[Any, Any, Array]:
        mean = features @ beta
        coming = draws.normal(size=(arms, d)) @ root
        return mean[arm] + 0.1 * draws.normal(), mean.max() - mean[arm], coming

    return PublishedWorld(draws.normal(size=(arms, d)) @ root, step)


def _sparse(folder: Path, epsilon: float) -> Setting:
    """Setting 2 of FLIPHAT's simulation.py at d = 400, with the arrays that it ships."""
    file = folder / "simulations/result_AR1e-1-s5-T40000-K3-effect_d.npy"
    choices = (0.5, 1, 2, 5)
    if not file.is_file():
        raise DataError(f"{folder} has no {file.name}: give a clone of the world")
    array = np.load(file, allow_pickle=False)  # (dimension, replicate, epsilon)
    published = {"FLIPHAT": float(array[0, :, choices.index(epsilon)].mean())}
    info = ProblemInfo("recommendation", 10_000, 400, (-6.0, 6.0), n_candidates=3)
    return Setting(10_000, info, epsilon, 0.01, lambda seed, _: _autoregressive(seed, 400, 3),
                   {}, {"joint": ("fliphat", "one-pass-sparse-joint")}, published,
                   scale=1.0 / math.sqrt(420.0))  # fmt: skip


def _ldp_logistic(folder: Path, epsilon: float) -> Setting:
    """Scheme1/instances/logistic.py of Han et al. (2021): d = 2, ten candidates."""
    utils: Any = _module(folder / "Scheme1", "utils")
    delta = 0.01
    names = {"LDP-SGD": ("SGD", "GSGD"), "LDP-GLOC": ("GLM", "LUCBG")}

    def parameters(name: str, seed: int, rounds: int) -> Any:
        mechanism, server = names[name]
        return utils.wrap_params(
            name, dimension=2, n_action=10, T=rounds, reward="logistic", eps=epsilon,
            mechanism=mechanism, server=server, random_seed=seed,
        )  # fmt: skip

    def open_(seed: int, rounds: int) -> PublishedWorld:
        _seed(seed)
        env = utils.get_settings(parameters("LDP-SGD", seed, rounds))[0]

        def step(_: Array, arm: int) -> tuple[Any, Any, Array]:
            reward, regret, contexts = env.step(arm)
            return reward, regret, np.asarray(contexts.T)

        return PublishedWorld(np.asarray(env.initialize().T), step)

    def regret(name: str) -> Callable[[int, int], float]:
        def run(seed: int, rounds: int) -> float:
            _seed(seed)
            made = utils.get_settings(parameters(name, seed, rounds))
            env, server, mechanism = made[:3]
            total = 0.0
            contexts = env.initialize()
            for t in range(rounds):
                arm, chosen = server.decide(contexts)
                reward, lost, contexts = env.step(arm)
                server.update(t, mechanism.pack(chosen, reward, server))
                total += float(lost)
            return total

        return run

    # LDP-GLOC sends x x', <x, theta> x and the gradient, for |theta| <= 1 at distance sqrt(10).
    sigma = 6.0 * math.sqrt(2.0 * math.log(2.5 / delta)) / epsilon
    true = {"LDP-SGD": epsilon, "LDP-GLOC": gaussian_epsilon(math.sqrt(10.0) / sigma, delta)}
    rivals = {name: Rival(regret(name), true[name], "local") for name in names}
    info = ProblemInfo("recommendation", 10**6, 2, (0.0, 1.0), n_candidates=10)
    ours = {"local": ("local-lin-greedy", "local-glm-sgd", "one-pass-linear-joint@local")}
    return Setting(10**6, info, epsilon, delta, open_, rivals, ours)


WORLDS: dict[str, tuple[str, Callable[..., Setting], dict[str, tuple[Any, ...]]]] = {
    "shuffle-linear": ("sayakrc/Differentially-Private-Bandits", _shuffle_linear,
                       {"eps=0.2": (0.2,), "eps=1": (1.0,), "eps=10": (10.0,)}),
    "private-arms": ("sayakrc/Differentially-Private-Bandits", _private_arms,
                     {f"{word}, eps={e:g}": (e, gap) for word, gap in (("easy", 0.5), ("hard", 0.1))
                      for e in (0.1, 0.5, 1.0)}),
    "ldp-ratings": ("huang-research-group/LDPbandit2020", _ldp_ratings, {"eps=8e5": (8e5,)}),
    "sparse": ("sunritc/FLIPHAT", _sparse, {f"eps={e:g}": (e,) for e in (0.5, 1, 2, 5)}),
    "ldp-logistic": ("liangzp/LDP-Bandit", _ldp_logistic, {"eps=0.5": (0.5,), "eps=1": (1.0,)}),
}  # fmt: skip
"""Repository, function and settings of every world."""


def play(setting: Setting, agent: str, seed: int, rounds: int) -> float:
    """Return the regret of one of our agents with its defaults at the stated epsilon and delta."""
    name, at, trust = agent.partition("@")
    budget = f"eps={setting.epsilon!r},delta={setting.delta!r}{at}{trust}"
    info = replace(setting.info, horizon=rounds)
    session = serve(name, budget, info, noise="seeded", seed=seed, warm=False)
    world = setting.open(seed, rounds)
    total = 0.0
    low, high = info.reward_range
    arms = None if info.n_arms is None else np.arange(info.n_arms)
    for _ in range(rounds):
        features = np.asarray(setting.scale * world.features, np.float32)
        number, arm = session.decide(features, arms=arms)
        reward, regret = world.play(int(arm))
        session.observe(number, min(max(reward, low), high))
        total += regret
    return total


def outside(
    world: str, folder: str | Path, *, runs: int = 3, rounds: int | None = None
) -> Iterator[dict[str, Any]]:
    """Play a published world and yield a row per setting and agent.

    Args:
        world: A name of `WORLDS`.
        folder: Clone of its repository.
        runs: Replicates, with seeds 0, 1, ...
        rounds: Rounds of each; the published horizon by default.

    Yields:
        Plain values: ``setting``, ``agent``, ``trust``, ``stated`` and ``true`` epsilon (None if
        unbounded), ``rounds``, ``regret``, ``sd`` (None for one run), ``runs``, ``by``.

    Raises:
        UnknownNameError: If there is no such world.
        DataError: If a file of the world is missing.
    """
    if world not in WORLDS:
        raise unknown_name("world", world, WORLDS)
    validation.integer("runs", runs, 1)
    _, make, settings = WORLDS[world]
    for name, arguments in settings.items():
        setting = make(Path(folder), *arguments)
        T = setting.rounds if rounds is None else rounds
        common = {"setting": name, "stated": setting.epsilon, "rounds": T}
        for agent, rival in setting.rivals.items():
            regrets = _regrets(rival.regret, T, runs)
            said = {"agent": agent, "by": "authors", "trust": rival.trust}
            yield common | said | _row(rival.true, regrets)
        if setting.rounds == T:
            for agent, value in setting.published.items():
                said = {"agent": f"{agent}, published", "by": "authors", "trust": ""}
                true = setting.rivals[agent].true if agent in setting.rivals else math.inf
                yield common | said | _row(true, [value])
        for trust, agents in setting.ours.items():
            for agent in agents:
                regrets = _regrets(partial(play, setting, agent), T, runs)
                said = {"agent": agent, "by": "us", "trust": trust}
                yield common | said | _row(setting.epsilon, regrets)


def _regrets(play: Callable[[int, int], float], rounds: int, runs: int) -> list[float]:
    """Return the regret of every run; what the authors' code prints goes to standard error."""
    with redirect_stdout(sys.stderr):
        return [play(seed, rounds) for seed in range(runs)]


def _row(true: float, regrets: list[float]) -> dict[str, Any]:
    return {
        "true": None if math.isinf(true) else true,
        "regret": float(np.mean(regrets)),
        "sd": float(np.std(regrets, ddof=1)) if len(regrets) > 1 else None,
        "runs": len(regrets),
    }
