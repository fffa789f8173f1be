"""Write the table of fitted choice models in docs/real-data.md.

    DPB_DATA=FOLDER python benchmarks/expedia_fits.py

FOLDER has the two files of the table in its folder ``expedia``; see docs/data.md. Tests compare the
page with the fits of today: always those of generated searches, and the others where the files are.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from marked import put

from dpb_gym import make_problem

PAGE = Path(__file__).parents[1] / "docs" / "real-data.md"
FILES = {
    "VU prefix": ("training_set_VU_DM.prefix.csv", "drop-last-search"),
    "1,000 searches": ("kaggle_train_subset_1000_searches.csv", None),
}
MODELS = (("hotel", False), ("hotel+interactions", False), ("hotel+interactions", True),
          ("outer", False))  # fmt: skip
HEADS = ("data", "searches, hotels", "features", "d", "log-likelihood (null)", "pseudo-R2",
         "ranked correctly", "choosing: data, fitted")  # fmt: skip


def rows(name: str, **source: object) -> list[str]:
    """Return a row per model fitted to searches; `source` are parameters of the environment."""
    lines = []
    for features, intercept in MODELS:
        chosen = {"feature_set": features, "intercept": intercept, "horizon": 10}
        s = make_problem("DPB/ExpediaAssortment-v0", **source, **chosen).summary()
        likelihoods = f"{s['log_likelihood']:.1f} ({s['null_log_likelihood']:.1f})"
        shares = f"{s['chosen_share']:.2f}, {s['chosen_share_fitted']:.2f}"
        cells = [name, f"{s['searches']:,}, {s['hotels']:,}"]
        cells += [features + ", intercept" * intercept, f"{s['dim']}", likelihoods]
        cells += [f"{s['pseudo_r2']:.3f}", f"{s['correctly_ranked']:.3f}", shares]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def real(folder: Path) -> list[str]:
    """Return the rows of the two files in `folder`."""
    lines = []
    for name, (file, repair) in FILES.items():
        source = {"data": str(folder / file), "repair": repair}
        lines += rows(f"{name}, top destination", **source)
        lines += rows(f"{name}, all", **source, destination="all")
    return lines


def main() -> None:
    """Write the table."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    lines = rows("generated") + real(Path(os.environ["DPB_DATA"]) / "expedia")
    table = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|", *lines]
    put(PAGE, "fits", "\n".join(table))


if __name__ == "__main__":
    main()
