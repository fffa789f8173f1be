"""Rendering of rounds as pictures and tables: offers, choices, and regret so far.

Utilities and hidden parameters are never shown.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpb_gym.problems.base import Array, Context, Feedback, Problem
from dpb_gym.problems.kinds import Display, kind_of

MODES = ("ansi", "rgb_array")
WIDTH, HEIGHT = 480, 320
MOST_ROWS, MOST_FEATURES = 12, 6
IDLE, PICKED, WON, CURVE = "#c8cdd2", "#4285be", "#2ea05a", "#c8503c"


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
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        from dpb_gym.report.figure_layout import style

        shown = self._shown()
        with matplotlib.rc_context({**style(), "figure.constrained_layout.use": False}):
            figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100)
            canvas: Any = FigureCanvasAgg(figure)
            figure.suptitle(self.title, size=8)
            offer, regret = figure.subplots(1, 2)
            values = [1.0 if row.value is None else row.value for row in shown]
            colours = [WON if r.success else PICKED if r.mark else IDLE for r in shown]
            offer.bar(range(len(shown)), np.clip(values, 0.02, 1.0), color=colours)
            offer.set_xticks(range(len(shown)), [row.name for row in shown], rotation=90)
            marks = [row.mark for row in shown if row.mark and not row.mark.startswith("offered")]
            offer.set(ylim=(0, 1), title=(marks or ["nothing bought" if self._curve else ""])[0])
            regret.plot([0.0, *self._curve], color=CURVE)
            regret.set(xlim=(0, self._problem.horizon), ylim=(0, None), title="regret so far")
            figure.subplots_adjust(0.08, 0.28, 0.97, 0.84)
            canvas.draw()
        return np.array(canvas.buffer_rgba())[:, :, :3]
