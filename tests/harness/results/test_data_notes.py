"""What protects the users who made the item features stands beside the agents' guarantees."""

from __future__ import annotations

import dpb_gym


def test_notes_say_who_made_the_features(capsys):
    kwargs = {"data": "synthetic-jester", "dim": 5}
    for own, wanted in (
        ({}, "who are not protected"),
        ({"feature_epsilon": 2.0}, "central DP eps=2 at delta=1e-05"),
    ):
        result = dpb_gym.evaluate(
            "DPB/JesterReplay-v0", "random", horizon=5, replicates=1, env_kwargs={**kwargs, **own}
        )
        (note,) = [n for n in result.to_leaderboard().notes if "item features" in n]
        assert wanted in note
        result.table()
        printed = " ".join(capsys.readouterr().out.split())
        assert wanted in printed


def test_other_environments_have_no_such_note():
    result = dpb_gym.evaluate("DPB/Recommendation-v0", "random", horizon=5, replicates=1)
    assert not [n for n in result.to_leaderboard().notes if "features" in n]
