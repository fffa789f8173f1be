"""Logs of slates (rankings or sets of K items per round) and their estimators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import validation
from dpb_gym.agent import Agent
from dpb_gym.errors import AgentError, ParameterError, shown
from dpb_gym.offline.array_checks import distribution, features_of, optional, values
from dpb_gym.offline.collecting import Columns, draw_sets
from dpb_gym.offline.estimators import LIMITS, WEIGHTING, Terms, Weighted, cross_fitted
from dpb_gym.offline.log import Log, answers
from dpb_gym.problems.base import Array, Problem


@dataclass(frozen=True, eq=False)
class SlateProbabilities:
    """A policy's probabilities of the logged slates and of their parts.

    Attributes:
        slate: ``(n,)``, probability of the logged slate; for sets, of its items in any order.
        marginals: ``(n, K)``, probability of each item in its position; for sets, of showing it.
            None if unknown.
        prefixes: ``(n, K)``, probability of the first k logged items in their order. None if
            unknown, or for sets.
        conditional: ``(n, K, m)``, probability of every item in position k, given the logged items
            before it. None if unknown; ``cascade-dr`` needs it for targets.
    """

    slate: Array
    marginals: Array | None = None
    prefixes: Array | None = None
    conditional: Array | None = None

    @classmethod
    def of_ranking(
        cls, conditional: ArrayLike, slates: ArrayLike, marginals: ArrayLike | None = None
    ) -> SlateProbabilities:
        """Return the probabilities of a policy that fills the positions one by one.

        Args:
            conditional: See the class.
            slates: Logged items ``(n, K)``.
            marginals: ``(n, K)``. None for independent positions, where they equal the
                conditional ones.

        Raises:
            ParameterError: If the shapes disagree or a row of probabilities does not sum to one.
        """
        chosen = np.asarray(slates)
        given = np.asarray(conditional, dtype=np.float64)
        rows = distribution("conditional", given, (*chosen.shape, *given.shape[2:]))
        shown = np.take_along_axis(rows, chosen[:, :, None], axis=2)[:, :, 0]
        prefixes = np.cumprod(shown, axis=1)
        own = shown if marginals is None else values("marginals", marginals, chosen.shape, 0.0, 1.0)
        return cls(prefixes[:, -1], own, prefixes, rows)

    @classmethod
    def of_answers(cls, given: Array, log: SlateLog) -> SlateProbabilities:
        """Return the shares of a policy's S sampled slates per round, ``(S, n, K)``."""
        slates = log.actions
        if not log.ordered:
            same = (np.sort(given, axis=2) == np.sort(slates, axis=1)).all(axis=2)
            held = (given[:, :, :, None] == slates[:, None, :]).any(axis=2)
            return cls(same.mean(axis=0), held.mean(axis=0))
        agree = given == slates
        so_far = np.cumprod(agree, axis=2).astype(bool)
        before = np.concatenate([np.ones((*agree.shape[:2], 1), bool), so_far[:, :, :-1]], axis=2)
        items = np.arange(log.n_items)
        counts = ((given[..., None] == items) & before[..., None]).mean(axis=0)
        reached = counts.sum(axis=2, keepdims=True)
        # after items that the policy never shows, the value has weight 0
        conditional = np.where(reached > 0, counts / np.where(reached > 0, reached, 1.0),
                               1.0 / log.n_items)  # fmt: skip
        prefixes = so_far.mean(axis=0)
        return cls(prefixes[:, -1], agree.mean(axis=0), prefixes, conditional)

    def select(self, rounds: Any) -> SlateProbabilities:
        """Return the probabilities of some of the rounds."""
        kept: Any = {k: None if v is None else v[rounds] for k, v in vars(self).items()}
        return SlateProbabilities(**kept)


@dataclass(frozen=True, eq=False, kw_only=True)
class SlateWeights(Weighted):
    """Input of the slate estimators: weights of whole slates and of positions.

    Attributes:
        earned: Rewards by position ``(n, K)``.
        positions: Weights of items in their positions ``(n, K)``, or None.
        prefixes: Weights of the first k items ``(n, K)``, or None.
        q_shown: Q of the logged items ``(n, K)``.
        q_value: Mean of Q over the target's item in position k, after the logged ones before it
            ``(n, K)``.
    """

    earned: Array
    positions: Array | None
    prefixes: Array | None
    q_shown: Array
    q_value: Array


def _known(name: str, weights: Array | None) -> Array:
    if weights is None:
        raise ParameterError(
            f"this estimator needs the {name} of the log and of the target policy; see "
            "SlateProbabilities"
        )
    return weights


def _weighted(part: str, normalised: bool) -> Callable[[SlateWeights], Terms]:
    def terms(p: SlateWeights) -> Terms:
        w = _known(part, p.positions if part == "marginals" else p.prefixes)
        top = w * p.earned
        return Terms.ratio(top, w) if normalised else Terms.mean(top.sum(axis=1))

    return terms


def _cascade(p: SlateWeights) -> Terms:
    w = _known("prefixes", p.prefixes)
    before = np.concatenate([np.ones((len(w), 1)), w[:, :-1]], axis=1)
    return Terms.mean((w * (p.earned - p.q_shown) + before * p.q_value).sum(axis=1))


_WHOLE = ("logged", "ips", "snips", "switch-ips", "clipped-ips", "shrunk-ips")
SLATES: dict[str, Callable[[SlateWeights], Terms]] = {
    **{name: WEIGHTING[name] for name in _WHOLE},
    "independent-ips": _weighted("marginals", False),
    "independent-snips": _weighted("marginals", True),
    "interaction-ips": _weighted("prefixes", False),
    "interaction-snips": _weighted("prefixes", True),
    "cascade-dr": _cascade,
}
"""Estimators by name; each maps `SlateWeights` to `Terms`.

With w_k the weight of position k, the estimate is the mean
of sum_k w_k r_k. The ``snips`` forms divide by the mean weight of each position.

``ips``: w_k of the whole slate, unbiased for all customers. ``independent-ips``: w_k of the item
in its position, unbiased if its reward depends on nothing else (Li et al. 2018).
``interaction-ips``: w_k of the first k items, unbiased if a reward depends only on the items above
(McInerney et al. 2020). ``cascade-dr``: under the same condition, with a model Q of the
rewards from position k on: sum_k w_k (r_k - Q_k) + w_{k-1} E_pi[Q_k] (Kiyohara et al. 2022).
"""


@dataclass(frozen=True, eq=False, repr=False)
class SlateLog(Log):
    """n logged slates of K items out of m, with rewards by position and probabilities.

    Create it from arrays or with `from_problem`.

    Attributes:
        features: float32 ``(n, m, d)``, the items' features.
        actions: int64 ``(n, K)``, the items by position, in 0..m - 1.
        rewards: ``(n, K)``, reward by position; `reward_range` is that of one position.
        behaviour: The logging policy's probabilities.
        ordered: Whether positions matter; else slates are sets.
        revenues: ``(n, m)``, the items' revenues, public, or None.
    """

    features: Array
    actions: Array
    behaviour: SlateProbabilities
    rewards: Array
    reward_range: tuple[float, float]
    ordered: bool = True
    revenues: Array | None = None
    name: str = "log"

    kind: ClassVar[str] = "assortment"
    decide = staticmethod(draw_sets)
    estimators: ClassVar[Mapping[str, Any]] = SLATES
    usual: ClassVar[tuple[str, ...]] = ("ips", "snips", "independent-ips")
    options: ClassVar[tuple[str, ...]] = LIMITS

    @classmethod
    def of_rounds(cls, made: Problem, c: Columns, least: float | None, name: str) -> SlateLog:
        shares = SlateProbabilities(c["slate"], c["marginals"])
        return cls.from_arrays(
            c["features"], c["actions"], shares, c["rewards"], made.info.reward_range,
            ordered=False, revenues=c.get("revenues"), name=name,
        )  # fmt: skip

    def __post_init__(self) -> None:
        if not isinstance(self.behaviour, SlateProbabilities):
            given = shown(self.behaviour)
            raise ParameterError(f"behaviour must be SlateProbabilities, got {given}")
        ends = validation.span("reward_range", self.reward_range)
        x = features_of(self.features, 3)
        n, m, _ = x.shape
        actions = values("actions", self.actions, (n, None), 0, m - 1, dtype=np.int64)
        if not actions.size:
            raise ParameterError(f"a slate shows at least 1 item, got actions of {actions.shape}")
        twice = (np.diff(np.sort(actions, axis=1), axis=1) == 0).any()
        if not validation.flag("ordered", self.ordered) and twice:
            raise ParameterError("a set shows no item twice")
        parts = {
            part: optional(f"behaviour.{part}", given, actions.shape, 0.0, 1.0, positive=True)
            for part, given in vars(self.behaviour).items()
            if part in ("marginals", "prefixes")
        }
        slate = values("behaviour.slate", self.behaviour.slate, (n,), 0.0, 1.0, positive=True)
        self._keep(
            features=x, actions=actions, reward_range=ends,
            behaviour=SlateProbabilities(slate, **parts),
            rewards=values("rewards", self.rewards, actions.shape, *ends),
            revenues=optional("revenues", self.revenues, (n, m), dtype=np.float32),
        )  # fmt: skip

    def __repr__(self) -> str:
        n, K = self.actions.shape
        return f"SlateLog({self.name!r}: {n:,} rounds, {K} of {self.n_items} items)"

    @property
    def n_items(self) -> int:
        """Number of items m."""
        return int(self.features.shape[1])

    def target(
        self, policy: Agent | SlateProbabilities | ArrayLike, samples: int
    ) -> SlateProbabilities:
        """Return the target's probabilities of the logged slates.

        Args:
            policy: The probabilities, the target's slates ``(n, K)``, or a trained agent.
            samples: Choices per round of a random agent.
        """
        if isinstance(policy, SlateProbabilities):
            return policy
        if isinstance(policy, Agent):
            given = np.stack([answer[:, 0] for answer in answers(policy, [self], samples)], axis=1)
            if given.shape[1:] != self.actions.shape:
                raise AgentError(
                    f"{type(policy).__name__} shows slates of another size than the log's"
                )
            return SlateProbabilities.of_answers(given, self)
        fixed = values("target", policy, self.actions.shape, 0, self.n_items - 1, dtype=np.int64)
        return SlateProbabilities.of_answers(fixed[None], self)

    def predicted(self, **model: Any) -> Array:
        """Return a model Q of the rewards from each position on, for every item ``(n, K, m)``.

        Per position a cross-fitted ridge regression on the item's features and on the mean of
        those above it. Reads raw rewards: **not private**. See `Log.ingredients` for `model`.
        """
        n, K = self.actions.shape
        x = self.features.astype(np.float64)
        shown = np.take_along_axis(x, self.actions[:, :, None], axis=1)
        to_go = np.cumsum(self.rewards[:, ::-1], axis=1)[:, ::-1]
        predictions = np.empty((n, K, self.n_items))
        for k in range(K):
            above = shown[:, :k].mean(axis=1) if k else np.zeros((n, x.shape[2]))
            tiled = np.broadcast_to(above[:, None], x.shape)
            logged = np.concatenate([shown[:, k], above], axis=1)
            new = np.concatenate([x, tiled], axis=2)
            predictions[:, k] = cross_fitted(logged, to_go[:, k], new, **model)
        return predictions

    def inverse_propensities(self) -> tuple[Array, float, str] | None:
        marginals = self.behaviour.marginals
        if marginals is None:
            return None
        places = self.actions.shape[1] if self.ordered else 1
        what = "the number of items" + (" in all positions" if self.ordered else "")
        return np.sum(1.0 / marginals, axis=1), float(places * self.n_items), what

    def ingredients(
        self,
        target: SlateProbabilities,
        names: Sequence[str],
        q: ArrayLike | None,
        model: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> SlateWeights:
        """See `Log.ingredients`; `q` is Q ``(n, K, m)``, see `SLATES`."""
        n, K = self.actions.shape
        shape = (n, K, self.n_items)
        shown = value = zero = np.zeros((n, K))
        if "cascade-dr" in names:
            predicted = self.predicted(**model) if q is None else validation.array("q", q, shape)
            shown = np.take_along_axis(predicted, self.actions[:, :, None], axis=2)[:, :, 0]
            rows = _known("conditional probabilities", target.conditional)
            value = (distribution("target", rows, shape) * predicted).sum(axis=2)

        def weights(of: str) -> Array | None:
            own = getattr(target, of)
            theirs = getattr(self.behaviour, of)
            if own is None or theirs is None:
                return None
            ratios: Array = values(f"target.{of}", own, theirs.shape, 0.0, 1.0) / theirs
            return ratios

        whole = weights("slate")
        assert whole is not None
        low, high = self.reward_range
        return SlateWeights(
            weights=whole, rewards=self.rewards.sum(axis=1), reward_range=(K * low, K * high),
            model_value=zero[:, 0], model_shown=zero[:, 0], limits=options, earned=self.rewards,
            positions=weights("marginals"), prefixes=weights("prefixes"), q_shown=shown,
            q_value=value,
        )  # fmt: skip
