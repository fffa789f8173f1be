"""Figure files: those of the package, of packages that add papers, and files by path."""

from __future__ import annotations

import warnings
from importlib import import_module, resources
from importlib.metadata import entry_points
from importlib.resources.abc import Traversable
from pathlib import Path

from dpb_gym.errors import SuiteError, unknown_name
from dpb_gym.evaluation.schema import read_spec
from dpb_gym.papers.figure import Figure

ENTRY_POINT_GROUP = "dpb_gym.papers"


def parse_figure(text: str, source: str) -> Figure:
    """Reads a figure from YAML; see `read_spec`."""
    return read_spec(Figure, text, source)


def figure_files() -> dict[str, Traversable]:
    """Every ``paper/figure`` that is installed, and its file.

    A package adds papers by an entry point of the group ``dpb_gym.papers`` that names one of its
    modules: the figures are the files ``PAPER/FIGURE.yaml`` beside it, and importing it registers
    the quantities that they need. A broken package is warned of and left out.
    """
    folders = [resources.files("dpb_gym.papers") / "figures"]
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            folders.append(resources.files(import_module(point.module)))
        except Exception as error:  # one broken plug-in must not take the others down
            text = f"could not load the papers of {point.value} ({point.name}): {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
    found: dict[str, Traversable] = {}
    for folder in folders:
        for paper in (one for one in folder.iterdir() if one.is_dir()):
            for file in (one for one in paper.iterdir() if one.name.endswith(".yaml")):
                found.setdefault(f"{paper.name}/{file.name.removesuffix('.yaml')}", file)
    return dict(sorted(found.items()))


def targets() -> list[str]:
    """Everything that can be reproduced by name: every ``paper/figure``."""
    return list(figure_files())


def load_figures(target: str) -> list[Figure]:
    """The figures of a target: all of a paper, one ``paper/figure``, or a file's.

    Args:
        target: A name (see `targets`), or the path of a ``.yaml`` file.

    Raises:
        UnknownNameError: If there is no such paper or figure.
        SuiteError: If a file is not valid or cannot be read.
    """
    if target.endswith((".yaml", ".yml")):
        try:
            return [parse_figure(Path(target).read_text(encoding="utf-8"), target)]
        except (OSError, UnicodeDecodeError) as error:
            raise SuiteError(f"{target}: cannot be read: {error}") from None
    known = figure_files()
    chosen = [name for name in known if name == target or name.split("/")[0] == target]
    if not chosen:
        raise unknown_name("paper or figure", target, {n.split("/")[0] for n in known} | set(known))
    figures = [parse_figure(known[name].read_text(encoding="utf-8"), name) for name in chosen]
    for name, figure in zip(chosen, figures):
        if figure.target != name:
            raise SuiteError(f"{name}: says that it is {figure.target}")
    return figures
