"""Find pages of a built site that are wider than a phone, with headless Chromium.

    python docs/_ext/phone.py docs/_build/html [--width 390]

Every page is opened in a frame of that width. The exit status is 1 if a page is wider.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from html import unescape
from pathlib import Path

PAGE = """<!doctype html><meta charset="utf-8"><body><script>
const measured = {}, frame = document.createElement("iframe");
frame.style = "width: %dpx; height: 844px; border: 0";
document.body.append(frame);
(async () => {
  for (const page of %s) {
    await new Promise((done) => { frame.onload = done; frame.src = page; });
    measured[page] = frame.contentDocument.documentElement.scrollWidth;
  }
  document.body.innerHTML = "<pre id=widths></pre>";
  document.getElementById("widths").textContent = JSON.stringify(measured);
})();
</script>"""


def widths(site: Path, width: int = 390) -> dict[str, int]:
    """Return the width of each page in a window of `width` pixels.

    Raises:
        RuntimeError: If there is no Chromium, or it measured nothing.
    """
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise RuntimeError("chromium was not found")
    pages = [p.resolve().as_uri() for p in sorted(site.rglob("*.html"))]
    with tempfile.TemporaryDirectory() as folder:
        harness = Path(folder) / "harness.html"
        harness.write_text(PAGE % (width, json.dumps(pages)), encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1000,1000"]
        options += ["--allow-file-access-from-files", "--virtual-time-budget=10000000"]
        options += [f"--user-data-dir={folder}/profile", "--dump-dom", harness.as_uri()]
        done = subprocess.run([chromium, *options], capture_output=True, text=True, timeout=300)
    read = re.search(r'<pre id="widths">(.*?)</pre>', done.stdout, re.S)
    if read is None:
        raise RuntimeError(f"chromium measured nothing: {done.stderr[-500:]}")
    measured: dict[str, int] = json.loads(unescape(read[1]))
    root = site.resolve().as_uri() + "/"
    return {page.removeprefix(root): taken for page, taken in measured.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--width", type=int, default=390)
    options = parser.parse_args()
    measured = widths(options.site, options.width)
    wide = {page: width for page, width in measured.items() if width > options.width}
    for page, width in wide.items():
        print(f"wider than {options.width} px: {page} has {width}", file=sys.stderr)
    print(f"{len(measured)} pages at {options.width} px, {len(wide)} wider")
    return 1 if wide else 0


if __name__ == "__main__":
    raise SystemExit(main())
