"""`safepoint examples`: a copy is what was vetted, and says what it is."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from safepoint.command.examples import mark, read_examples
from tests.unit.commands import said

ROOT = Path(__file__).parents[2]


def test_each_is_listed_with_its_rules_and_copied_with_a_line_that_says_what_it_is(
    tmp_path: Path,
) -> None:
    status, out, err = said("examples")
    lines = out.splitlines()
    names = [line.split()[0] for line in lines]
    assert (status, err) == (0, "")
    assert names == sorted(file.name for file in (ROOT / "snippets").glob("*.*"))
    assert [line.split()[1:4] for line in lines if line.startswith("strict_codec.py ")] == [
        ["SP03", "SP09", "An"]
    ]
    for name in names:
        assert said("examples", name, folder=tmp_path)[0] == 0
        copied = (tmp_path / name).read_text().splitlines(keepends=True)
        source = (ROOT / "snippets" / name).read_text().splitlines(keepends=True)
        vetted = [line for line in source if "# --8<--" not in line]
        line = copied.pop(vetted[0].startswith("#!"))
        assert copied == vetted
        sha256 = hashlib.sha256("".join(vetted).encode()).hexdigest()
        assert line == f"# safepoint example {name} 0.1.0 sha256:{sha256}\n"
        mode = 0o755 if name.endswith(".sh") else 0o644
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode


def test_a_copy_is_never_over_another(tmp_path: Path) -> None:
    (tmp_path / "anchored.py").write_bytes(b"mine = 1\n")
    why = "anchored.py already exists here. Nothing was copied. Copy it into another folder"
    status, out, err = said("examples", "anchored.py", folder=tmp_path)
    assert (status, out, err.startswith(why)) == (2, "", True)
    assert (tmp_path / "anchored.py").read_bytes() == b"mine = 1\n"


def test_an_installed_package_has_them(tmp_path: Path) -> None:
    """Built as pip does it: a wheel, from the source distribution."""
    tree = tmp_path / "tree"
    for name in ("src", "snippets"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, tree / name)

    def build(folder: Path, target: str) -> Path:
        command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(tmp_path)]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        return next(tmp_path.glob("*.whl" if target == "wheel" else "*.gz"))

    with tarfile.open(build(tree, "sdist")) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # from 3.11.4
        archive.extractall(tmp_path / "source")  # noqa: S202  our own
    there = tmp_path / "there"
    with zipfile.ZipFile(build(next((tmp_path / "source").iterdir()), "wheel")) as wheel:
        wheel.extractall(there)  # noqa: S202  our own
    code = "import sys, safepoint.command.cli as c; print(c.__file__); sys.exit(c.main())"
    command = [sys.executable, "-P", "-c", code, "examples", "anchored.py"]
    environment = os.environ | {"PYTHONPATH": str(there)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{there}/safepoint/command/cli.py\nCopied anchored.py 0.1.0.\n"
    assert (tmp_path / "anchored.py").read_bytes() == mark(
        "anchored.py", read_examples()["anchored.py"]
    )
