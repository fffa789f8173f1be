"""Tables, plots and the leaderboard page, drawn from one view of plain data.

`dpb_gym.report.model` holds the data, `dpb_gym.report.views` the view.
"""

from dpb_gym.report.exports import records, to_csv, to_frame, to_json, to_latex
from dpb_gym.report.figures import (
    Difference,
    plot,
    plot_calibration,
    plot_frontier,
    plot_kept,
    plot_paired,
    plot_profiles,
)
from dpb_gym.report.model import (
    Audit,
    Interval,
    LeaderboardData,
    Normalisation,
    Row,
    TaskResult,
    TrackResult,
    TrackRow,
)
from dpb_gym.report.notebook import html_table
from dpb_gym.report.page import html
from dpb_gym.report.terminal import table

__all__ = [
    "Audit",
    "Difference",
    "Interval",
    "LeaderboardData",
    "Normalisation",
    "Row",
    "TaskResult",
    "TrackResult",
    "TrackRow",
    "html",
    "html_table",
    "plot",
    "plot_calibration",
    "plot_frontier",
    "plot_kept",
    "plot_paired",
    "plot_profiles",
    "records",
    "table",
    "to_csv",
    "to_frame",
    "to_json",
    "to_latex",
]
