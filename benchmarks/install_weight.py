"""Disk space of the packages that an installation without extras needs.

    python benchmarks/install_weight.py [EXTRA ...]

One line per package, largest first: MB of its files without byte code, and what requires it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution

from packaging.requirements import Requirement


def required(package: Distribution, extras: tuple[str, ...] = ()) -> Iterator[Requirement]:
    """Yield the requirements that apply on this machine."""
    for text in package.requires or ():
        one = Requirement(text)
        if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in ("", *extras)):
            yield one


def weights(extras: tuple[str, ...]) -> dict[str, tuple[float, set[str]]]:
    """Return MB and the packages that require it, by package."""
    seen: dict[str, tuple[float, set[str]]] = {}
    left: list[tuple[str, str, tuple[str, ...]]] = [("dpb-gym", "", extras)]
    while left:
        name, parent, own = left.pop()
        package = distribution(name)
        name = package.metadata["Name"]
        if name not in seen:
            files = {f.locate() for f in package.files or () if f.suffix != ".pyc"}
            sizes = (file.stat().st_size for file in files if file.is_file())
            seen[name] = sum(sizes) / 1e6, set()
            left += [(one.name, name, tuple(one.extras)) for one in required(package, own)]
        seen[name][1].add(parent)
    return seen


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help="count its packages too")
    packages = weights(tuple(parser.parse_args().extras))
    for name, (size, parents) in sorted(packages.items(), key=lambda item: -item[1][0]):
        print(f"{size:8.1f} MB  {name:<24} {', '.join(sorted(parents))}")
    print(f"{sum(size for size, _ in packages.values()):8.1f} MB  {len(packages)} packages")


if __name__ == "__main__":
    main()
