"""Fail if tracked texts have words that the style excludes: python docs/_ext/wording.py.

Use the field's terms: baseline for yardstick, untrusted for a stranger's, agents for the zoo.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUFFIXES = {".py", ".md", ".yaml", ".yml", ".css", ".js", ".j2"}
WORDS = re.compile(
    r"\b(the house|as house|(?<!-)zoo|yardsticks?|who(m|se)?ever|anew|hearths?|riddles?|senseless"
    r"|nobody['’]s|strangers?['’]?s?|told apart|of one['’]s own|foretold?)\b",
    re.IGNORECASE,
)


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    hits = 0
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix not in SUFFIXES or path == Path(__file__) or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for match in WORDS.finditer(line):
                print(f"{name}:{number}: {match[0]!r} in {line.strip()[:90]!r}", file=sys.stderr)
                hits += 1
    return min(hits, 1)


if __name__ == "__main__":
    sys.exit(main())
