"""The mechanism of a planned sum: that of its trust model, or randomised responses."""

from __future__ import annotations

import numpy as np

from dpb_gym.privacy.releasers.mechanisms import Mechanism, Randomised, likely_sigma
from dpb_gym.privacy.releasers.release_schedule import TOLERANCE
from dpb_gym.privacy.releasers.release_times import Planned, fixed
from dpb_gym.privacy.releasers.sum_state import SumState
from dpb_gym.privacy.releasers.trust_models import LOCAL, PLANNED, TrustModel


def least_regret(sums: SumState, trust: TrustModel, times: Planned) -> tuple[TrustModel, Mechanism]:
    """Return the trust model and mechanism of a planned sum with the least modelled regret.

    A budget for a curator, an aggregator or a shuffler admits what each device can do alone, too.
    So a sum of numbers along public directions has two candidates. Each spends the whole share:

    - The mechanism of `trust`. Release i has noise of standard deviation sigma / scales[i] in every
      coordinate. A curator's running sum has a record in many releases, at the weights of its
      `Schedule`. With an aggregator or a shuffler a record is in one batch.
    - `Randomised`. A number r in [-h, h] becomes c or -c with c = h coth(epsilon / 2). That adds
      noise of variance c^2 - h^2 to each record, along its direction alone. Where normal noise of
      the number is less, that is taken.

    Relation: replace-one, and neighbours differ in one reward. Sensitivity: 2 h, as directions are
    public and have norm at most 1; the second candidate is epsilon-private for any two numbers. The
    ledger charges the chosen candidate alone, and the guarantee has the notion of `trust`, which
    local privacy implies.

    Both are compared by `ReleaseModel.regret` at the variances of a coordinate of theta after each
    release (`Schedule.variances`). The model takes information as even over the coordinates. For
    the information h in a direction, noise of equal size in all of them leaves a variance of order
    1 / h^2, and the noise of signs 1 / h. Uneven information therefore costs the first candidate
    more, so `Randomised` is taken where its modelled regret is at most `TOLERANCE` larger. Among
    the budgets of the arena's recommendation-standard that is so at epsilon = 2 and 5, under all
    three trust models.

    The first candidate is kept for responses that are not known to be binary. A message has the
    variance c^2 - r^2 given r, which for a number inside the range exceeds that for its ends. It is
    also kept for an unknown horizon, since signs are better early and worse late.

    Args:
        sums: The sum, before its releases are planned.
        trust: Trust model of the budget.
        times: Planned releases.
    """
    own: Mechanism = PLANNED[trust.name]()
    alone = Randomised()
    model = times.model
    budget = sums.curator.budget
    if trust is LOCAL or budget is None or model is None:
        return trust, own
    if not model.binary or model.anytime:
        return trust, own
    if sums.curator.relation != "replace-one" or not alone.numbers_of(sums):
        return trust, own
    if not sums.counted or sums.records_per_unit > 1:
        return trust, own
    # the noise of other sums is not the one that is computed here
    if sums.printed_sigma is not None or sums.curator.ledger.inherited:
        return trust, own

    sigma = likely_sigma(sums)
    if trust.devices:
        schedule = own.plan(sums, model)
        rho = sums.curator.most_rho * sums.part
        stds = np.array([batch.sigma for batch in own.messages(sums, rho, schedule.sizes)])
    elif times.schedule is None:
        return trust, own
    else:
        schedule = fixed(times.schedule(sigma) if callable(times.schedule) else times.schedule)
        stds = np.full(len(schedule.ends), sigma)
    variances = schedule.variances(stds * model.unit_noise / model.rate, model.spread)
    regret = model.regret(schedule.ends, variances)

    responses = alone.plan(sums, model)
    variances = responses.variances(0.0, alone.spread_model(sums, model).spread)
    if model.regret(responses.ends, variances) <= (1.0 + TOLERANCE) * regret:
        return LOCAL, alone
    return trust, own
