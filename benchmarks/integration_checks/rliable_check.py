"""rliable: its aggregates of our exports are those of our leaderboard."""

import numpy as np
from rliable import library, metrics
from rows import attempt, difference

import dpb_gym

AGENTS = {"ours": ("one-pass-pricing", "rho=1"), "free": "greedy-pricing", "random": "random"}


def scores():
    result = dpb_gym.evaluate("DPB/Pricing-v0", AGENTS, 200, 8, progress=False)
    return result, {name: result.final_regret(name)[:, None] for name in AGENTS}


def aggregates():
    result, by_agent = scores()
    frame = result.to_frame().set_index("agent")
    iqms = [metrics.aggregate_iqm(by_agent[name]) for name in AGENTS]
    means = [metrics.aggregate_mean(by_agent[name]) for name in AGENTS]
    said = difference([frame.loc[name, "iqm_regret"] for name in AGENTS], iqms)
    difference([frame.loc[name, "regret"] for name in AGENTS], means)
    return f"IQM and mean of final_regret; {said}"


def intervals():
    _, by_agent = scores()
    iqm = lambda x: np.array([metrics.aggregate_iqm(x)])  # noqa: E731
    _, ends = library.get_interval_estimates(by_agent, iqm, reps=200)
    assert all(np.isfinite(value).all() for value in ends.values())
    return "bootstrap intervals of final_regret"


attempt("rliable metrics", "IQM and mean of an export", aggregates)
attempt("rliable get_interval_estimates", "bootstrap of an export", intervals)
