"""Commit a built site beside those of earlier versions, with the list that the switcher reads.

    python docs/_ext/versions.py docs/_build/html --branch site

The new site is the root of the branch and also in ``VERSION/``. Folders of other versions stay. The
list is ``versions.json``, the newest version first.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import dpb_gym

VERSION = re.compile(r"\d+(\.\d+)+([a-z]+\d+)?")


def place(built: Path, out: Path, version: str) -> list[str]:
    """Copy a built site into a folder and return the versions in it, the newest first.

    Args:
        built: Folder of the built site.
        out: Folder of all versions; its other versions stay.
        version: The built version.
    """
    for folder in (out, out / version):
        shutil.copytree(built, folder, dirs_exist_ok=True)
    versions = [
        path.name for path in out.iterdir() if path.is_dir() and VERSION.fullmatch(path.name)
    ]
    versions.sort(key=lambda name: [int(n) for n in re.findall(r"\d+", name)], reverse=True)
    (out / "versions.json").write_text(json.dumps(versions) + "\n", encoding="utf-8")
    return versions


def git(*words: str, **environment: str) -> str:
    """Run git and return what it prints, empty if it fails."""
    done = subprocess.run(
        ["git", *words], env={**os.environ, **environment}, capture_output=True, text=True
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def commit(built: Path, branch: str, version: str) -> list[str]:
    """Commit a site to a branch, which is made if it is missing, and return its versions.

    Neither the checkout nor its index changes.
    """
    with tempfile.TemporaryDirectory() as folder:
        tree, own = Path(folder, "tree"), {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        tree.mkdir()
        last = git("rev-parse", "--verify", "--quiet", f"origin/{branch}")
        last = last or git("rev-parse", "--verify", "--quiet", branch)
        if last:
            git("read-tree", last, **own)
            git("checkout-index", "--all", f"--prefix={tree}/", **own)
            for path in tree.iterdir():
                if not VERSION.fullmatch(path.name):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        versions = place(built, tree, version)
        (tree / ".nojekyll").touch()
        git(f"--work-tree={tree}", "add", "--all", "--force", str(tree), **own)
        parent = ["-p", last] if last else []
        made = git("commit-tree", git("write-tree", **own), *parent, "-m", f"Site of {version}")
        if not made or git("update-ref", f"refs/heads/{branch}", made):
            raise SystemExit(f"the site could not be committed to {branch}")
    return versions


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("built", type=Path)
    parser.add_argument("--branch", default="site")
    options = parser.parse_args()
    print(*commit(options.built.resolve(), options.branch, dpb_gym.__version__), sep="\n")
