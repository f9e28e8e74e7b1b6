"""Take pictures of the site: `python -m tests.browser.screenshots OUTDIR [page …]`.

Every page, or those that are named (`home`, `guide`, `security/pickle`), whole, at 1440 and
390 pixels, light and dark.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.browser.site import PAGES, SCHEMES, WIDTHS, chromium, chromium_path, serving, visitor
from tests.harness.shared import BuildFailed, built


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pictures and print their names."""
    parser = argparse.ArgumentParser(prog="screenshots", description=__doc__)
    parser.add_argument("outdir", type=Path)
    parser.add_argument("pages", nargs="*", metavar="page")
    chosen = parser.parse_args(arguments)
    if chromium_path() is None:
        print("There is no Chromium here. Install chromium.", file=sys.stderr)
        return 1
    try:
        take(chosen.outdir, chosen.pages)
    except BuildFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def take(outdir: Path, names: Sequence[str]) -> None:
    """Build, open each page in each form, and save it."""
    outdir.mkdir(parents=True, exist_ok=True)
    wanted = ["" if name == "home" else name.strip("/") + "/" for name in names]
    with serving(built()[0]) as site, chromium() as it:
        for scheme in SCHEMES:
            for width in WIDTHS:
                window = {"width": width, "height": 900}
                with visitor(it, color_scheme=scheme, viewport=window) as context:
                    page = context.new_page()
                    for name in wanted or PAGES:
                        page.goto(site.address + name, wait_until="networkidle")
                        title = name.strip("/").replace("/", "-") or "home"
                        file = outdir / f"{title}-{width}-{scheme}.png"
                        # Playwright resizes the window; without this, half-way states are pictured.
                        page.screenshot(path=file, full_page=True, animations="disabled")
                        print(file)


if __name__ == "__main__":
    raise SystemExit(main())
