"""Store the digests of today's agents in all stored results, without a new run.

``python benchmarks/rekey.py`` is for changes of code that cannot change a number, and for those
after which ``dpb verify`` found every number again. A test fails where a stored digest differs from
that of today's code. Digests of suites and figures stay: other rounds or seeds need a new run.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paper_pages import code

from dpb_gym import agent_specs
from dpb_gym.audits.audit_records import PUBLISHED
from dpb_gym.suites.code_digest import code_hash

DOCS = Path(__file__).parents[1] / "docs"


def stored_digests(value: Any) -> Iterator[tuple[str, str]]:
    """Yield every agent of a stored result with the digest of its code."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        digest = part.get("code") if isinstance(part, dict) else part
        if key in agent_specs() and re.fullmatch("[0-9a-f]{16}", str(digest)):
            yield key, digest
        if isinstance(part, (dict, list)):
            yield from stored_digests(part)


def rekeyed(text: str) -> str:
    """Return the text of a stored result with the digests of today."""
    for agent, digest in stored_digests(json.loads(text)):
        text = text.replace(f'"{digest}"', f'"{code(agent)}"')
    return text


def rekeyed_audits(text: str) -> str:
    """Return the text of the published audits with both digests of today's code."""
    stored = json.loads(text)
    for name, record in stored.items():
        record |= {"code": code(name), "source": code_hash(agent_specs()[name].maker)}
    return json.dumps(stored, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    PUBLISHED.write_text(rekeyed_audits(PUBLISHED.read_text(encoding="utf-8")), encoding="utf-8")
    for path in sorted(DOCS.glob("**/results/**/*.json")):
        stored = path.read_text(encoding="utf-8")
        if (new := rekeyed(stored)) != stored:
            path.write_text(new, encoding="utf-8")
            print(path.relative_to(DOCS))
