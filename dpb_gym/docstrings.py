"""Parsing of signatures and Google-style docstrings."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docstring_parser.google import GoogleParser

OTHER_SECTIONS = ("Raises", "Returns", "Example", "Examples", "Note", "Yields")
_OTHER = re.compile(r"(?<!`)`([A-Z]\w+)`(?!`)")


@dataclass(frozen=True)
class Docstring:
    """A parsed docstring.

    Attributes:
        summary: The first paragraph.
        body: Text between summary and first section.
        arguments: Description of each argument, as one paragraph.
        attributes: Description of each attribute, as one paragraph.
    """

    summary: str = ""
    body: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)


@lru_cache(maxsize=512)
def defaults(thing: Callable[..., Any]) -> Mapping[str, Any]:
    """Return parameters with their defaults; empty if there is no signature."""
    with suppress(TypeError, ValueError):
        known = inspect.signature(thing).parameters.items()
        return {name: p.default for name, p in known if p.default is not p.empty}
    return {}


def parse(thing: Any) -> Docstring:
    """Parse the docstring of a class or function."""
    from docstring_parser import ParseError  # `import dpb_gym` parses no docstring

    text = inspect.getdoc(thing) or ""
    parser = _parser()
    try:
        parsed = parser.parse(text)
    except ParseError:  # a section without entries, as others' agents may have
        parsed = parser.parse(parser.titles_re.split(text)[0])
    summary, _, body = (parsed.description or "").partition("\n\n")
    descriptions: dict[str, dict[str, str]] = {"param": {}, "attribute": {}}
    for entry in parsed.params:
        descriptions[entry.args[0]][entry.arg_name.lstrip("*")] = " ".join(
            str(entry.description).split()
        )
    return Docstring(
        _plain(summary), _plain(body), descriptions["param"], descriptions["attribute"]
    )


@lru_cache
def _parser() -> GoogleParser:
    from docstring_parser.google import GoogleParser, Section, SectionType

    return GoogleParser(
        [
            Section("Args", "param", SectionType.MULTIPLE),
            Section("Attributes", "attribute", SectionType.MULTIPLE),
            *(Section(title, title.lower(), SectionType.SINGULAR) for title in OTHER_SECTIONS),
        ]
    )


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
        for name, text in {**doc.attributes, **doc.arguments}.items():
            if name not in known or f"ee `{other}`" in known[name]:
                known[name] = text
    names = inspect.signature(thing).parameters
    return {n: known.get(n) or (passed_on if f"``{n}``" in passed_on else "") for n in names}


def mentioned(thing: Any) -> list[str]:
    """Return descriptions of the classes that the text before the first section refers to."""
    doc = parse(thing)
    names = dict.fromkeys(_OTHER.findall(f"{doc.summary}\n{doc.body}"))
    targets = {name: _find(thing, name) for name in names}
    others = {
        name: parse(o) for name, o in targets.items() if isinstance(o, type) and o is not thing
    }
    return [f"`{name}`: {doc.summary}\n\n{doc.body}".strip() for name, doc in others.items()]


def _find(thing: Any, dotted: str) -> Any:
    target: Any = sys.modules[thing.__module__]
    for part in dotted.split("."):
        target = getattr(target, part, None)
    return target
