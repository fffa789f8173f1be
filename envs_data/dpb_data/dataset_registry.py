"""Registry of data sets by name; ``datasets.yaml`` has the built-in ones."""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.resources import files
from typing import Any

import yaml

from dpb_gym.errors import DataError, ParameterError, UnknownNameError, unknown_name

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
        searches: Number of searches, for search logs.
    """

    ratings: int | None = None
    users: int | None = None
    items: int | None = None
    catalogue: int | None = None
    searches: int | None = None

    def differences(self, counts: Counts) -> list[str]:
        """Return descriptions of the differences between `counts` and these counts.

        A missing catalogue (no titles file) is not a difference.
        """
        problems = []
        for name, expected in asdict(self).items():
            actual = getattr(counts, name)
            if expected is None or actual == expected or (name == "catalogue" and actual is None):
                continue
            what = "titles in the catalogue" if name == "catalogue" else name
            number = "none" if actual is None else f"{actual:,}"
            problems.append(f"expected {expected:,} {what}, found {number}")
        return problems


@dataclass(frozen=True)
class DataSet:
    """A registered data set: description, source, and data to recognise it.

    Attributes:
        name: Short lower-case name, as typed on the command line.
        description: One line.
        format: Name of its file format (see `dpb_data.formats`), or ``"generated"``.
        terms: Licence in short.
        citation: Reference to cite.
        homepage: Page of its publisher.
        kind: Kind of data, a key of `LOADERS`.
        urls: Archives, each a complete copy; `fetch` tries them in order.
        archive_sha256: Verified SHA-256 of the archive, or None.
        sidecar: Suffix of the publisher's check-sum file beside the archive (``".md5"``), or
            empty.
        files: Verified SHA-256 of original files by member name.
        counts: Published sizes.
        aliases: Other names of its folder.
        generate: Function that returns the generated table or log; None for data in files.
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
        """Whether the data is generated and needs no files."""
        return self.generate is not None

    def require(self, counts: Counts, place: object) -> None:
        """Check that the sizes are the published ones.

        Raises:
            DataError: Lists the differences.
        """
        problems = self.counts.differences(counts)
        if problems:
            raise DataError(
                f"{place}: {'; '.join(problems)}: this is not the complete {self.name}. A sample "
                "of your own loads with strict=False, or from a folder of another name"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return all attributes but the generator, as plain JSON types."""
        shown = asdict(self) | {"generated": self.generated}
        del shown["generate"]
        return shown


_DATASETS: dict[str, DataSet] = {}


def register_dataset(dataset: DataSet) -> DataSet:
    """Register a data set by its name and aliases, and return it.

    Raises:
        ParameterError: A name belongs to another data set, or cannot name a folder.
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
    """Return all registered data sets, in the order of registration."""
    return list(_DATASETS.values())


def find_dataset(name: object, kind: str | None = None) -> DataSet | None:
    """Return the data set of this name or alias; None for any other string or object.

    Raises:
        DataError: It is of another kind.
    """
    if not isinstance(name, str):
        return None
    entry = next((d for d in datasets() if name in (d.name, *d.aliases)), None)
    if entry is not None and kind not in (None, entry.kind):
        names = ", ".join(d.name for d in datasets() if d.kind == kind)
        raise DataError(
            f"the data set {entry.name!r} holds {entry.kind}, expected one of {kind}: {names}"
        )
    return entry


def generated(source: object, kind: str) -> Any:
    """Return the contents of the generated data set of this name; None for any other source.

    Raises:
        DataError: The data set of this name is of another kind.
    """
    known = find_dataset(source, kind)
    return known.generate() if known is not None and known.generate is not None else None


def dataset(name: str) -> DataSet:
    """Return the data set of this name or alias.

    Raises:
        UnknownNameError: There is none; the message lists close matches.
    """
    entry = find_dataset(name)
    if entry is None:
        raise published_as(name) or unknown_name("data set", name, _DATASETS)
    return entry


def published_as(name: object) -> UnknownNameError | None:
    """Return the error for a name of several published data sets, such as "movielens".

    The message has their names, and how to get the first and its terms. None for other names.
    """
    word = str(name).lower()
    known = [d for d in datasets() if d.urls and d.description.lower().split()[0] == word]
    if not known:
        return None
    first, *others = (d.name for d in known)
    rest = f"; also {', '.join(others)}" if others else ""
    return UnknownNameError(
        f"{name!r} is not the name of a data set: dpb data fetch {first} gets the first of its "
        f"sets{rest}. Terms of {first}: {known[0].terms}"
    )


def read_layouts(section: str, kind: Callable[..., Any]) -> dict[str, Any]:
    """Return a section of ``layouts.yaml``; each entry becomes a `kind` of its name and values."""
    return {
        name: kind(name, **{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()})
        for name, given in _read_yaml("layouts.yaml")[section].items()
    }


def read_words(section: str) -> frozenset[str]:
    """Return a list of words of ``layouts.yaml``."""
    return frozenset(map(str, _read_yaml("layouts.yaml")[section]))


@functools.cache
def _read_yaml(file: str) -> Any:
    text = files("dpb_data").joinpath(file).read_text("utf-8")
    # the parser in C, where PyYAML was built with it, takes a tenth of the time
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _generate(place: str) -> Any:
    return pkgutil.resolve_name(f"dpb_data.{place}")()


for _entry in _read_yaml("datasets.yaml"):
    for _key in _entry.keys() & {"urls", "aliases"}:
        _entry[_key] = tuple(_entry[_key])
    if "generate" in _entry:
        _entry["generate"] = partial(_generate, _entry["generate"])
    register_dataset(DataSet(**{**_entry, "counts": Counts(**_entry.get("counts", {}))}))
