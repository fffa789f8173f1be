"""The data sets that the project knows by name, and those that it knows from the start.

Check sums are of original files that we have read ourselves. The archives themselves were not at
hand, so they carry none: for those, `fetch` compares with the check-sum file that the publisher
keeps beside the archive, and `check` counts ratings, users and items.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dpb_data import synthetic
from dpb_gym.errors import ParameterError, unknown_name

LOADERS = {
    "ratings": "load_ratings",
    "searches": "load_searches",
    "choices": "load_choices",
    "logs": "load_open_bandit",
    "prices": "prices",
}
"""Function of `dpb_data` that loads each kind of data set."""


@dataclass(frozen=True)
class Counts:
    """Sizes of a data set; None where unknown.

    Attributes:
        ratings: Number of ratings.
        users: Users with at least one rating.
        items: Items with at least one rating.
        catalogue: Items in the titles file, rated or not.
        searches: Number of searches, for data sets of those.
    """

    ratings: int | None = None
    users: int | None = None
    items: int | None = None
    catalogue: int | None = None
    searches: int | None = None

    def differences(self, found: Counts) -> list[str]:
        """Says in words where `found` departs from what is known here.

        A catalogue that was not found (no titles file) is no difference.
        """
        problems = []
        for name, expected in asdict(self).items():
            actual = getattr(found, name)
            if expected is None or actual == expected or (name == "catalogue" and actual is None):
                continue
            what = "titles in the catalogue" if name == "catalogue" else name
            number = "none" if actual is None else f"{actual:,}"
            problems.append(f"expected {expected:,} {what}, found {number}")
        return problems


@dataclass(frozen=True)
class DataSet:
    """A data set known by name: what it is, where it is published, and how to recognise it.

    Attributes:
        name: Short lower-case name, as typed on the command line.
        description: One line.
        format: Name of its file format (see `dpb_data.formats`), or ``"generated"``.
        terms: Licence in short.
        citation: What a publication that uses it cites.
        homepage: Where its publisher describes it.
        kind: What it holds, a key of `LOADERS`.
        urls: Archives, each a complete copy, tried in turn by `fetch`.
        archive_sha256: SHA-256 of the archive; None where we have not verified one.
        sidecar: Suffix of a check-sum file that the publisher keeps beside the archive
            (``".md5"``), or empty.
        files: SHA-256 by member name, of the original files that we have verified.
        counts: Published sizes.
        aliases: Other names of its folder.
        generate: Makes the table (or log) of a data set that needs no files.
    """

    name: str
    description: str
    format: str
    terms: str
    citation: str
    homepage: str = ""
    kind: str = "ratings"
    urls: tuple[str, ...] = ()
    archive_sha256: str | None = None
    sidecar: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    counts: Counts = Counts()
    aliases: tuple[str, ...] = ()
    generate: Callable[[], Any] | None = field(default=None, repr=False)

    @property
    def generated(self) -> bool:
        """Whether the data is made by our own generator and needs no files."""
        return self.generate is not None

    def to_dict(self) -> dict[str, Any]:
        """Everything but the generator, as plain JSON types."""
        shown = {key: value for key, value in asdict(self).items() if key != "generate"}
        lists = {"urls": list(self.urls), "aliases": list(self.aliases)}
        return {**shown, **lists, "generated": self.generated}


_DATASETS: dict[str, DataSet] = {}


def register_dataset(dataset: DataSet) -> DataSet:
    """Makes a data set known by its name and aliases, and returns it.

    Raises:
        ParameterError: A name is taken by another data set, or no name of a folder.
    """
    for name in (dataset.name, *dataset.aliases):
        owner = find_dataset(name)
        if owner is not None and owner is not dataset:
            raise ParameterError(f"the data set name {name!r} is taken by {owner.name!r}")
        if not name or name != name.strip() or "/" in name or "\\" in name or name[0] == ".":
            raise ParameterError(
                f"a data set name must be usable as a folder name and not start with a dot, "
                f"not {name!r}"
            )
    _DATASETS[dataset.name] = dataset
    return dataset


def datasets() -> list[DataSet]:
    """All registered data sets, in the order of registration."""
    return list(_DATASETS.values())


def find_dataset(name: object) -> DataSet | None:
    """The data set of this name or alias; None for any other string or object."""
    if not isinstance(name, str):
        return None
    if name in _DATASETS:
        return _DATASETS[name]
    return next((known for known in _DATASETS.values() if name in known.aliases), None)


def dataset(name: str) -> DataSet:
    """The data set of this name or alias.

    Raises:
        UnknownNameError: There is none; the message offers close matches.
    """
    found = find_dataset(name)
    if found is None:
        raise unknown_name("data set", name, _DATASETS)
    return found


_HARPER_KONSTAN = (
    "F. Maxwell Harper and Joseph A. Konstan. 2015. The MovieLens Datasets: History and Context. "
    "ACM Transactions on Interactive Intelligent Systems 5, 4, Article 19. "
    "https://doi.org/10.1145/2827872"
)
_GOLDBERG = (
    "Ken Goldberg, Theresa Roeder, Dhruv Gupta and Chris Perkins. 2001. Eigentaste: A Constant "
    "Time Collaborative Filtering Algorithm. Information Retrieval 4(2), 133-151."
)
_RESEARCH = (
    "Research use only, no commercial use without permission of GroupLens; acknowledge the data "
    "set and imply no endorsement"
)
_NO_COPIES = _RESEARCH + "; no redistribution without separate permission."
_SAME_TERMS = _RESEARCH + "; redistribution only under the same terms."
_LATEST_SMALL_FILES = {
    "README.txt": "e165937702ae1fac9237b6bd377f03d027f7ef97175d4a04a203e8b12d5516ea",
    "links.csv": "97ad18e4e56a09363c65676b6cb3482ce3e2cea2372a24620c1599c843325f31",
    "movies.csv": "5a5f32dd9bb3797b8e728a1b98958789d2b13f294a69fdfbc5727f8a9611aa07",
    "ratings.csv": "aa289ca83157595d0df6aea1be6a4ded676ddc4385472e8313a8ed9805352646",
    "tags.csv": "92a9f8bb7916dceef6151209845788c3643f794dfa79d1feaec7121b5960399d",
}
_100K_FILES = {
    "README": "4883b8cf340ed0059971b33f56ad3adc88a40792108ebca3d24aafc4c82e8b52",
    "u.data": "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
    "u.genre": "9757e0d3e6b298159a80dd48eaf938114690e911e39af97a76949ef1663610bb",
    "u.info": "5b0a40b2e47a729ee6203063f6dcf8790c2e63f5a18663e6ee318a72c5f3c27b",
    "u.item": "553841ebc7de3a0fd0d6b62a204ea30c1e651aacfb2814c7a6584ac52f2c5701",
    "u.occupation": "cd5fbec9afe345d993a62fc7817df1a4a9079c4feb267b3118763b8fd942137d",
    "u.user": "f120e114da2e8cf314fd28f99417c94ae9ddf1cb6db8ce0e4b5995d40e90e62c",
}
_JESTER_1_FILES = {
    "jester-data-1.csv": "4692895acc91263ec11592cb94687725e28afdd451845ab46c2ac6ba3ebc414e",
}
# The 10M README speaks of 71,567 users, the largest user id; 69,878 of them rated something.
_MOVIELENS: tuple[tuple[str, int, str, Counts, dict[str, str], tuple[str, ...]], ...] = (
    ("ml-latest-small", 2018, "ml-csv", Counts(100_836, 610, 9_724, 9_742),
     _LATEST_SMALL_FILES, ()),
    ("ml-100k", 1998, "ml-100k", Counts(100_000, 943, 1_682, 1_682), _100K_FILES, ()),
    ("ml-1m", 2003, "ml-1m", Counts(1_000_209, 6_040, 3_706, 3_883), {}, ()),
    ("ml-10m", 2009, "ml-10m", Counts(10_000_054, 69_878, 10_677, 10_681), {}, ("ml-10M100K",)),
    ("ml-20m", 2015, "ml-csv", Counts(20_000_263, 138_493, 26_744, 27_278), {}, ()),
    ("ml-25m", 2019, "ml-csv", Counts(25_000_095, 162_541, 59_047, 62_423), {}, ()),
    ("ml-32m", 2023, "ml-csv", Counts(32_000_204, 200_948, None, 87_585), {}, ()),
)  # fmt: skip
_JESTER: tuple[tuple[int, str, Counts, dict[str, str]], ...] = (
    (1, "36 jokes or more", Counts(1_810_455, 24_983, 100), _JESTER_1_FILES),
    (2, "36 jokes or more", Counts(1_708_993, 23_500, 100), {}),
    (3, "15 to 35 jokes", Counts(616_912, 24_938, 100), {}),
)


def _synthetic_searches() -> Any:
    from dpb_data.expedia import synthetic_log

    return synthetic_log()


def _synthetic_choices() -> Any:
    from dpb_data.choices import LAYOUTS, choices

    long = LAYOUTS["mode-canada"]
    return choices(
        synthetic.mode_canada(), case=long.case, item=long.item, chosen=long.chosen,
        features=long.features, name="synthetic-mode-canada",
    )  # fmt: skip


def _synthetic_bandit() -> Any:
    from dpb_data.logs import read_open_bandit

    return read_open_bandit(*synthetic.open_bandit(), "synthetic-open-bandit")


for _name, _year, _format, _counts, _files, _aliases in _MOVIELENS:
    _stars = "half" if _format in ("ml-csv", "ml-10m") else "whole"
    register_dataset(
        DataSet(
            _name,
            f"MovieLens {_name.removeprefix('ml-').replace('-', ' ')} ({_year}): "
            f"{_counts.ratings:,} ratings in {_stars} stars by {_counts.users:,} users",
            _format,
            _SAME_TERMS if _format == "ml-csv" else _NO_COPIES,
            _HARPER_KONSTAN,
            homepage="https://grouplens.org/datasets/movielens/",
            urls=(f"https://files.grouplens.org/datasets/movielens/{_name}.zip",),
            sidecar=".md5",
            files=_files,
            counts=_counts,
            aliases=_aliases,
        )
    )
for _part, _who, _counts, _files in _JESTER:
    _archive = f"jester_dataset_1_{_part}"
    _site = "https://eigentaste.berkeley.edu/dataset/"
    register_dataset(
        DataSet(
            f"jester-{_part}",
            f"Jester data set 1, part {_part} (1999-2003): {_counts.ratings:,} ratings of 100 "
            f"jokes from -10 to 10 by {_counts.users:,} users who rated {_who}",
            "jester-xls",
            "Free for research use when acknowledged with the reference.",
            _GOLDBERG,
            homepage=_site,
            urls=(f"{_site}{_archive}.zip", f"{_site}archive/{_archive}.zip"),
            files=_files,
            counts=_counts,
            aliases=(f"jester-data-{_part}", _archive),
        )
    )
_OURS = ("generated", "Generated by dpb-gym; no restrictions.", "dpb-gym")
register_dataset(
    DataSet(
        "synthetic-movielens",
        "Generated: 12,000 half-star ratings of 200 items by 300 users, low rank",
        *_OURS,
        counts=Counts(12_000, 300, 200),
        generate=synthetic.movielens,
    )
)
register_dataset(
    DataSet(
        "synthetic-jester",
        "Generated: dense ratings of 100 jokes from -10 to 10 by 400 users, low rank",
        *_OURS,
        counts=Counts(None, 400, 100),
        generate=synthetic.jester,
    )
)
register_dataset(
    DataSet(
        "expedia-personalized-sort",
        "Expedia hotel searches of the ICDM 2013 contest: 399,344 searches",
        "expedia-csv",
        "Competition rules of the publisher: accept them there; no redistribution.",
        "Adam et al. 2013. Personalize Expedia Hotel Searches - ICDM 2013. "
        "https://kaggle.com/competitions/expedia-personalized-sort",
        homepage="https://www.kaggle.com/c/expedia-personalized-sort/data",
        kind="searches",
        counts=Counts(searches=399_344),  # Cho & Sun, section 5.2.1
    )
)
register_dataset(
    DataSet(
        "synthetic-expedia",
        "Generated: 700 hotel searches in 3 destinations, in Expedia's layout",
        *_OURS,
        kind="searches",
        generate=_synthetic_searches,
    )
)
register_dataset(
    DataSet(
        "kuairec",
        "KuaiRec, small matrix (2020): 4,676,570 watch ratios of 3,327 videos by 1,411 users",
        "kuairec-csv",
        "CC BY-SA 4.0.",
        "Gao et al. 2022. KuaiRec: A Fully-observed Dataset and Insights for Evaluating "
        "Recommender Systems. CIKM 2022. https://doi.org/10.1145/3511808.3557220",
        homepage="https://kuairec.com",
        counts=Counts(4_676_570, 1_411, 3_327),
        aliases=("KuaiRec", "KuaiRec 2.0"),
    )
)
register_dataset(
    DataSet(
        "synthetic-kuairec",
        "Generated: watch ratios of 80 videos by 60 users, every pair observed",
        *_OURS,
        counts=Counts(4_800, 60, 80),
        generate=synthetic.kuairec,
    )
)
for _name, _kind, _what, _generate in (
    ("synthetic-mode-canada", "choices", "600 travel mode choices, as ModeCanada",
     _synthetic_choices),
    ("synthetic-open-bandit", "logs", "3,000 logged rounds, as the Open Bandit Dataset",
     _synthetic_bandit),
    ("synthetic-loans", "prices", "4,000 quoted loan rates, accepted or not", synthetic.loans),
):  # fmt: skip
    register_dataset(DataSet(_name, f"Generated: {_what}", *_OURS, kind=_kind, generate=_generate))
