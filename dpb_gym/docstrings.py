"""Parsing of signatures and Google-style docstrings."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Example|Examples|Note|Yields):\s*$", re.M)
_ENTRY = re.compile(r"^(\*{0,2}\w+)(?: \([^)]*\))?:\s*", re.M)
_OTHER = re.compile(r"(?<!`)`([A-Z]\w+)`(?!`)")


@dataclass(frozen=True)
class Docstring:
    """A parsed docstring.

    Attributes:
        summary: The first paragraph.
        body: Text between summary and first section.
        sections: The sections by title, dedented.
        arguments: The section ``Args`` by argument.
    """

    summary: str = ""
    body: str = ""
    sections: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)


@lru_cache(maxsize=512)
def defaults(thing: Callable[..., Any]) -> Mapping[str, Any]:
    """Return parameters with their defaults; empty if there is no signature."""
    with suppress(TypeError, ValueError):
        known = inspect.signature(thing).parameters.items()
        return {name: p.default for name, p in known if p.default is not p.empty}
    return {}


def parse(thing: Any) -> Docstring:
    """Parse the docstring of a class or function."""
    text = inspect.getdoc(thing) or ""
    heads = list(_SECTION.finditer(text))
    lead = text[: heads[0].start()] if heads else text
    summary, _, body = lead.strip().partition("\n\n")
    sections = {}
    for head, end in zip(heads, [*(h.start() for h in heads[1:]), len(text)]):
        sections[head[1]] = textwrap.dedent(text[head.end() : end].strip("\n")).strip()
    return Docstring(_plain(summary), _plain(body), sections, entries(sections.get("Args", "")))


def entries(section: str) -> dict[str, str]:
    """Split a section such as ``Args`` into its entries, each as one paragraph."""
    heads = list(_ENTRY.finditer(section))
    found = {}
    for head, end in zip(heads, [*(h.start() for h in heads[1:]), len(section)]):
        found[head[1].lstrip("*")] = " ".join(section[head.end() : end].split())
    return found


def _plain(text: str) -> str:
    # A paragraph that ends in "::" announces a literal block, indented in both notations.
    return re.sub(r"::$", ":", text.strip(), flags=re.M)


def parameters(thing: Callable[..., Any]) -> dict[str, str]:
    """Return the description of each parameter, "" where there is none.

    A class's docstring describes only parameters that its bases do not have. If a description
    refers to another object (``See `Other` ``, or an argument list passed on), that object's
    docstring is used, too.
    """
    known: dict[str, str] = {}
    for owner in reversed(inspect.getmro(thing)) if inspect.isclass(thing) else (thing,):
        known |= parse(owner).arguments
    passed_on = known.get("args", "")
    for other in dict.fromkeys(_OTHER.findall(" ".join(known.values()))):
        target = _find(thing, other)
        if target is None:
            continue
        doc = parse(target)
        for name, text in {**entries(doc.sections.get("Attributes", "")), **doc.arguments}.items():
            if name not in known or f"ee `{other}`" in known[name]:
                known[name] = text
    names = inspect.signature(thing).parameters
    return {n: known.get(n) or (passed_on if f"``{n}``" in passed_on else "") for n in names}


def mentioned(thing: Any) -> list[str]:
    """Return descriptions of the classes that the text before the first section refers to."""
    doc = parse(thing)
    names = dict.fromkeys(_OTHER.findall(f"{doc.summary}\n{doc.body}"))
    found = {name: _find(thing, name) for name in names}
    others = {name: parse(o) for name, o in found.items() if isinstance(o, type) and o is not thing}
    return [f"`{name}`: {doc.summary}\n\n{doc.body}".strip() for name, doc in others.items()]


def _find(thing: Any, dotted: str) -> Any:
    found: Any = sys.modules[thing.__module__]
    for part in dotted.split("."):
        found = getattr(found, part, None)
    return found
