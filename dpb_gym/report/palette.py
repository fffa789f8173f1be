"""One colour per agent, in a light and a dark shade.

Every shade has a contrast of at least 4.5 on its background. The first eight stay apart for
readers with protanopia or deuteranopia (distance at least 0.09 in OKLab).
"""

from __future__ import annotations

import math

_PAIRS: tuple[tuple[str, str], ...] = (
    ("#162870", "#6db6f9"),
    ("#783a16", "#fba65d"),
    ("#3a7062", "#8cfeb1"),
    ("#b847a6", "#c665ae"),
    ("#482ead", "#8775fd"),
    ("#897217", "#bd8325"),
    ("#115261", "#70eafc"),
    ("#501d27", "#e190a3"),
)
_NEUTRAL = ("#5b6370", "#98a2b0")
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


def shade(index: int | None) -> tuple[str, str]:
    """The (light theme, dark theme) pair of hex colours of the agent with this number.

    After the hand-picked pairs, hues follow the golden angle. None is grey.
    """
    if index is None:
        return _NEUTRAL
    if index < len(_PAIRS):
        return _PAIRS[index]
    hue, shift = (20 + _GOLDEN_ANGLE * index) % 360, 0.06 * (index % 3)
    return _oklch(0.40 + shift, 0.13, hue), _oklch(0.72 + shift, 0.12, hue)
