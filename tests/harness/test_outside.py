"""Published worlds: built by path from files, played by their agents and ours, true epsilons."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from dpb_gym import cli, outside
from dpb_gym.errors import DataError, ParameterError, UnknownNameError

# A world of our own with the names of the published file: arm 1 is best, agents play one arm.
ARMS = """
import numpy as np

class GaussBandit:
    def __init__(self, mu, epsilon, seed=None):
        self.mu, self.seed = np.sort(mu)[::-1], seed
        print("Best arm =", 0)
    def reset_random(self):
        self.random = np.random.RandomState(self.seed)
    def randomize(self):
        self.drawn = self.random.normal(self.mu, 0.1)
    def reward(self, arm):
        return self.drawn[arm]
    def pregret(self, arm):
        return self.mu.max() - self.mu[arm]

class DPSE:
    def __init__(self, env, rounds, options):
        self.options, self.seen = options, 0
    def get_arm(self, t):
        return 9
    def update(self, t, arm, reward):
        self.seen += 1

class BatchSEDistDP(DPSE):
    def get_arm(self, t):
        return 0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "MABPrivate.py").write_text(ARMS)
    return tmp_path


@pytest.fixture
def one_setting(monkeypatch: Any) -> None:
    source, make, _ = outside.WORLDS["private-arms"]
    monkeypatch.setitem(outside.WORLDS, "private-arms", (source, make, {"one": (1.0, 0.5)}))


@pytest.mark.slow
def test_rows_have_their_agents_and_ours(folder: Path, one_setting: None) -> None:
    """Regrets of constant agents are known; ours learns; equal seeds give equal rows."""
    rows = list(outside.outside("private-arms", folder, runs=2, rounds=2000))
    regret = {row["agent"]: row["regret"] for row in rows}
    spread = [np.ptp(0.5 * np.random.RandomState(seed).rand(10)) for seed in (0, 1)]
    assert regret["DPSE"] == pytest.approx(2000 * np.mean(spread))
    assert regret["BatchSEDistDP"] == 0.0
    assert 0.0 < regret["one-pass-linear"] < 0.5 * regret["DPSE"]
    assert {row["agent"]: row["true"] for row in rows} == {
        "DPSE": None, "BatchSEDistDP": 1.0, "one-pass-linear": 1.0,
        "one-pass-linear@aggregator": 1.0,
    }  # fmt: skip
    curator, aggregator = (regret[f"one-pass-linear{at}"] for at in ("", "@aggregator"))
    assert curator < aggregator < 0.9 * regret["DPSE"]
    assert {row["by"] for row in rows} == {"authors", "us"} and rows[0]["sd"] > 0
    assert rows == list(outside.outside("private-arms", folder, runs=2, rounds=2000))
    assert "MABPrivate" not in sys.modules and str(folder) not in sys.path


def test_our_agents_have_the_trust_model_of_their_rows(folder: Path, monkeypatch: Any) -> None:
    """The guarantee of the session that plays says the same as the row."""
    notions, serve = [], outside.serve

    def listen(*args: Any, **options: Any) -> Any:
        session = serve(*args, **options)
        notions.append(session.guarantee.notion)
        return session

    monkeypatch.setattr(outside, "serve", listen)
    rows = outside.outside("private-arms", folder, runs=1, rounds=50)
    trusts = [row["trust"] for row in rows if row["by"] == "us"]
    assert trusts == [notion.replace("aggregate", "aggregator") for notion in notions]
    assert set(trusts) == {"central", "aggregator"}


@pytest.mark.parametrize("world", list(outside.WORLDS))
def test_missing_files_are_named(world: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=str(tmp_path)):
        next(outside.outside(world, tmp_path, rounds=100))


def test_bad_input_is_refused(folder: Path) -> None:
    with pytest.raises(UnknownNameError, match="private-arms"):
        next(outside.outside("private-arm", folder))
    with pytest.raises(ParameterError, match="runs"):
        next(outside.outside("private-arms", folder, runs=0))
    (folder / "MABPrivate.py").write_text("import a_package_that_nobody_has\n")
    with pytest.raises(DataError, match="a_package_that_nobody_has"):
        next(outside.outside("private-arms", folder))


def test_the_command_prints_the_rows(folder: Path, one_setting: None, capsys: Any) -> None:
    words = ["outside", "private-arms", str(folder), "--runs", "1", "--rounds", "200"]
    assert cli.run(words) == 0
    assert "unbounded" in capsys.readouterr().out
    assert cli.run([*words, "--json"]) == 0
    (first, *_) = json.loads(capsys.readouterr().out)
    assert first["agent"] == "DPSE" and first["true"] is None and first["sd"] is None


# ------------------------------------------------------------------ true epsilons


@pytest.mark.parametrize("distance", [0.3, 1.0, 4.0])
def test_epsilon_is_that_of_the_gaussian_curve(distance: float) -> None:
    """Against the closed form of the trade-off of two Gaussians."""
    epsilon = outside.gaussian_epsilon(distance, 0.01)
    delta = norm.cdf(distance / 2 - epsilon / distance) - math.exp(epsilon) * norm.cdf(
        -distance / 2 - epsilon / distance
    )
    assert delta == pytest.approx(0.01, rel=1e-3)


def sent(x: Any, r: float) -> Any:
    """Return r x and x x' as one vector, in whose norm symmetric noise is isotropic."""
    return np.concatenate([r * x, np.outer(x, x).ravel()])


def changes(make: Any, tries: int = 4000) -> list[float]:
    rng = np.random.default_rng(0)
    units = rng.normal(size=(tries, 2, 4))
    units /= np.linalg.norm(units, axis=2, keepdims=True)
    units[::2, 1] = -units[::2, 0]  # the adversary's choice
    return [make(rng, u, v) for u, v in units]


def test_distances_by_search_over_records() -> None:
    """sqrt(12) with a bias coordinate, and sqrt(6) for records in the unit ball, are upper bounds.

    sqrt(10) has a third message, the gradient.
    """

    def biased(rng: Any, u: Any, v: Any) -> float:
        first, second = rng.integers(0, 2, 2)
        x, y = np.append(u, 1.0), np.append(v, 1.0)
        return float(np.linalg.norm(sent(x, first) - sent(y, second)))

    def ball(rng: Any, u: Any, v: Any) -> float:
        first, second = rng.choice([-1.0, 1.0], 2)
        return float(np.linalg.norm(sent(u, first) - sent(v, second)))

    def logistic(rng: Any, u: Any, v: Any) -> float:
        theta = rng.normal(size=4)
        theta /= np.linalg.norm(theta)
        first, second = rng.integers(0, 2, 2)
        parts = [sent(x, x @ theta) for x in (u, v)]
        slopes = [(1 / (1 + math.exp(-x @ theta)) - r) * x for x, r in ((u, first), (v, second))]
        return math.hypot(*(np.linalg.norm(p[0] - p[1]) for p in (parts, slopes)))

    distances = changes(biased)
    assert 0.999 * math.sqrt(12) < max(distances) <= math.sqrt(12) + 1e-9
    assert max(changes(ball)) <= math.sqrt(6) + 1e-9
    assert max(changes(logistic)) <= math.sqrt(10) + 1e-9


def test_a_world_without_its_ratings_names_the_file(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "dataset.py").write_text("MovieLensEnv = None")
    (source / "linucb.py").write_text("LinUCB = None")
    with pytest.raises(DataError, match=r"ua\.base is missing: place MovieLens"):
        next(outside.outside("ldp-ratings", tmp_path, rounds=100))
