"""Check of the propensities of a log."""

from __future__ import annotations

from dpb_gym.problems.base import Array

_ERRORS = 3.0
"""Standard errors by which a mean may differ from the expected one."""
_TOLERANCE = 0.02
"""Share of the expected mean by which a mean may differ however small its error is."""


def propensity_doubt(inverse: Array, expected: float, what: str) -> list[str]:
    """Return a doubt if propensities cannot be those of the logging policy.

    The mean of 1/p over rounds is the number of actions, if all have a positive propensity.

    Args:
        inverse: 1/p of the logged actions ``(n,)``.
        expected: Its mean for right propensities.
        what: What `expected` counts, such as ``"the number of candidates"``.
    """
    mean = float(inverse.mean())
    error = float(inverse.std()) / len(inverse) ** 0.5
    if abs(mean - expected) <= max(_ERRORS * error, _TOLERANCE * expected):
        return []
    return [
        f"wrong propensities: the mean of 1 / propensity is {mean:.4g} and should be "
        f"{expected:.4g}, {what}. Are they of the logged actions, and are all rounds there?"
    ]
