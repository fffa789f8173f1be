"""MABWiser: LinUCB and LinGreedy choose the same arms as ours, round by round."""

import numpy as np
from mabwiser.mab import MAB, LearningPolicy
from rows import attempt

import dpb_gym
from dpb_gym.problems.base import Context, Feedback
from dpb_gym.problems.rounds import ProblemInfo
from dpb_gym.streams import AgentStreams

DIM, ARMS, ROUNDS = 4, 5, 400


def same(theirs, ours):
    """Play both on one stream; arms have ridge regressions of their own ("disjoint")."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(ARMS, DIM))
    info = ProblemInfo("recommendation", ROUNDS, ARMS * DIM, (0.0, 1.0), n_candidates=ARMS)
    agent = dpb_gym.make_agent(*ours[:1], **ours[1])
    agent.set_up(info, AgentStreams([0]))
    other = MAB(list(range(ARMS)), theirs, seed=0)
    equal = 0
    first = rng.normal(size=(ARMS, DIM))
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    for t in range(1, ROUNDS + 1):
        x = rng.normal(size=DIM)
        x = first[t - 1] if t <= ARMS else x / np.linalg.norm(x)
        features = np.kron(np.eye(ARMS), x).astype(np.float32).astype(np.float64)
        context = Context(t, features[None])
        mine = int(agent.act(context)[0])
        arm = t - 1 if t <= ARMS else int(np.argmax(score(other, x)))
        if t > ARMS:
            equal += mine == arm
        reward = float(rng.random() < 1 / (1 + np.exp(-theta[arm] @ x)))
        agent.observe(context, np.array([arm]), Feedback(np.array([reward])))
        (other.fit if t == 1 else other.partial_fit)(np.array([arm]), np.array([reward]), x[None])
    assert equal == ROUNDS - ARMS, f"{equal} of {ROUNDS - ARMS} choices are the same"
    return f"{equal} of {equal} choices are the same"


def score(mab, x):
    expectations = mab.predict_expectations(x[None])
    return [expectations[arm] for arm in range(ARMS)]


attempt(
    "MABWiser LinUCB", "the same choices as lin-ucb",
    lambda: same(LearningPolicy.LinUCB(alpha=0.7, l2_lambda=1.0), ("lin-ucb", {"alpha": 0.7})),
)  # fmt: skip
attempt(
    "MABWiser LinGreedy", "the same choices as lin-greedy",
    lambda: same(
        LearningPolicy.LinGreedy(epsilon=0.0, l2_lambda=1.0), ("lin-ucb", {"alpha": 0.0}),
    ),
)  # fmt: skip
