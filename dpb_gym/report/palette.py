"""One colour per agent, in a light and a dark shade.

Every shade has a contrast of at least 4.5 on its background. The first eight are distinguishable
with protanopia and deuteranopia (distance at least 0.09 in OKLab).
"""

from __future__ import annotations

from colorsys import hls_to_rgb

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
_GOLDEN = 0.381966


def shade(index: int | None) -> tuple[str, str]:
    """Return the (light theme, dark theme) pair of hex colours of the agent with this number.

    Hues after the hand-picked pairs follow the golden angle. None is grey.
    """
    if index is None:
        return _NEUTRAL
    if index < len(_PAIRS):
        return _PAIRS[index]
    hue, step = (0.45 + _GOLDEN * index) % 1, index % 3
    return _hex(hue, 0.2 + 0.05 * step, 0.7), _hex(hue, 0.65 + 0.06 * step, 0.75)


def _hex(*colour: float) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in hls_to_rgb(*colour))
