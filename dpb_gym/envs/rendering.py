"""Rendering of rounds as pictures and tables: offers, choices, and regret so far.

Utilities and hidden parameters are never shown.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from dpb_gym.problems.base import Array, Context, Feedback, Problem
from dpb_gym.problems.kinds import Display, kind_of

MODES = ("ansi", "rgb_array")
WIDTH = 480
HEIGHT = 320
MOST_ROWS = 12
MOST_FEATURES = 6
IDLE = "#c8cdd2"
PICKED = "#4285be"
WON = "#2ea05a"
CURVE = "#c8503c"
AXIS = "#8a9096"
INK = "#20262c"


class Screen:
    """Display of the rounds of replicate i of a batch."""

    def __init__(self, problem: Problem, i: int) -> None:
        self._problem, self._kind, self._i = problem, kind_of(problem.info.kind), i
        self._rows: Display = []
        self._curve: list[float] = []
        self._reward: float | None = None

    def show(
        self,
        context: Context,
        action: Array | None = None,
        feedback: Feedback | None = None,
        regret: float = 0.0,
    ) -> None:
        """Show a new customer, or with `action` and `feedback` a finished round."""
        answers = [None if v is None else v[self._i] for v in feedback or ()]
        answer = None if feedback is None else Feedback(*answers)  # type: ignore[arg-type]
        choice = None if action is None else np.array(action[self._i])
        seen = context.each(lambda v: np.array(v[self._i]))
        self._rows = self._kind.rows(seen, choice, answer)
        if answer is None:
            self._curve, self._reward = [], None
        else:
            self._reward = float(answer.reward)
            self._curve.append((self._curve[-1] if self._curve else 0.0) + regret)

    @property
    def title(self) -> str:
        """Round number, reward and regret so far, in one line."""
        if self._reward is None:
            return f"round 1 of {self._problem.horizon}: a customer waits"
        return (
            f"round {len(self._curve)} of {self._problem.horizon}: reward {self._reward:.3g}, "
            f"regret so far {self._curve[-1]:.3f}"
        )

    def ansi(self) -> str:
        """Return the round as a table."""
        from dpb_gym.report.notebook import aligned

        shown = self._shown()
        cells = [["", "value", "features", ""]]
        for row in shown:
            features = [f"{x:6.2f}" for x in row.features[:MOST_FEATURES]]
            more = " ..." if len(row.features) > MOST_FEATURES else ""
            value = "" if row.value is None else f"{row.value:.3f}"
            cells.append([row.name, value, " ".join(features) + more, row.mark])
        lines = aligned(cells)
        if len(shown) < len(self._rows):
            lines.append(f"... and {len(self._rows) - len(shown)} more")
        return "\n".join([self.title, *lines]) + "\n"

    def _shown(self) -> Display:
        marked = [row for row in self._rows if row.mark]
        return (self._rows if len(self._rows) <= MOST_ROWS else marked or self._rows)[:MOST_ROWS]

    def rgb_array(self) -> Array:
        """Return the round (left) and the regret so far (right): uint8 ``(320, 480, 3)``."""
        picture = Picture(HEIGHT, WIDTH)
        picture.text(WIDTH // 2, 14, self.title, size=11, across=0.5)
        self._draw_offer(picture, self._shown())
        self._draw_regret(picture)
        return picture.pixels()

    def _draw_offer(self, picture: Picture, shown: Display) -> None:
        """Draw one bar per row; its height is the row's value."""
        left = 40
        right = 236
        top = 52
        bottom = 240
        marks = [row.mark for row in shown if row.mark and not row.mark.startswith("offered")]
        waiting = "nothing bought" if self._curve else ""
        picture.text((left + right) // 2, 38, (marks or [waiting])[0], size=10, across=0.5)
        picture.frame(left, top, right, bottom)
        for value in (0.0, 0.5, 1.0):
            y = round(bottom - value * (bottom - top))
            picture.text(left - 5, y, f"{value:g}", size=9, across=1.0)
        step = (right - left) / max(1, len(shown))
        for i, row in enumerate(shown):
            value = min(1.0, max(0.02, 1.0 if row.value is None else row.value))
            colour = WON if row.success else PICKED if row.mark else IDLE
            begin = round(left + (i + 0.15) * step)
            end = round(left + (i + 0.85) * step)
            picture.fill(begin, round(bottom - value * (bottom - top)), end, bottom, colour)
            picture.text((begin + end) // 2, bottom + 6, row.name, size=9, upright=True)

    def _draw_regret(self, picture: Picture) -> None:
        """Draw the cumulative regret up to the current round, over all rounds of the horizon."""
        left = 286
        right = 466
        top = 52
        bottom = 240
        horizon = self._problem.horizon
        curve = [0.0, *self._curve]
        most = max(curve) or 1.0
        picture.text((left + right) // 2, 38, "regret so far", size=10, across=0.5)
        picture.frame(left, top, right, bottom)
        picture.text(left - 5, bottom, "0", size=9, across=1.0)
        picture.text(left - 5, top, f"{most:.3g}", size=9, across=1.0)
        picture.text(left, bottom + 12, "0", size=9, across=0.5)
        picture.text(right, bottom + 12, f"{horizon:,}", size=9, across=1.0)
        last = left + (right - left) * (len(curve) - 1) / horizon
        columns = np.arange(left, math.ceil(last) + 1)
        rounds = (columns - left) * horizon / (right - left)
        heights = np.interp(rounds, np.arange(len(curve)), curve)
        picture.line(columns, bottom - heights / most * (bottom - top), CURVE)


class Picture:
    """A white picture on which a screen draws; far faster than a figure of Matplotlib.

    Coordinates are pixels, x to the right and y downwards.

    Args:
        height: Pixels.
        width: Pixels.
    """

    def __init__(self, height: int, width: int) -> None:
        self._pixels = np.full((height, width, 3), 255.0)

    def pixels(self) -> Array:
        """Return the picture, uint8 ``(height, width, 3)``."""
        return np.asarray(np.rint(self._pixels).astype(np.uint8))

    def fill(self, left: int, top: int, right: int, bottom: int, colour: str) -> None:
        """Fill a rectangle."""
        self._pixels[top:bottom, left:right] = _rgb(colour)

    def frame(self, left: int, top: int, right: int, bottom: int) -> None:
        """Draw the two axes of a plot."""
        self.fill(left - 1, top, left, bottom + 1, AXIS)
        self.fill(left - 1, bottom, right, bottom + 1, AXIS)

    def line(self, columns: Array, heights: Array, colour: str) -> None:
        """Draw a line through y = `heights` at x = `columns`, consecutive integers."""
        y = np.arange(self._pixels.shape[0])[:, None]
        # a steep step covers all rows between two columns
        before = np.concatenate([heights[:1], heights[:-1]])
        low = np.minimum(before, heights) - 1.0
        high = np.maximum(before, heights) + 1.0
        cover = np.clip(np.minimum(y + 0.5 - low, high - (y - 0.5)), 0.0, 1.0)
        self._blend(0, int(columns[0]), cover, colour)

    def text(
        self,
        x: int,
        y: int,
        text: str,
        *,
        size: int,
        across: float = 0.5,
        upright: bool = False,
    ) -> None:
        """Write a line of text.

        Args:
            x: Place of its left end, centre or right end, see `across`.
            y: Its middle, or with `upright` its end.
            text: The text.
            size: Height of the letters in pixels.
            across: 0 to begin at x, 0.5 to be centred there, 1 to end there.
            upright: Whether to write upwards.
        """
        if not text:
            return
        cover = _letters(text, size)
        if upright:
            cover = np.rot90(cover)
        height, width = cover.shape
        top = y if upright else y - height // 2
        left = round(x - (0.5 if upright else across) * width)
        self._blend(top, left, cover, INK)

    def _blend(self, top: int, left: int, cover: Array, colour: str) -> None:
        """Mix a colour into the picture; parts outside of it are cut off."""
        height, width = self._pixels.shape[:2]
        cut = cover[max(0, -top) : height - top, max(0, -left) : width - left, None]
        top = max(0, top)
        left = max(0, left)
        place = self._pixels[top : top + cut.shape[0], left : left + cut.shape[1]]
        place += cut * (_rgb(colour) - place)


@functools.lru_cache(maxsize=256)
def _letters(text: str, size: int) -> Array:
    """Return the cover of each pixel of a text, in [0, 1]."""
    from matplotlib import get_data_path
    from matplotlib.ft2font import FT2Font

    font = FT2Font(f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf")
    font.set_size(size, 72)
    font.set_text(text)
    font.draw_glyphs_to_bitmap(antialiased=True)
    return np.asarray(font.get_image(), dtype=np.float64) / 255.0


@functools.cache
def _rgb(colour: str) -> Array:
    """Return the three channels, 0 to 255, of a colour such as ``"#2ea05a"``."""
    return np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)], dtype=np.float64)
