"""Figure files: which there are, and reading them."""

from __future__ import annotations

from importlib import resources

from pydantic import ValidationError

from dpb_gym.errors import SuiteError, unknown_name
from dpb_gym.evaluation.yamlfile import parse_yaml
from dpb_gym.papers.figure import Figure


def parse_figure(text: str, source: str) -> Figure:
    """Reads a figure from YAML.

    Raises:
        SuiteError: If it is not valid; names the key and what is allowed.
    """
    try:
        data = parse_yaml(text)
    except ValueError as error:
        raise SuiteError(f"{source}: not valid YAML: {error}") from None
    try:
        return Figure.model_validate(data)
    except ValidationError as error:
        problems = [
            ": ".join(
                part
                for part in (
                    ".".join(str(key) for key in detail["loc"]),
                    detail["msg"].removeprefix("Value error, "),
                )
                if part
            )
            for detail in error.errors()[:5]
        ]
        raise SuiteError(f"{source}: {'; '.join(problems)}") from None
    except SuiteError as error:
        raise SuiteError(f"{source}: {error}") from None


def targets() -> list[str]:
    """Everything that can be reproduced: every ``paper/figure``."""
    folder = resources.files("dpb_gym.papers") / "figures"
    return sorted(
        f"{paper.name}/{file.name.removesuffix('.yaml')}"
        for paper in folder.iterdir()
        if paper.is_dir()
        for file in paper.iterdir()
        if file.name.endswith(".yaml")
    )


def load_figures(target: str) -> list[Figure]:
    """The figures of a target: all of a paper, or one ``paper/figure``.

    Raises:
        UnknownNameError: If there is no such paper or figure.
        SuiteError: If a file is not valid.
    """
    known = targets()
    chosen = [name for name in known if name == target or name.split("/")[0] == target]
    if not chosen:
        raise unknown_name("paper or figure", target, {n.split("/")[0] for n in known} | set(known))
    folder = resources.files("dpb_gym.papers") / "figures"
    figures = []
    for name in chosen:
        text = (folder / f"{name}.yaml").read_text(encoding="utf-8")
        figure = parse_figure(text, name)
        if figure.target != name:
            raise SuiteError(f"{name}: says that it is {figure.target}")
        figures.append(figure)
    return figures
