"""`python -m benchmarks.scanners`: what scanners find in the corpus, and what they suspect in vain.

Each tool looks at each file of `tests.corpus`: pickles that execute, and honest ones. The rates are
printed for each tool and class, with 95 % intervals. Which gadget passes which tool is not: that
would be a recipe. With `--page` the tables are written into the page about scanners.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from benchmarks.rates import Found, Verdict, tables, written
from tests.corpus.benign import BENIGN
from tests.corpus.embed import as_archive
from tests.corpus.forked import attempt
from tests.corpus.gadgets import GADGETS
from tests.harness.blocks import ROOT

PAGE = ROOT / "docs" / "security" / "scanners.md"


class Sample(NamedTuple):
    """A file of the corpus, and its class."""

    path: Path
    family: str


Look = Callable[[Path], Verdict]


def _fickling(path: Path) -> Verdict:
    from fickling import is_likely_safe, scan_zip_archive

    if path.read_bytes()[:2] != b"PK":
        return Verdict.CLEAN if is_likely_safe(str(path)) else Verdict.DANGEROUS
    members = scan_zip_archive(str(path))
    if not members:
        return Verdict.NONE
    return Verdict.CLEAN if all(members.values()) else Verdict.DANGEROUS


def _picklescan(*, strict: bool) -> Look:
    from picklescan.scanner import scan_file_path

    def look(path: Path) -> Verdict:
        result = scan_file_path(str(path), strict=strict)
        if result.issues_count:
            return Verdict.DANGEROUS
        return Verdict.CLEAN if result.scanned_files and not result.scan_err else Verdict.NONE

    return look


def _modelscan(path: Path) -> Verdict:
    from modelscan.modelscan import ModelScan

    report = ModelScan().scan(str(path))
    if report["summary"]["total_issues"]:
        return Verdict.DANGEROUS
    scanned = report["summary"]["scanned"]["total_scanned"]
    return Verdict.CLEAN if scanned and not report["errors"] else Verdict.NONE


def _scan(path: Path) -> Verdict:
    from safepoint.models import inspect

    return Verdict.CLEAN if inspect(path).plain else Verdict.DANGEROUS


def _one_by_one(look: Look) -> Callable[[Sequence[Path]], list[Verdict]]:
    """A tool that looks at one file. What it raises is no verdict."""

    def safely(path: Path) -> Verdict:
        try:
            return look(path)
        except Exception:  # noqa: BLE001  each tool has its own
            return Verdict.NONE

    return lambda paths: [safely(path) for path in paths]


def _loading(act: str, *imports: str) -> Callable[[Sequence[Path]], list[Verdict]]:
    """A loader, in children: to refuse a file is to call it dangerous."""

    def load(paths: Sequence[Path]) -> list[Verdict]:
        files = {str(path): path for path in paths}
        tried = attempt(f"tests.corpus.acts:{act}", files, imports=imports)
        if any(one.ran for one in tried.values()):
            raise RuntimeError(f"{act} executed a payload.")
        return [
            Verdict.DANGEROUS if one.error else Verdict.NONE if one.ended else Verdict.CLEAN
            for one in tried.values()
        ]

    return load


def measure() -> list[Found]:
    """Run every tool on the corpus."""
    scanners = {
        _named("fickling", "`is_likely_safe`"): _fickling,
        _named("picklescan"): _picklescan(strict=False),
        _named("picklescan", "strict"): _picklescan(strict=True),
        _named("modelscan"): _modelscan,
        "`safepoint scan`": _scan,
    }
    found = []
    with _corpus() as (gadgets, in_models, benign), _quiet():
        for tool, look in scanners.items():
            look_at = _one_by_one(look)
            found.append(Found(tool, _by_class(look_at, gadgets), _by_class(look_at, benign)))
        models = [sample for sample in benign if sample.path.suffix == ".pt"]
        torch = _loading("torch_weights_only", "torch")
        name = _named("torch", "`weights_only`")
        found.append(Found(name, _by_class(torch, in_models), _by_class(torch, models), loads=True))
        ours = _loading("moved", "torch", "safepoint.models")
        refused, vain = _by_class(ours, gadgets), _by_class(ours, benign)
        found.append(Found("safepoint, allow-list", refused, vain, loads=True))
    return found


def _named(package: str, how: str = "") -> str:
    # PyTorch's version may end in the kind of its build, as in 2.13.0+cpu.
    name = f"{package} {version(package).partition('+')[0]}"
    return f"{name}, {how}" if how else name


def _by_class(
    look: Callable[[Sequence[Path]], list[Verdict]], samples: Iterable[Sample]
) -> dict[str, list[Verdict]]:
    samples = list(samples)
    verdicts: dict[str, list[Verdict]] = {}
    for sample, verdict in zip(samples, look([one.path for one in samples]), strict=True):
        verdicts.setdefault(sample.family, []).append(verdict)
    return verdicts


@contextmanager
def _corpus() -> Iterator[tuple[list[Sample], list[Sample], list[Sample]]]:
    """Write the corpus: the gadgets as pickles, the gadgets in model files, the honest files."""
    with tempfile.TemporaryDirectory(prefix="safepoint-scanners-") as folder:

        def write(number: int, suffix: str, family: str, make: Callable[[Path], bytes]) -> Sample:
            inside = Path(folder, f"{number}{suffix}")
            (inside / "left").mkdir(parents=True)
            path = inside / f"file{suffix}"
            path.write_bytes(make(inside / "left" / "marker"))
            return Sample(path, family)

        gadgets = [write(n, ".pkl", g.family, g.pickle) for n, g in enumerate(GADGETS)]
        models = [
            write(n, ".pt", g.family, lambda marker, g=g: as_archive(g.pickle(marker)))  # type: ignore[misc]
            for n, g in enumerate(GADGETS)
        ]
        benign = [
            write(len(GADGETS) + n, b.suffix, b.family, lambda _, b=b: b.make())  # type: ignore[misc]
            for n, b in enumerate(BENIGN)
        ]
        yield gadgets, models, benign


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the tools' own reports, which name what they found, off the screen."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def main() -> None:
    """Measure, and print the tables or write them into the page."""
    parser = argparse.ArgumentParser(prog="benchmarks.scanners", description=__doc__)
    parser.add_argument("--page", action="store_true", help="write the tables into the page")
    write = parser.parse_args().page
    measured = tables(measure())
    sys.stdout.write(
        f"{len(GADGETS)} gadgets, {len(BENIGN)} honest files. In brackets: 95 % intervals.\n"
    )
    sys.stdout.writelines(f"\n{table}\n" for table in measured.values())
    if write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(written(page, measured), encoding="utf-8")


if __name__ == "__main__":
    main()
