"""Vowpal Wabbit: it learns from our log, and we read the same lines as it does."""

import json
import os
import tempfile

import numpy as np
import vowpalwabbit
from rows import attempt

from dpb_data.vowpal_wabbit import table
from dpb_gym.offline import collect

FOLDER = tempfile.mkdtemp()
PATH = os.path.join(FOLDER, "log.dsjson")
ROUNDS = 300


def write():
    """Write a log of ours as lines of JSON; returns it."""
    (log,) = collect("DPB/Recommendation-v0", ROUNDS, [0], dim=3, n_candidates=4)
    with open(PATH, "w") as file:
        for i in range(len(log.rewards)):
            actions = [{"i": dict(zip("abc", map(float, row)))} for row in log.features[i]]
            line = {
                "_label_cost": -float(log.rewards[i]),
                "_label_probability": float(log.propensities[i]),
                "_label_Action": int(log.actions[i]) + 1, "_labelIndex": int(log.actions[i]),
                "EventId": str(i), "a": [1, 2, 3, 4], "c": {"_multi": actions}, "p": [0.25] * 4,
            }  # fmt: skip
            file.write(json.dumps(line) + "\n")
    return log


def learns():
    write()
    vw = vowpalwabbit.Workspace(f"--cb_explore_adf --dsjson -d {PATH} --quiet")
    count = vw.get_weighted_examples()
    vw.finish()
    assert count == ROUNDS, count
    return f"--cb_explore_adf --dsjson learns from {int(count)} of {ROUNDS} rounds"


def reads():
    log = write()
    columns = table(PATH, item="i_a")
    np.testing.assert_allclose(columns["reward"], log.rewards)
    np.testing.assert_allclose(columns["propensity"], log.propensities)
    return f"{len(columns['item'])} rounds, rewards and propensities as logged"


attempt("Vowpal Wabbit", "reads a log of ours", learns)
attempt("Vowpal Wabbit", "its lines are read by dpb_data", reads)
