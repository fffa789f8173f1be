"""Folders of the data sets on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dpb_data.data_files import DATA_VARIABLE, existing_path
from dpb_data.dataset_registry import LOADERS, dataset, find_dataset
from dpb_data.formats import holds_ratings
from dpb_gym.errors import DataError

CACHE_VARIABLE = "DPB_CACHE"


def cache_dir() -> Path:
    """Return the download cache: ``$DPB_CACHE`` if set, else the system's cache folder."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    home = Path.home()
    usual = {"darwin": home / "Library" / "Caches", "win32": home / "AppData" / "Local"}
    variable = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    system = None if sys.platform == "darwin" else os.environ.get(variable)
    return Path(system or usual.get(sys.platform, home / ".cache")) / "dpb-gym"


def path(name: str, *, folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the path of a registered data set on this machine.

    The search order is ``$DPB_DATA``, then the cache; with `folder` only there. Each may contain
    ``<name>`` or one of the data set's other names, as a folder or a zip archive. `folder` may
    also be the data set's own folder or archive.

    Args:
        name: Name or alias of a registered data set.
        folder: Folder to search instead of the default ones.

    Returns:
        The absolute path of a folder, archive or file that `load_ratings` accepts.

    Raises:
        DataError: Not found; the message lists the searched places and the command to fetch it.
        UnknownNameError: The name is not registered.
    """
    known = dataset(name)
    if known.generated:
        raise DataError(
            f"{known.name} is generated on the fly and has no files: "
            f"{LOADERS[known.kind]}({known.name!r})"
        )
    data = os.environ.get(DATA_VARIABLE)
    looked = [f"${DATA_VARIABLE} (not set)"] if folder is None and not data else []
    usual = [*([Path(data)] if data else []), cache_dir()]
    for given in usual if folder is None else [Path(folder)]:
        parent = given.expanduser().absolute()
        names = (known.name, *known.aliases)
        places = [parent / f"{label}{end}" for label in names for end in ("", ".zip")]
        for place in places if folder is None else [*places, parent]:
            if place.is_file():
                return place
            if place.is_dir():
                if known.kind != "ratings" or holds_ratings(place):
                    return place
                looked.append(f"{place} (there, but holds no ratings)")
        looked.append(" or ".join([str(parent / known.name), *known.aliases]))
    how = f"Get it from {known.homepage} and unpack it to one of these places"
    if known.urls:
        how = f"Download it with: dpb data fetch {known.name}"
    raise DataError(
        f"data set {known.name!r} was not found. Looked at: {'; '.join(looked)}. {how} "
        f"(terms: {known.terms})"
    )


def locate(source: str | os.PathLike[str]) -> Path:
    """Return the path of a data set given by name or path; raises as `path`, `existing_path`."""
    known = find_dataset(source)
    return existing_path(source) if known is None else path(known.name)


def find(source: str | os.PathLike[str]) -> Path | None:
    """Return the path of a data set given by name or path; None if it is generated.

    Args:
        source: As for `load_ratings` and `load_searches`.

    Raises:
        DataError: Not found; the message lists the searched places.
        UnknownNameError: Neither the name of a data set nor a path.
    """
    known = find_dataset(source)
    return None if known is not None and known.generated else locate(source)
