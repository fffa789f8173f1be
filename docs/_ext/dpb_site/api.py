"""Generate the API reference: one page per public module with the members of its ``__all__``."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType

from dpb_gym.errors import MissingExtraError
from dpb_site.markdown import Pages, toctree

MODULES = (
    "dpb_gym",
    "dpb_gym.play",
    "dpb_gym.agent",
    "dpb_gym.learners",
    "dpb_gym.registry",
    "dpb_gym.suites",
    "dpb_gym.running.api",
    "dpb_gym.running.runner",
    "dpb_gym.results.result",
    "dpb_gym.results.result_directory",
    "dpb_gym.audits",
    "dpb_gym.running.callbacks",
    "dpb_gym.offline",
    "dpb_gym.papers",
    "dpb_gym.privacy",
    "dpb_gym.feedback",
    "dpb_gym.kernels.vectors",
    "dpb_gym.kernels.customer_prices",
    "dpb_gym.kernels.customer_slates",
    "dpb_gym.kernels.customer_candidates",
    "dpb_gym.local_privacy",
    "dpb_gym.checkpoint",
    "dpb_gym.problems",
    "dpb_gym.problems.kinds",
    "dpb_gym.problems.neighbours",
    "dpb_gym.problems.log_form",
    "dpb_gym.problems.contexts",
    "dpb_gym.problems.assortment",
    "dpb_gym.problems.assortment_pricing",
    "dpb_gym.problems.pricing",
    "dpb_gym.problems.recommendation",
    "dpb_gym.problems.rating_replay",
    "dpb_gym.envs.gym_env",
    "dpb_gym.envs.adapter",
    "dpb_gym.envs.sb3",
    "dpb_gym.report",
    "dpb_gym.report.leaderboard_data",
    "dpb_gym.streams",
    "dpb_gym.errors",
    "dpb_data",
)


def write(pages: Pages) -> None:
    """Write the pages of the modules and their index."""
    lines = []
    homes: dict[int, str] = {}
    for name in MODULES:
        try:
            module = importlib.import_module(name)
        except MissingExtraError as error:
            pages.write(f"api/{name}", [f"# {name}", f"Not in this build: {error}."])
            lines.append(f"- [`{name}`]({name}.md): not in this build")
            continue
        summary = (inspect.getdoc(module) or "").partition("\n\n")[0].replace("\n", " ")
        pages.write(f"api/{name}", _page(module, homes))
        lines.append(f"- [`{name}`]({name}.md): {summary}")
    pages.write(
        "api/index",
        [
            "# API",
            "Names exported by these modules are public. `import dpb_gym` does not import heavy "
            "packages: names are loaded on first use.",
            "\n".join(lines),
            toctree(MODULES, "hidden"),
        ],
    )


def public_names(module: ModuleType) -> list[str]:
    """Return the names of the public classes, functions and constants of a module."""
    exported = getattr(module, "__all__", None)
    if exported is not None:
        return [name for name in exported if not name.startswith("__")]
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def _page(module: ModuleType, homes: dict[int, str]) -> list[str]:
    """Return a module's page; names documented in an earlier module are links."""
    name = module.__name__
    repeated = {}
    for member in public_names(module):
        home = homes.setdefault(id(getattr(module, member)), name)
        if home != name:
            repeated[member] = home
    parts = [f"# {name}", _automodule(name, repeated)]
    if repeated:
        links = ", ".join(f"{{py:obj}}`~{home}.{member}`" for member, home in repeated.items())
        parts.append(f"Also exported here: {links}.")
    return parts


def _automodule(name: str, but: dict[str, str]) -> str:
    lines = [f".. automodule:: {name}", "   :members:"]
    if but:
        lines.append(f"   :exclude-members: {', '.join(but)}")
    return "\n".join(["```{eval-rst}", *lines, "```"])
