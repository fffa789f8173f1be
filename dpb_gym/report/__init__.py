"""Tables, plots, files and the leaderboard page.

Everything is drawn from the tables of `dpb_gym.report.tables`, whose rows are those of
`dpb_gym.report.leaderboard_data` and whose columns are those of `dpb_gym.report.columns`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpb_gym.lazy import lazy_names

if TYPE_CHECKING:
    from dpb_gym.report.advice_page import advice_page as advice_page
    from dpb_gym.report.exports import records as records
    from dpb_gym.report.exports import to_csv as to_csv
    from dpb_gym.report.exports import to_frame as to_frame
    from dpb_gym.report.exports import to_json as to_json
    from dpb_gym.report.exports import to_latex as to_latex
    from dpb_gym.report.notebook import html_table as html_table
    from dpb_gym.report.page import html as html
    from dpb_gym.report.plots import plot as plot
    from dpb_gym.report.plots import plot_calibration as plot_calibration
    from dpb_gym.report.plots import plot_frontier as plot_frontier
    from dpb_gym.report.plots import plot_intervals as plot_intervals
    from dpb_gym.report.plots import plot_paired as plot_paired
    from dpb_gym.report.plots import plot_profiles as plot_profiles
    from dpb_gym.report.terminal import table as table

__all__, __getattr__, __dir__ = lazy_names(__name__)
