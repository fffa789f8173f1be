"""Pictures and tables of rounds: what was offered, what the customer chose, the regret so far.

Utilities and hidden parameters are never shown. Pictures are drawn with NumPy alone.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.problems.base import Array, Context, Feedback, Problem
from dpb_gym.problems.kinds import Seen, kind_of

MODES = ("ansi", "rgb_array")
WIDTH, HEIGHT = 480, 320
MOST_ROWS, MOST_FEATURES = 12, 6
INK, PAPER, IDLE, PICKED, WON, CURVE = (
    (40, 40, 40),
    (255, 255, 255),
    (200, 205, 210),
    (66, 133, 190),
    (46, 160, 90),
    (200, 80, 60),
)
LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ.-:,+/= "
# 3 x 5 pixels: five digits a letter, one per row, of three bits
GLYPHS = (
    "75557262277174771717557117471774757711227575775717257556565634443655567464774644345535575572227"
    "11152556554444757755755552555265644255736565534216722225555755552557755525555222712470000200700"
    "020200002402720112440707000000"
)


class Screen:
    """What the rounds of replicate i of a batch looked like."""

    def __init__(self, problem: Problem, i: int) -> None:
        self._problem, self._kind, self._i = problem, kind_of(problem.info.kind), i
        self._rows: list[Seen] = []
        self._curve: list[float] = []
        self._reward: float | None = None

    def show(
        self,
        context: Context,
        action: Array | None = None,
        feedback: Feedback | None = None,
        regret: float = 0.0,
    ) -> None:
        """Takes a customer who waits, or with `action` and `feedback` a round that was played."""
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
        """Round and regret so far, in one line."""
        if self._reward is None:
            return f"round 1 of {self._problem.horizon}: a customer waits"
        return (
            f"round {len(self._curve)} of {self._problem.horizon}: reward {self._reward:.3g}, "
            f"regret so far {self._curve[-1]:.3f}"
        )

    def ansi(self) -> str:
        """The round as a table."""
        shown = self._shown()
        cells = [["", "worth", "features", ""]]
        for row in shown:
            features = [f"{x:6.2f}" for x in row.features[:MOST_FEATURES]]
            more = " ..." if len(row.features) > MOST_FEATURES else ""
            worth = "" if row.worth is None else f"{row.worth:.3f}"
            cells.append([row.name, worth, " ".join(features) + more, row.mark])
        widths = [max(len(line[k]) for line in cells) for k in range(4)]
        lines = ["  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip() for line in cells]
        if len(shown) < len(self._rows):
            lines.append(f"... and {len(self._rows) - len(shown)} more")
        return "\n".join([self.title, *lines]) + "\n"

    def _shown(self) -> list[Seen]:
        marked = [row for row in self._rows if row.mark]
        return (self._rows if len(self._rows) <= MOST_ROWS else marked or self._rows)[:MOST_ROWS]

    def rgb_array(self) -> Array:
        """The round on the left, the regret so far on the right: uint8 ``(320, 480, 3)``."""
        image = np.full((HEIGHT, WIDTH, 3), PAPER, np.uint8)
        _write(image, 8, 10, self.title)
        shown = self._shown()
        top, bottom, left, right = 50, HEIGHT - 60, 12, WIDTH // 2 - 16
        slot = (right - left) // max(1, len(shown))
        for k, row in enumerate(shown):
            x, height = left + k * slot, 1.0 if row.worth is None else row.worth
            y = bottom - int(max(0.02, min(1.0, height)) * (bottom - top))
            colour = WON if row.success else PICKED if row.mark else IDLE
            image[y:bottom, x : x + max(2, slot - 4)] = colour
            label = row.name.rpartition(" ")[2] if slot < 60 else row.name
            _write(image, x, bottom + 6, label[: max(1, slot // 8)])
        marks = [row.mark for row in shown if row.mark not in ("", "offered")]
        _write(image, left, bottom + 24, (marks or ["nothing bought" if self._curve else ""])[0])
        self._plot(image, WIDTH // 2 + 10, top, WIDTH - 14, bottom)
        return image

    def _plot(self, image: Array, left: int, top: int, right: int, bottom: int) -> None:
        image[bottom : bottom + 2, left:right] = INK
        image[top:bottom, left : left + 2] = INK
        _write(image, left, bottom + 6, "regret so far")
        if not self._curve:
            return
        highest = max(self._curve[-1], 1e-12)
        _write(image, left + 6, top - 14, f"{highest:.3g}")
        x = np.arange(left + 2, right)
        at = (x - left) / (right - left) * self._problem.horizon
        known = np.concatenate([[0.0], self._curve])
        y = np.interp(at, np.arange(len(known)), known) / highest
        past = at <= len(self._curve)
        rows = (bottom - 2 - y[past] * (bottom - top - 2)).astype(int)
        for column, low, high in zip(x[past], rows, np.append(rows[1:], rows[-1:])):
            image[min(low, high) : max(low, high) + 2, column] = CURVE


def _write(image: Array, x: int, y: int, text: str) -> None:
    """Text in a 3 x 5 font, two pixels per dot; what does not fit is cut."""
    for letter in text.upper():
        if x + 6 > image.shape[1]:
            return
        at = 5 * max(0, LETTERS.find(letter))
        for line, digit in enumerate(GLYPHS[at : at + 5]):
            for dot in range(3):
                if int(digit) >> (2 - dot) & 1:
                    image[y + 2 * line : y + 2 * line + 2, x + 2 * dot : x + 2 * dot + 2] = INK
        x += 8
