"""Plans of releases are computed once."""

from __future__ import annotations

from dpb_gym.privacy.releasers.release_schedule import ReleaseModel, Schedule

MODEL = ReleaseModel(1000, unit_noise=1.0, rate=0.2, spread=1.0, prior=0.5)


def test_a_plan_is_computed_once_and_cannot_be_changed():
    start = Schedule.geometric(1000, 20, 1.5, 1.0)
    for plan in (
        MODEL.batches(2.0),
        MODEL.batches(2.0, per_record=True),
        MODEL.running(start, 2.0),
    ):
        parts = plan.ends, plan.weights, plan.scales
        assert not any(part.flags.writeable for part in parts)
    assert MODEL.batches(2.0) is MODEL.batches(2.0)
    assert MODEL.running(start, 2.0) is MODEL.running(start, 2.0)


def test_other_inputs_have_other_plans():
    start = Schedule.geometric(1000, 20, 1.5, 1.0)
    plans = [
        MODEL.running(start, 2.0),
        MODEL.running(start, 3.0),
        MODEL.running(Schedule.geometric(1000, 20, 1.5, 0.5), 2.0),
        MODEL.running(Schedule.geometric(1000, 30, 1.5, 1.0), 2.0),
    ]
    assert len({plan.scales.tobytes() for plan in plans}) == 4
    assert len(MODEL.batches(2.0).ends) != len(MODEL.batches(2.0, per_record=True).ends)
