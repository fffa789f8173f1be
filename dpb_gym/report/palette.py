"""One colour per agent, in a light and a dark shade."""

from __future__ import annotations

import math
from collections.abc import Iterable

from dpb_gym.report.grouping import REFERENCES
from dpb_gym.report.model import TaskResult

_PAIRS: tuple[tuple[str, str], ...] = (
    ("#1f5fb4", "#6fa9f2"),
    ("#c2540a", "#f09a52"),
    ("#1d7d4a", "#58c28c"),
    ("#a92f78", "#e985be"),
    ("#6a48c2", "#ac97f5"),
    ("#0b7c89", "#4bc0cd"),
    ("#b92f38", "#f2847f"),
    ("#857000", "#cdb23c"),
    ("#7b5139", "#c8a188"),
    ("#55770f", "#a3c552"),
)
_NEUTRAL = ("#6b7280", "#98a2b0")
_GOLDEN_ANGLE = 137.50776405


def _oklch(lightness: float, chroma: float, hue: float) -> str:
    """Converts an OKLCH colour to sRGB hex (Ottosson 2020), clipping to the gamut."""
    a, b = (chroma * f(math.radians(hue)) for f in (math.cos, math.sin))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    channels = []
    for value in linear:
        value = min(1.0, max(0.0, value))
        gamma = 12.92 * value if value <= 0.0031308 else 1.055 * value ** (1 / 2.4) - 0.055
        channels.append(f"{round(255 * gamma):02x}")
    return "#" + "".join(channels)


def colours(tasks: Iterable[TaskResult]) -> dict[str, tuple[str, str]]:
    """Gives each agent label a (light theme, dark theme) pair of hex colours.

    The same label has the same colour on every task; references are grey. After the hand-picked
    pairs, hues follow the golden angle.
    """
    result: dict[str, tuple[str, str]] = {}
    taken = 0
    for task in tasks:
        for row in task.rows:
            if row.agent in result:
                continue
            if row.name in REFERENCES:
                result[row.agent] = _NEUTRAL
                continue
            if taken < len(_PAIRS):
                result[row.agent] = _PAIRS[taken]
            else:
                hue = (20 + _GOLDEN_ANGLE * taken) % 360
                shift = 0.06 * (taken % 3 - 1)
                result[row.agent] = (
                    _oklch(0.54 + shift, 0.13, hue),
                    _oklch(0.76 + shift, 0.12, hue),
                )
            taken += 1
    return result
