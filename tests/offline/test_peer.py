"""Every estimator that Open Bandit Pipeline has, against its numbers on the same logs.

The numbers are those that its classes return for the logs of `log_helpers`.
"""

from __future__ import annotations

import numpy as np
import pytest
from log_helpers import estimate, normalised, small_log, small_prices, small_slates, wave

from dpb_gym.offline import LoggedData, PriceLog, SlateLog

RECOMMENDATION = {
    ("ips", None): 0.5035055852447062,
    ("snips", None): 0.47038650585020364,
    ("dm", None): 0.44959104309082587,
    ("dr", None): 0.4948860981691551,
    ("sndr", None): 0.49190672600471635,
    ("switch-dr", 0.5): 0.4413575696629555,
    ("switch-dr", 1.0): 0.4551372024361674,
    ("switch-dr", 2.0): 0.48877820649247655,
    ("clipped-ips", 1.5): 0.4246458190075484,
    ("clipped-dr", 1.5): 0.4842812240065829,
    ("shrunk-dr", 2.0): 0.4682678373363953,
}
LIMIT = {"switch": "threshold", "clipped": "clip", "shrunk": "shrinkage"}
MARGINALISED = {"mips": 0.5127988643316966, "snmips": 0.4914616203920201}
SLATES = {
    "ips": 2.790343551536197,
    "snips": 1.6014427857653075,
    "independent-ips": 2.3163202523879556,
    "independent-snips": 1.7215408389589644,
    "interaction-ips": 2.3425704280662587,
    "interaction-snips": 1.658527485356118,
    "cascade-dr": 2.2556990241695423,
}
PRICES = {
    "epanechnikov": (0.292678373922729, 0.3629992167693953, 0.39579428159695057),
    "triangular": (0.2991315322379769, 0.3329394026652544, 0.3651388609429663),
    "cosine": (0.29331274698646803, 0.3573677449925867, 0.38918926541847904),
    "gaussian": (0.30912878944354866, 0.37822374311933965, 0.40561456437152077),
}


@pytest.mark.parametrize(("name", "limit"), RECOMMENDATION)
def test_recommendations(name, limit):
    log, target, q = small_log()
    options = {} if limit is None else {LIMIT[name.split("-")[0]]: limit}
    ours = estimate(name, log, target, q=q, **options)
    assert ours == pytest.approx(RECOMMENDATION[name, limit], abs=1e-10)


@pytest.mark.parametrize("name", MARGINALISED)
def test_marginalised(name):
    plain, target, _ = small_log()
    behaviour = [normalised([0.2 + wave(i, 100 + k) for k in range(3)]) for i in range(40)]
    log = LoggedData.from_arrays(
        plain.features, plain.actions, None, plain.rewards, (0.0, 1.0), behaviour=behaviour
    )
    assert not log.estimated
    np.testing.assert_allclose(log.propensities, plain.propensities, rtol=1e-15)
    ours = estimate(name, log, target, groups=[0, 0, 1])
    assert ours == pytest.approx(MARGINALISED[name], abs=1e-10)


@pytest.mark.parametrize("name", SLATES)
def test_slates(name):
    logged, target, Q = small_slates()
    conditional = logged.pop("conditional")
    assert conditional.shape == Q.shape
    log = SlateLog.from_arrays(**logged, reward_range=(0.0, 1.0))
    ours = estimate(name, log, target, q=Q)
    assert ours == pytest.approx(SLATES[name], abs=1e-10)


@pytest.mark.parametrize("kernel", PRICES)
def test_prices(kernel):
    logged, target, q = small_prices()
    log = PriceLog.from_arrays(**logged, reward_range=(0.0, 1.0))
    options = {"kernel": kernel, "bandwidth": 0.2, "q": np.stack([q, q], axis=1)}
    for name, expected in zip(("ips", "snips", "dr"), PRICES[kernel]):
        ours = estimate(name, log, target, **options)
        assert ours == pytest.approx(expected, abs=1e-10), name
