"""Where data sets lie: an explicit folder, the folder named by DPB_DATA, or the cache."""

from __future__ import annotations

import os
from pathlib import Path

from dpb_data.formats import holds_ratings
from dpb_data.registry import DataSet, dataset
from dpb_data.sources import open_source
from dpb_gym.errors import DataError

DATA_VARIABLE = "DPB_DATA"
CACHE_VARIABLE = "DPB_CACHE"


def cache_dir() -> Path:
    """The download cache: ``$DPB_CACHE`` if set, else the system's cache folder for dpb-gym."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    import pooch

    return Path(pooch.os_cache("dpb-gym"))


def path(name: str, *, folder: str | os.PathLike[str] | None = None) -> Path:
    """Finds a registered data set on this machine.

    Looked at in this order: `folder` and nothing else, if given; ``$DPB_DATA``; the cache. In
    each, ``<name>`` or one of the data set's other names, as a folder or a zip archive; `folder`
    may also be the data set's own folder or archive.

    Args:
        name: Name or alias of a registered data set.
        folder: Where to look instead of the usual places.

    Returns:
        The absolute path of a folder, archive or file that `load_ratings` accepts.

    Raises:
        DataError: It is nowhere; the message lists every place and the command that fetches it.
        UnknownNameError: The name is not registered.
    """
    known = dataset(name)
    if known.generated:
        raise DataError(
            f"{known.name} is generated on the fly and has no files: "
            f"load_{known.kind}({known.name!r})"
        )
    looked: list[str] = []
    if folder is not None:
        chosen = Path(folder).expanduser().absolute()
        found = _inside(chosen, known, looked) or _itself(chosen, looked)
    else:
        data = os.environ.get(DATA_VARIABLE)
        found = _inside(Path(data).expanduser().absolute(), known, looked) if data else None
        if not data:
            looked.append(f"${DATA_VARIABLE} (not set)")
        found = found or _inside(cache_dir(), known, looked)
    if found is not None:
        return found
    how = (
        f"Download it with: dpb data fetch {known.name}"
        if known.urls
        else f"Get it from {known.homepage} and unpack it to one of these places"
    )
    raise DataError(
        f"data set {known.name!r} was not found. Looked at: {'; '.join(looked)}. {how} "
        f"(terms: {known.terms})"
    )


def _inside(parent: Path, known: DataSet, looked: list[str]) -> Path | None:
    """Looks for the data set under one parent folder; notes each place in `looked`."""
    for label in (known.name, *known.aliases):
        for candidate in (parent / label, parent / f"{label}.zip"):
            if candidate.suffix == ".zip" and candidate.is_file():
                return candidate
            if candidate.is_dir():
                if known.kind != "ratings" or _has_ratings(candidate):
                    return candidate
                looked.append(f"{candidate} (there, but holds no ratings)")
    places = parent / known.name
    others = f" or {', '.join(known.aliases)}" if known.aliases else ""
    looked.append(f"{places}{others}")
    return None


def _itself(chosen: Path, looked: list[str]) -> Path | None:
    """Takes the folder or archive as the data set itself."""
    if chosen.is_file() or (chosen.is_dir() and _has_ratings(chosen)):
        return chosen
    looked.append(f"{chosen} itself")
    return None


def _has_ratings(candidate: Path) -> bool:
    try:
        return holds_ratings(open_source(candidate))
    except DataError:
        return False
