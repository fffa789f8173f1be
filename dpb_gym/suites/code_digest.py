"""Digest of an agent's code, part of its cells' keys, and the origin of that code."""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache, lru_cache
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import resolve_name
from pathlib import Path
from typing import Any, NamedTuple

from dpb_gym.errors import AgentError
from dpb_gym.lazy import AGENTS
from dpb_gym.registry import AgentSpec, agent_spec
from dpb_gym.report.leaderboard_data import Origin
from dpb_gym.suites.code_in_memory import code_in_memory
from dpb_gym.suites.provenance import git_revision

PAPERS = re.compile(
    r"arxiv[: ](?P<arxiv>\d{4}\.\d{4,5})|doi(?:\.org/|: ?)(?P<doi>10\.\d{4,9}/[^\s,;)>]*[^\s,;.)>])"
    r"|(?P<url>https://(?!doi\.org)[^\s,;)<>\"]*[^\s,;.)<>\"])",
    re.I,
)
NAME = re.compile(r"\.*\w+(\.\w+)*")
OWN = "dpb_gym"
"""The library. `ALGORITHM_VERSION` stands for its code."""
PLACES = {"arxiv": "https://arxiv.org/abs/", "doi": "https://doi.org/", "url": ""}


class _Known(NamedTuple):
    """What is known of the code of a class or function in this process.

    Attributes:
        live: Digest of its functions in memory.
        files: Digest of its files, as they were read.
        digest: Digest of the code.
    """

    live: bytes
    files: str
    digest: str


_known: dict[Any, _Known] = {}


def code_hash(maker: Any) -> str:
    """Return the hash of an agent's code.

    It covers the source of its module, of all modules of the same top-level package that this one
    imports directly or indirectly, the package's version, and the agent's own version.

    For dpb-gym itself `ALGORITHM_VERSION` replaces the package's version. Files are read once per
    process, and again if functions of other packages changed in memory, as by a reload. A change in
    memory alone changes the hash, too. Code without a file, as in a notebook, counts by what it
    reaches in memory, see `dpb_gym.suites.code_in_memory`.

    Args:
        maker: The agent's class, or a function that makes it.
    """
    code = getattr(maker, "func", maker)
    module = str(getattr(code, "__module__", None))
    package = distribution(module)
    live = b""
    if package != "dpb-gym":
        live = code_in_memory(code, objects=_file(module) is None)
    known = _known.get(maker)
    if known is not None and known.live == live:
        return known.digest
    if known is not None:
        _place.cache_clear()
        _read.cache_clear()
    version = "" if package in (None, "dpb-gym") else metadata.version(str(package))
    source = _source(module) or live
    parts = [str(getattr(maker, "version", "")).encode(), version.encode(), source]
    for name, content in sorted(_helpers(module).items()):
        parts += [name.encode(), content]
    files = digest = _digest(parts)
    if known is not None and files == known.files:
        digest = _digest([files.encode(), live])
    _known[maker] = _Known(live, files, digest)
    return digest


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:32]


def _file(module: str) -> Path | None:
    """Return the file of a module, None if it has none, as in a notebook."""
    file = Path(getattr(sys.modules.get(module), "__file__", None) or "")
    return file if file.is_file() else None


def _source(module: str) -> bytes:
    file = _file(module)
    return b"" if file is None else file.read_bytes()


def _helpers(module: str) -> dict[str, bytes]:
    """Return the sources of the modules of the same top-level package that a module imports."""
    sources: dict[str, bytes] = {}
    todo = {module} - {OWN} if not module.startswith(f"{OWN}.") else set()
    while todo:
        _, needed = _read(todo.pop())
        for name in needed:
            below = name.partition(".")[2]
            if name != module and below not in sources:
                sources[below] = _read(name)[0]
                todo.add(name)
    return sources


@cache
def _place(module: str) -> Path | None:
    """Return the file of a module whose package is imported, without importing the module."""
    top, _, below = module.partition(".")
    for folder in getattr(sys.modules.get(top), "__path__", ()):
        base = Path(folder, *below.split("."))
        compiled = [base.with_name(base.name + end) for end in EXTENSION_SUFFIXES]
        for file in (base / "__init__.py", base.with_name(f"{base.name}.py"), *compiled):
            with suppress(OSError, ValueError):  # a text that is no name of a file
                if file.is_file():
                    return file
    return None


@cache
def _read(module: str) -> tuple[bytes, frozenset[str]]:
    """Return a module's source and the modules of its package that it uses.

    A module is used if it is imported anywhere in the file, or accessed as an attribute of a
    package that imports its submodules lazily. In other packages than this one it also is if a
    text of the file is its name, as `importlib.import_module` takes it, and so are the packages
    that it is in.
    """
    file = _place(module)
    if file is None:
        return b"", frozenset()
    content = file.read_bytes()
    try:
        nodes = list(ast.walk(ast.parse(content)))
    except (SyntaxError, ValueError):  # not Python, so it cannot be imported
        return content, frozenset()
    top = module.partition(".")[0]
    home = module if file.name == "__init__.py" else module.rpartition(".")[0]
    modules: set[str] = set()
    packages = {top: top}
    for node in nodes:
        if isinstance(node, ast.Import):
            given = [("", alias) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = home.rsplit(".", node.level - 1)[0] if node.level else ""
            given = [(".".join(filter(None, (start, node.module))), a) for a in node.names]
        else:
            continue
        for target, alias in given:
            name = f"{target}.{alias.name}" if target else alias.name
            if name.partition(".")[0] != top:
                continue
            inner = _place(name)
            modules.add(target if inner is None and target else name)
            if inner is not None and inner.name == "__init__.py" and (target or alias.asname):
                packages[alias.asname or alias.name] = name
    reached = (ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute))
    for first, _, rest in (chain.partition(".") for chain in reached):
        if first in packages:
            modules.add(f"{packages[first]}.{rest}")
    if distribution(top) != "dpb-gym":
        modules |= _named(nodes, home, top)
        modules |= {name.rsplit(".", n)[0] for name in modules for n in range(1, name.count("."))}
    return content, frozenset(name for name in modules if _place(name) is not None)


def _named(nodes: Iterable[ast.AST], home: str, top: str) -> set[str]:
    """Return the texts of a file that can name a module of its package."""
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    names = {text for text in texts if isinstance(text, str) and NAME.fullmatch(text)}
    full = {resolve_name(name, home) for name in names if 0 < _level(name) <= home.count(".") + 1}
    return {name for name in names | full if name.startswith(f"{top}.")}


def _level(name: str) -> int:
    return len(name) - len(name.lstrip("."))


def papers(cls: type) -> tuple[str, ...]:
    """Return addresses of the papers cited in the docstring of a class, else of its module.

    A paper is cited as ``arXiv:2009.12920``, ``doi:10.1145/...`` or by its https address.
    """
    for text in (cls.__doc__, getattr(sys.modules.get(cls.__module__), "__doc__", None)):
        named = [m.groupdict() for m in PAPERS.finditer(text or "")]
        addresses = [PLACES[kind] + name for paper in named for kind, name in paper.items() if name]
        if addresses:
            return tuple(dict.fromkeys(addresses))
    return ()


def origin(spec: AgentSpec) -> Origin:
    """Return papers, source file and documentation page of a registered agent."""
    cls = spec.maker
    file = _file(cls.__module__) or Path()
    # In a checkout, the path within the repository; else that within the installed packages.
    roots = [folder for folder in file.parents if (folder / "pyproject.toml").is_file()]
    parts = cls.__module__.split(".")
    inside = file.relative_to(roots[0]) if roots else Path(*parts[:-1], file.name)
    ours = distribution(cls.__module__) == "dpb-gym"
    return Origin(
        spec.name,
        code=inside.as_posix() if file.name and parts[0] != "__main__" else "",
        papers=papers(cls),
        page=f"_generated/agents/{spec.name}.html" if ours else "",
        standing=spec.standing,
    )


def distribution(module: str) -> str | None:
    """Return the installed distribution that contains a module, None if there is none."""
    return _distribution(module.split(".")[0])


@lru_cache(maxsize=256)
def _distribution(top: str) -> str | None:
    # First by entry point: an editable install lists no files.
    for point in metadata.entry_points(group=AGENTS):
        if point.module.split(".")[0] == top and point.dist is not None:
            return str(point.dist.name)
    names = sorted(set(metadata.packages_distributions().get(top, ())))
    return names[0] if names else None


def source_reference(name: str) -> dict[str, Any]:
    """Return the origin of a registered agent's code as plain JSON values.

    Keys: ``name``, ``entry_point``, ``source`` (the hash in the keys of its cells),
    ``package`` and ``package_version`` (the distribution that contains the module, None if
    there is none), ``module``, ``file`` (name without folders), ``sha256`` (of that file) and
    ``revision`` (git, with ``-dirty`` if the file was changed; None if unknown). No path of
    this machine is included.

    Raises:
        UnknownNameError: If the agent is not registered here.
        AgentError: If its code has no file, as in a notebook.
    """
    spec = agent_spec(name)
    cls = spec.maker
    module = cls.__module__
    file = _file(module)
    if module == "__main__" or file is None:
        raise AgentError(
            f"agent {name!r} is defined in {module!r}, which others cannot import: put it into a "
            "package with an entry point in the group 'dpb_gym.agents'"
        )
    source = Path(inspect.getsourcefile(cls) or file)
    package = distribution(module)
    return {
        "name": name,
        "entry_point": spec.entry_point,
        "source": code_hash(cls),
        "package": package,
        "package_version": None if package is None else metadata.version(package),
        "module": module,
        "file": source.name,
        "sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        "revision": git_revision(source),
    }
