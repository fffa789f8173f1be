"""YAML as people expect it: ``1e-5`` is a number and no key may appear twice."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    pass


def _mapping(loader: _Loader, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
    seen = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if isinstance(key, Hashable) and key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} appears twice", key_node.start_mark
            )
        seen.add(key)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
# YAML 1.1 reads 1e-5 as text: its numbers need a point and a signed exponent.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def parse_yaml(text: str) -> Any:
    """Parses YAML.

    Raises:
        ValueError: If the text is not YAML or a key appears twice; one line.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        raise ValueError(f"{where}{error.problem}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(str(error).split("\n")[0]) from None
