"""Data sets for dpb-gym: loaders, registry, download cache and generated data.

>>> import dpb_data
>>> table = dpb_data.load_ratings("synthetic-movielens")
>>> table.n_users, table.n_items, len(table)
(300, 200, 12000)
"""

from dpb_data import synthetic
from dpb_data.checking import CheckReport, FileCheck, check
from dpb_data.choices import ChoiceTable, choices, load_choices
from dpb_data.data_folders import cache_dir, find, path
from dpb_data.dataset_registry import Counts, DataSet, dataset, datasets, register_dataset
from dpb_data.expedia import SearchLog, load_searches
from dpb_data.expedia_encoding import HotelChoices, encode_searches
from dpb_data.fetching import fetch
from dpb_data.formats import FORMATS, RatingFormat
from dpb_data.questions import Answer, Question
from dpb_data.rating_loader import load_ratings, ratings
from dpb_data.rating_table import RatingTable
from dpb_data.reading import Reading, read
from dpb_data.response_tables import (
    BanditLog,
    ClickTable,
    PriceTable,
    clicks,
    load_open_bandit,
    prices,
)
from dpb_data.samples import write_sample
from dpb_gym.errors import DataError

__all__ = [
    "FORMATS",
    "Answer",
    "BanditLog",
    "CheckReport",
    "ChoiceTable",
    "ClickTable",
    "Counts",
    "DataError",
    "DataSet",
    "FileCheck",
    "HotelChoices",
    "PriceTable",
    "Question",
    "RatingFormat",
    "RatingTable",
    "Reading",
    "SearchLog",
    "cache_dir",
    "check",
    "choices",
    "clicks",
    "dataset",
    "datasets",
    "encode_searches",
    "fetch",
    "find",
    "load_choices",
    "load_open_bandit",
    "load_ratings",
    "load_searches",
    "path",
    "prices",
    "ratings",
    "read",
    "register_dataset",
    "synthetic",
    "write_sample",
]  # fmt: skip
