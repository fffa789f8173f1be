"""Write generated data to CSV files, for examples."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpb_data import synthetic
from dpb_data.dataset_registry import dataset
from dpb_gym.errors import ParameterError


def write_sample(name: str, path: str | os.PathLike[str]) -> Path:
    """Write a generated table as an example of a user's CSV file.

    Args:
        name: ``"synthetic-loans"``, ``"synthetic-mode-canada"``, ``"synthetic-open-bandit"`` or
            a generated data set of ratings (columns user, item, rating).
        path: File to write; an existing file is replaced.

    Raises:
        ParameterError: This data set has no sample.
        UnknownNameError: There is no such data set.
    """
    makers: dict[str, Callable[[], Mapping[str, Any]]] = {
        "synthetic-loans": synthetic.loans,
        "synthetic-mode-canada": synthetic.mode_canada,
        "synthetic-open-bandit": lambda: synthetic.open_bandit()[0],
    }
    known = dataset(name)
    if known.name in makers:
        columns = makers[known.name]()
    elif known.generate is not None and known.kind == "ratings":
        table = known.generate()
        users = table.user_ids[table.users]
        items = table.item_ids[table.items]
        columns = {"user": users, "item": items, "rating": table.ratings}
    else:
        raise ParameterError(f"no sample is made of {name}; there are {', '.join(makers)}")
    place = Path(path)
    with place.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(np.asarray(column).tolist() for column in columns.values())))
    return place
