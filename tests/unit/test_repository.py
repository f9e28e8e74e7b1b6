"""What holds for the repository as a whole: what is in it, and which part may use which."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"

TOP_LEVEL = {
    ".ci",
    ".editorconfig",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "benchmarks",
    "bootstrap.py",
    "conftest.py",
    "docs",
    "mkdocs.yml",
    "overrides",
    "publish",
    "pyproject.toml",
    "requirements.txt",
    "snippets",
    "src",
    "tests",
}

# A module may import its own layer and those above it in this list. `safepoint` is the package's
# own `__init__`, which offers the names that applications use.
LAYERS = (
    {"errors", "names", "rules"},
    {"codec", "keys", "record", "tools", "files", "sqlite", "progress", "approval"},
    {"storage", "anchor", "journal", "postgres"},
    {"verify", "ledger", "gate", "workflow", "migrate", "places", "safepoint"},
    {"command"},
    {"pickles", "weights", "lint", "testing", "explain"},
    {"integrations", "attacks", "audit"},
    {"cli"},
)
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}

EXECUTE_ON_LOAD = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
SIGNATURES = {"mac", "hmac", "sign", "signature", "tag", "secret", "seed", "identity"}
# A text against its own re-encoding: no secret is involved.
IS_IT_CANONICAL = "base64.b64encode(signature) != signature_text"

MODULES = sorted(SRC.rglob("*.py"))
each_module = pytest.mark.parametrize(
    "path", MODULES, ids=lambda path: path.relative_to(SRC).as_posix()
)


def files(*which: str) -> list[str]:
    """List files as git sees them."""
    git = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", *which]
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout, so there is no list of the files that belong to it")
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def own_files() -> list[str]:
    """List what is tracked or about to be: everything that is not ignored."""
    return files("--cached", "--others", "--exclude-standard")


def name_of(path: Path) -> str:
    """Turn `src/safepoint/storage/file.py` into `safepoint.storage.file`."""
    return ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    """Yield the full name of each module that the file imports, wherever it does so."""
    package = name_of(path).split(".") if path.is_relative_to(SRC) else []
    if package and path.name != "__init__.py":
        package.pop()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            for alias in node.names:
                inner = SRC.joinpath(*module.split("."), alias.name)
                is_module = inner.with_suffix(".py").is_file() or inner.is_dir()
                yield f"{module}.{alias.name}" if is_module else module


def part(module: str) -> str:
    """Name the part of the house that a module belongs to: `storage` for `safepoint.storage.x`.

    A private one, `_codec`, belongs to the public one that it is named for.
    """
    return module.split(".")[1].lstrip("_") if "." in module else module


def offenders(
    path: Path, kind: type[ast.AST], is_wrong: Callable[[ast.AST], bool] = lambda _: True
) -> list[str]:
    """List where a kind of node stands that must not."""
    found = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kind))
    return [f"{path.name}:{getattr(node, 'lineno', '?')}" for node in found if is_wrong(node)]


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


def test_nothing_generated_is_tracked() -> None:
    generated = re.compile(r"(site|build|dist|\.venv)/|.*(__pycache__|_cache/|\.egg-info|\.pyc$)")
    assert [name for name in files("--cached") if generated.match(name)] == []


def test_top_level_is_the_one_in_the_map() -> None:
    assert {name.partition("/")[0] for name in own_files()} == TOP_LEVEL


def test_requirements_pin_everything_to_one_version() -> None:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert pins
    assert [line for line in pins if not re.fullmatch(r"[\w.-]+==[\w.!+]+", line)] == []


def test_there_are_modules_to_look_at() -> None:
    """The tests below say nothing if the folder is empty."""
    assert {"errors", "codec", "record", "ledger", "naive"} <= {path.stem for path in MODULES}


@each_module
def test_module_has_a_place_in_the_layers(path: Path) -> None:
    assert part(name_of(path)) in LAYER


@each_module
def test_imports_run_one_way(path: Path) -> None:
    own = len(LAYERS) if path.name == "__main__.py" else LAYER[part(name_of(path))]
    upwards = [
        module
        for module in imports(path)
        if module.split(".")[0] == "safepoint" and LAYER[part(module)] > own
    ]
    assert upwards == []


@each_module
def test_only_attacks_import_the_unsafe_twin(path: Path) -> None:
    if part(name_of(path)) != "attacks":
        assert "safepoint.attacks.naive" not in set(imports(path))


@pytest.mark.parametrize("folder", ["snippets", "benchmarks"])
def test_nothing_to_copy_or_to_measure_imports_the_unsafe_twin(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    assert [path.name for path in paths if "safepoint.attacks.naive" in imports(path)] == []


@pytest.mark.parametrize(
    "line",
    [
        "import safepoint.attacks.naive",
        "from safepoint.attacks import naive",
        "def f():\n    from safepoint.attacks.naive import NaiveLedger",
    ],
)
def test_an_import_of_the_unsafe_twin_is_seen(line: str, tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text(line)
    assert "safepoint.attacks.naive" in imports(file)


@each_module
def test_only_the_unsafe_twin_imports_what_executes_on_load(path: Path) -> None:
    if name_of(path) != "safepoint.attacks.naive":
        assert {module.split(".")[0] for module in imports(path)} & EXECUTE_ON_LOAD == set()


@each_module
def test_no_check_is_an_assert(path: Path) -> None:
    """`python -O` removes them."""
    assert offenders(path, ast.Assert) == []


@each_module
def test_no_failure_is_swallowed_unseen(path: Path) -> None:
    def swallows(node: ast.AST) -> bool:
        assert isinstance(node, ast.ExceptHandler)
        catches_all = node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"}
        return catches_all and all(
            isinstance(line, ast.Pass | ast.Continue)
            or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
            for line in node.body
        )

    assert offenders(path, ast.ExceptHandler, swallows) == []


@each_module
def test_annotations_are_not_evaluated(path: Path) -> None:
    assert "from __future__ import annotations\n" in path.read_text()


def compared_by_value(path: Path) -> list[str]:
    """List where a signature, or what names a key, is compared in variable time."""

    def is_signature(operand: ast.expr) -> bool:
        while isinstance(operand, ast.Subscript):
            operand = operand.value
        if isinstance(operand, ast.Call):
            operand = operand.func
        words = getattr(operand, "attr", getattr(operand, "id", "")).lower().split("_")
        return not SIGNATURES.isdisjoint(words)

    def compares_signatures(node: ast.AST) -> bool:
        assert isinstance(node, ast.Compare)
        by_value = any(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in node.ops)
        return (
            by_value
            and any(map(is_signature, [node.left, *node.comparators]))
            and ast.unparse(node) != IS_IT_CANONICAL
        )

    return offenders(path, ast.Compare, compares_signatures)


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if part(name_of(path)) in {"keys", "seal"}],
    ids=lambda path: path.relative_to(SRC).as_posix(),
)
def test_signatures_are_compared_in_constant_time(path: Path) -> None:
    assert compared_by_value(path) == []


@pytest.mark.parametrize(
    "line",
    [
        "return self.sign(message) == signature",
        "return signature in [expected]",
        "if self._verifier.identity != other: raise",
        "return self._secret[:8] == other",
    ],
)
def test_a_signature_that_is_compared_by_value_is_seen(line: str, tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text(line)
    assert compared_by_value(file) == ["x.py:1"]


def test_signatures_are_compared_at_all() -> None:
    """One place verifies a MAC, and one tells two keys apart."""
    assert (SRC / "safepoint" / "keys.py").read_text().count("hmac.compare_digest(") == 2
