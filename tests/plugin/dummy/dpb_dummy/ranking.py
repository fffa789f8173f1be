"""A third-party kind of problems, ranking: K of N results in order, one is clicked."""

import gymnasium
import numpy as np

import dpb_gym
from dpb_gym.envs.actions import ActionMode
from dpb_gym.errors import ActionError
from dpb_gym.problems import Context, Feedback, Kind, Problem, ProblemInfo
from dpb_gym.problems.base import Field, Round
from dpb_gym.streams import Stream


class Ordering(ActionMode):
    def __init__(self, info):
        self.space = gymnasium.spaces.MultiDiscrete([info.n_items] * info.capacity)

    def decode(self, actions, replicates=None):
        return self.batch(actions, replicates, True, "ranking")


class Ranking(Kind):
    """K of N results in order; the customer clicks the first relevant one from the top."""

    name = "ranking"
    response = "choice"
    called = "rankings"
    actions = Ordering

    def feature_shape(self, info):
        return info.n_items, info.dim

    def action_shape(self, info):
        return (info.capacity,)

    def random(self, info, uniforms):
        return np.minimum((uniforms * info.n_items).astype(np.int64), info.n_items - 1)


class Search(Problem):
    """Ranking with results that are relevant with probability sigmoid(<x, theta>), independently.

    Args:
        horizon: Rounds T.
        n_items: N.
        capacity: K.
        dim: Dimension d.
    """

    def __init__(self, horizon=1000, n_items=8, capacity=3, dim=4):
        self.horizon, self.dim, self.feature_bound = horizon, dim, 1.0
        self.info = ProblemInfo(
            "ranking", horizon, dim, (0.0, 1.0), n_items=n_items, capacity=capacity
        )

    def draw_hidden(self, rng):
        return {"theta": 3.0 * rng.standard_normal(self.dim)}

    def fields(self):
        shape = (self.info.n_items, self.dim)
        return {"features": Field(shape, np.float32, Stream.FEATURES, self.draw_features)}

    def draw_features(self, rng, start, hidden, out):
        rng.random(out=out, dtype=np.float32)

    def make_round(self, hidden, drawn, t):
        return Round(Context(int(t[0]), drawn["features"]), drawn["response"], {})

    def pleasing(self, hidden, round_):
        utility = (round_.context.features * hidden["theta"][:, None, :]).sum(axis=2) - 1.0
        return 1.0 / (1.0 + np.exp(-utility))

    def respond(self, hidden, round_, action):
        if ((action < 0) | (action >= self.info.n_items)).any():
            raise ActionError(f"results are 0..{self.info.n_items - 1}, got {action.tolist()}")
        chances = np.take_along_axis(self.pleasing(hidden, round_), action, axis=1)
        for k in range(1, action.shape[1]):  # repeated results count once
            chances[:, k] *= ~(action[:, :k] == action[:, k : k + 1]).any(axis=1)
        clicked = 1.0 - np.cumprod(1.0 - chances, axis=1)
        choice = (round_.uniform[:, None] >= clicked).sum(axis=1)
        choice = np.where(choice < action.shape[1], choice, -1)
        return Feedback((choice >= 0).astype(float), choice=choice), clicked[:, -1]

    def best_action(self, hidden, round_):
        chances = self.pleasing(hidden, round_)
        order = np.argsort(-chances, axis=1, kind="stable")[:, : self.info.capacity]
        best = np.take_along_axis(chances, order, axis=1)
        return order, (1.0 - np.cumprod(1.0 - best, axis=1))[:, -1]


dpb_gym.register_kind(Ranking())
dpb_gym.register_environment(
    "Dummy/Search-v0", "dpb_dummy.ranking:Search", kind="ranking", summary="Search results"
)


@dpb_gym.register_agent("dummy-ranker", supports=["ranking"])
class Ranker(dpb_gym.SingleAgent):
    """Rank by ridge regression of clicks plus a bonus for rarely seen directions."""

    def begin(self):
        self.gram, self.clicks = np.eye(self.problem.dim), np.zeros(self.problem.dim)

    def act(self, context):
        inverse = np.linalg.inv(self.gram)
        width = np.sqrt(np.einsum("nd,de,ne->n", context.features, inverse, context.features))
        score = context.features @ inverse @ self.clicks + 0.3 * width
        return np.argsort(-score)[: self.problem.capacity]

    def observe(self, context, action, feedback):
        seen = self.problem.capacity if feedback.choice < 0 else feedback.choice + 1
        for place in range(seen):
            x = context.features[action[place]]
            self.gram += np.outer(x, x)
            self.clicks += (place == feedback.choice) * x
