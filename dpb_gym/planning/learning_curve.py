"""Earnings along a run, and the customer after whom an agent has learned."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dpb_gym.results.row_result import RowResult

SETTLED = 1.0
"""Percent of the best earnings by which the earnings of later parts may differ from the last."""


@dataclass(frozen=True)
class LearningCurve:
    """Earnings of an agent in consecutive parts of a run.

    Attributes:
        label: Label of the row.
        ends: Last customer of each part ``(C,)``.
        lost: Loss in each part, in percent of the best earnings for every customer ``(C,)``.
    """

    label: str
    ends: tuple[int, ...]
    lost: tuple[float, ...]

    @property
    def learned(self) -> int | None:
        """Customers after whom the loss stays the same up to `SETTLED`.

        None if there are none in the first quarter of the run: learning is then not over.
        """
        end = None
        for k in range(len(self.lost) - 1, -1, -1):
            if abs(self.lost[k] - self.lost[-1]) > SETTLED:
                break
            end = 0 if k == 0 else self.ends[k - 1]
        return end if end is not None and 4 * end <= self.ends[-1] else None


def parts(horizon: int) -> list[int]:
    """Return the ends of the parts of a run, each twice as long as the one before."""
    ends = {horizon}
    end = horizon
    while end >= 50 and len(ends) < 8:
        end //= 2
        ends.add(end)
    return sorted(ends)


def learning_curve(row: RowResult) -> LearningCurve:
    """Return the curve of a row with several checkpoints."""
    rounds = [0, *row.rounds.tolist()]
    regret = np.append(0.0, row.regret.mean(axis=0))
    best = float((row.reward + row.regret)[:, -1].mean()) / rounds[-1]
    lost = [
        100.0 * (regret[k + 1] - regret[k]) / max(best * (end - start), 1e-300)
        for k, (start, end) in enumerate(pairwise(rounds))
    ]
    return LearningCurve(row.agent, tuple(rounds[1:]), tuple(map(float, lost)))


def learning_sentence(curves: list[LearningCurve]) -> str:
    """Return when the agents have learned, as one sentence per answer."""
    ends = dict[int | None, list[str]]()
    for curve in curves:
        ends.setdefault(curve.learned, []).append(curve.label)
    said = []
    for end, labels in ends.items():
        who = " and ".join(labels)
        if end is None:
            last = curves[0].ends[-1]
            said.append(f"At {who} learning is not over after {last:,} customers.")
        elif end == 0:
            said.append(f"At {who} earnings are the same from the first customers on.")
        else:
            said.append(f"At {who} learning is over after about {end:,} customers.")
    return " ".join(said)
