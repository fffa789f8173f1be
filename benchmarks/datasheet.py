"""Metadata of the published benchmark: Croissant, and the table of its real data sets.

    python benchmarks/datasheet.py [docs/leaderboard/dpb-bench-v1]

Writes NAME.croissant.json beside the result and the table of docs/data.md.
`benchmarks/published.py` calls it. Croissant 1.0: http://mlcommons.org/croissant/1.0.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import dpb_data
from dpb_gym.suites.suite import load_suite

ROOT = Path(__file__).parents[1]
TERMS = """citeAs column equivalentProperty extract field fileObject fileProperty fileSet format
includes isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace
samplingRate separator source subField transform"""
CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{term: f"cr:{term}" for term in TERMS.split()},
}
FIELDS = {
    "cell": "Key of the cell in manifest.json",
    "task": "Task of the suite",
    "agent": "Label of the agent",
    "budget": "Privacy budget, none without one",
    "replicate": "Number of the replicate",
    "seed": "Seed of the replicate",
    "final_regret": "Cumulative pseudo-regret at the horizon",
    "final_reward": "Cumulative reward at the horizon",
    "rounds": "Recorded rounds",
    "regret": "Cumulative pseudo-regret at the recorded rounds",
    "reward": "Cumulative reward at the recorded rounds",
}


USES = (
    "Compare agents at equal privacy, and test a new agent. Not intended: to choose a method for "
    "people whose data differ from these, or to claim privacy of the raters."
)
REAL = [known for known in dpb_data.datasets() if not known.generated]


def croissant(result: Path) -> dict[str, Any]:
    """Return the metadata of a published result as JSON-LD."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    suite, site = load_suite(result.name), project["urls"]["Documentation"]
    manifest = json.loads((result / "manifest.json").read_text(encoding="utf-8"))
    files = {"result.parquet": "application/x-parquet", "manifest.json": "application/json"}
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": result.name,
        "description": f"{suite.title}. {suite.description.strip()} Regret of every agent at every "
        "budget and replicate; no record of a real customer is included.",
        "url": f"{site}leaderboard/{result.name}.html",
        "license": "https://spdx.org/licenses/MIT.html",
        "creator": {"@type": "Organization", "name": project["authors"][0]["name"]},
        "datePublished": manifest["updated"][:10],
        "version": "1.0.0",
        "citeAs": f"The dpb-gym developers. {suite.title}. {project['urls']['Source']}",
        "keywords": project["keywords"],
        "isBasedOn": [
            {"@type": "sc:Dataset", "name": d.name, "url": d.homepage, "usageInfo": d.terms}
            for d in REAL
        ],
        "rai:dataUseCases": USES,
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": name,
                "name": name,
                "contentUrl": f"{site}leaderboard/{result.name}/{name}",
                "encodingFormat": form,
                "sha256": hashlib.sha256((result / name).read_bytes()).hexdigest(),
            }
            for name, form in files.items()
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "results",
                "name": "results",
                "description": "One record per cell and replicate.",
                "field": [_field(one) for one in pq.read_schema(result / "result.parquet")],
            }
        ],
    }


def _field(column: pa.Field) -> dict[str, Any]:
    listed = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    kind = column.type.value_type if listed else column.type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    integer, real = pa.types.is_integer(kind), pa.types.is_floating(kind)
    field = {
        "@type": "cr:Field",
        "@id": f"results/{column.name}",
        "name": column.name,
        "description": FIELDS[column.name],
        "dataType": "sc:Integer" if integer else "sc:Float" if real else "sc:Text",
        "source": {"fileObject": {"@id": "result.parquet"}, "extract": {"column": column.name}},
    }
    return field | ({"repeated": True} if listed else {})


def table() -> str:
    """Return the real data sets that suites use, with their terms, in Markdown."""
    lines = ["| data set | content | terms | citation |", "|---|---|---|---|"]
    for known in REAL:
        name = f"[`{known.name}`]({known.homepage})"
        cells = (name, known.description, known.terms, known.citation)
        lines.append("| " + " | ".join(" ".join(str(c).split()) for c in cells) + " |")
    return "\n".join(lines)


def text(result: Path) -> str:
    """Return the metadata as the text of the file."""
    return json.dumps(croissant(result), indent=1, ensure_ascii=False) + "\n"


def write(result: Path, repository: Path) -> None:
    """Write the metadata of a result and the table of the datasheet."""
    result.with_suffix(".croissant.json").write_text(text(result), encoding="utf-8")
    page = repository / "docs" / "data.md"
    before, mark, rest = page.read_text(encoding="utf-8").partition("<!-- data -->\n")
    _, end, after = rest.partition("<!-- /data -->")
    page.write_text(f"{before}{mark}{table()}\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    published = ROOT / "docs/leaderboard/dpb-bench-v1"
    parser.add_argument("result", nargs="?", type=Path, default=published)
    write(parser.parse_args().result, ROOT)
