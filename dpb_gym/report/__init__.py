"""Tables, plots and the leaderboard page, drawn from plain data (`dpb_gym.report.model`)."""

from dpb_gym.report.figures import plot
from dpb_gym.report.model import Interval, LeaderboardData, Row, TaskResult, TrackResult, TrackRow
from dpb_gym.report.page import html
from dpb_gym.report.terminal import records, table, to_json

__all__ = [
    "Interval",
    "LeaderboardData",
    "Row",
    "TaskResult",
    "TrackResult",
    "TrackRow",
    "html",
    "plot",
    "records",
    "table",
    "to_json",
]
