"""What holds for the repository as a whole: what is in it, and which part may use which.

One test per claim, which lists every place that breaks it. Each file is read and parsed once.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.harness import size
from tests.harness.floors import NETS, floors

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"


WALLS = {
    "core": {"core"},
    "stores": {"core", "stores"},
    "resume": {"core", "resume"},
    "shared": {"core", "stores", "resume", "places", "settings", "rules", "shared"},
}
"""What each of these folders may import of the package."""

EXECUTE_ON_LOAD = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}

MODULES = sorted(SRC.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def files(*which: str) -> list[str]:
    """List files as git sees them."""
    git = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", *which]
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout, so there is no list of the files that belong to it")
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


@cache
def own_files() -> list[str]:
    """List what is tracked or about to be: everything that is not ignored."""
    return files("--cached", "--others", "--exclude-standard")


def name_of(path: Path) -> str:
    """Turn `src/safepoint/stores/files.py` into `safepoint.stores.files`."""
    return ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    """Yield the full name of each module that the file imports when it runs, wherever it does."""
    for_types = {
        inner
        for node in tree(path).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree(path)):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: name the whole module"
            module = node.module or ""
            for alias in node.names:
                inner = SRC.joinpath(*module.split("."), alias.name)
                is_module = inner.with_suffix(".py").is_file() or inner.is_dir()
                yield f"{module}.{alias.name}" if is_module else module


def part(module: str) -> str:
    """Name the part of the house that a module belongs to: `core` for `safepoint.core.keys`."""
    return module.split(".")[1] if "." in module else module


@pytest.mark.parametrize(
    "forbidden",
    [
        # `/home/you` is what pages show for the folder that a reader works in.
        pytest.param(
            rb"(?<![\w.~>])/(?:home/(?!you\b)|Users/|root/|work/)[\w.]", id="path-of-one-machine"
        ),
        pytest.param(rb"https?://[^\s]*(?:pypi|pythonhosted|npmjs|debian)\.[a-z]", id="registry"),
    ],
)
def test_no_file_names_a_machine_or_a_registry(forbidden: bytes) -> None:
    found = [
        f"{name}:{number}"
        for name in own_files()
        for number, line in enumerate((ROOT / name).read_bytes().splitlines(), 1)
        if re.search(forbidden, line)
    ]
    assert found == []


@pytest.mark.parametrize("name", NETS)
def test_the_oldest_releases_of_an_extra_are_those_that_its_page_and_its_error_name(
    name: str,
) -> None:
    """`make floors` runs them. It reads the extras."""
    page = " ".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").split())
    source = (SRC / "safepoint" / f"{name.replace('-', '_')}.py").read_text(encoding="utf-8")
    for package, version in (pin.split("==") for pin in floors(name)):
        if package.startswith(("lang", "agent")):
            assert f"`{package}>={version}`" in page
            assert re.findall(rf"{package}, ([0-9.]+) or newer", source) in ([], [version])


@pytest.mark.parametrize("folder", WALLS)
def test_a_folder_stands_on_what_is_below_it(folder: str) -> None:
    found = [
        f"{name_of(path)} imports {module}"
        for path in MODULES
        if part(name_of(path)) == folder
        for module in imports(path)
        if module.split(".")[0] == "safepoint" and part(module) not in WALLS[folder]
    ]
    assert found == []


def test_no_wing_imports_the_command() -> None:
    """What both need is in `shared`."""
    found = [
        f"{name_of(path)} imports {module}"
        for path in MODULES
        if part(name_of(path)) not in ("command", "__main__")
        for module in imports(path)
        if module.startswith("safepoint.command")
    ]
    assert found == []


def test_no_folder_is_larger_than_its_ceiling() -> None:
    over = [row for row in size.measure() if row.lines > row.ceiling]
    assert not over, "take an idea out, or raise it in tests/harness/size.py and say why"


def test_the_size_of_the_core_is_the_one_that_is_said() -> None:
    core = next(row for row in size.measure() if row.name == "core")
    for name in ("README.md", "CONTRIBUTING.md"):
        text = " ".join((ROOT / name).read_text(encoding="utf-8").split())
        assert f"{core.lines:,} lines of code in {core.files} files" in text, name


def test_only_attacks_import_the_unsafe_twin() -> None:
    """Nothing to copy or to measure does, either."""
    others = [path for path in MODULES if part(name_of(path)) != "attacks"]
    for folder in ("snippets", "benchmarks"):
        others += (ROOT / folder).rglob("*.py")
    assert [path.name for path in others if is_unsafe(path)] == []


def is_unsafe(path: Path) -> bool:
    return any(re.match(r"safepoint\.(attacks\.)?naive\b", module) for module in imports(path))


def test_only_the_unsafe_twin_imports_what_executes_on_load() -> None:
    """And the reader of pickles, whose unpickler hands out names and imports nothing."""
    found = [
        f"{name_of(path)} imports {module}"
        for path in MODULES
        for module in imports(path)
        if path.stem != "naive" and module.split(".")[0] in EXECUTE_ON_LOAD
    ]
    assert found == ["safepoint.models.opcodes imports pickle"]
    opcodes = (ROOT / "src/safepoint/models/opcodes.py").read_text(encoding="utf-8")
    assert re.findall(r"\bpickle\.\w+", opcodes) == ["pickle.Unpickler", "pickle.HIGHEST_PROTOCOL"]
