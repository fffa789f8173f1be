"""Rounds per second of other packages' LinUCB: d = 20, 5 arms, one stream.

Runs in an environment with the other package, without dpb-gym:

    python benchmarks/peer_linucb.py obp|river|mabwiser [--rounds 2000]

Open Bandit Pipeline 0.5.7 installs up to Python 3.10; its sources also run with 3.11. It needs
matplotlib < 3.9 and PyTorch, or empty modules in its place. All three have one ridge regression
per arm ("disjoint" LinUCB) and take one context per round.
"""

import argparse
import time

import numpy as np

DIM, ARMS = 20, 5


def obp():
    from obp.policy import LinUCB

    policy = LinUCB(dim=DIM, n_actions=ARMS, epsilon=1.0, random_state=0)

    def play(x, respond):
        x = x[None]
        action = int(policy.select_action(x)[0])
        policy.update_params(action=action, reward=respond(action), context=x)

    return play


def river():
    from river import bandit

    policy = bandit.LinUCBDisjoint(alpha=1.0, seed=0)
    arms = list(range(ARMS))

    def play(x, respond):
        context = dict(enumerate(x.tolist()))
        action = policy.pull(arms, context=context)
        policy.update(action, context, respond(action))

    return play


def mabwiser():
    from mabwiser.mab import MAB, LearningPolicy

    policy = MAB(list(range(ARMS)), LearningPolicy.LinUCB(alpha=1.0), seed=0)
    rng = np.random.default_rng(1)
    policy.fit(
        np.arange(ARMS), rng.integers(0, 2, ARMS).astype(float), rng.normal(size=(ARMS, DIM))
    )

    def play(x, respond):
        context = x[None]
        action = policy.predict(context)
        policy.partial_fit(np.array([action]), np.array([respond(action)]), context)

    return play


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=["obp", "river", "mabwiser"])
    parser.add_argument("--rounds", type=int, default=2000)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(ARMS, DIM))
    contexts = rng.normal(size=(args.rounds + 50, DIM))
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
    play = {"obp": obp, "river": river, "mabwiser": mabwiser}[args.peer]()
    start = 0.0
    for t, x in enumerate(contexts):
        if t == 50:
            start = time.process_time()
        means = 1.0 / (1.0 + np.exp(-theta @ x))
        play(x, lambda action, means=means: float(rng.random() < means[action]))
    print(args.rounds / (time.process_time() - start))


if __name__ == "__main__":
    main()
