"""Whose settings count: those that somebody named, or the user's own; a found file is data."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from safepoint.core.errors import ConfigurationError, Unavailable
from safepoint.core.keys import SigningKey
from safepoint.core.names import Head
from safepoint.places import default_places, open_answers, open_ledger
from safepoint.resume.gate import Gate
from safepoint.settings import VARIABLE, open_store, read
from safepoint.shared.desk import Desk
from tests.harness.optional import need
from tests.unit.commands import said


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that somebody else wrote, with the user in it, who has a home."""
    folder, home = tmp_path / "clone", tmp_path / "home"
    for each in (folder, home):
        each.mkdir(mode=0o700)
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "STATE_DIRECTORY", VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(folder)
    (folder / "code.py").write_text("print('hello')\n")
    return folder


def own(text: str) -> Path:
    """Write the user's own settings."""
    file = Path.home() / ".config/safepoint/safepoint.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_a_planted_file_decides_nowhere_to_connect(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plain audit is what the hook and the action run, and libpq would bring the password."""
    need("psycopg", "needs safepoint[postgres]")
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    with socket.create_server(("127.0.0.1", 0)) as evil:
        evil.settimeout(0.1)
        dsn = f"host=127.0.0.1 port={evil.getsockname()[1]} connect_timeout=2"
        planted = f'[audit]\npaths = ["code.py"]\n[stores.x]\nstorage = "{dsn}"\n'
        (clone / "safepoint.toml").write_text(planted)
        for line in ("audit", "audit code.py", "audit --store x", "verify x", "waiting x"):
            status, out, err = said(*line.split())
            assert (status, out, err.count("\n")) == (2, "", 1), line
            with pytest.raises(TimeoutError):
                evil.accept()


@pytest.mark.parametrize("part", ["storage", "answers"])
def test_a_part_that_is_lost_is_not_begun_anew_as_a_folder(clone: Path, part: str) -> None:
    """A new thread in it would verify, and a denial would be put where nobody had lost one."""
    assert said("init", "invoices")[0] == 0
    file = Path(getattr(default_places("invoices"), part))
    file.unlink()
    with pytest.raises(Unavailable, match=f"The storage {file}"):
        open_store("invoices")[0].save("order-8", 1)
    assert not file.exists()


def test_a_planted_file_decides_not_where_a_hold_is_put(clone: Path) -> None:
    """The worker looks in the operator's own store, and does not go on."""
    assert said("init", "invoices")[0] == 0
    open_ledger("invoices").save("order-7", {"amount": 42})
    opal = SigningKey.from_file(Path.home() / "opal.key", create=True)
    opal.public.to_file(Path.home() / "opal.pub")
    assert (
        said("people", "invoices", "--add", "opal", Path.home() / "opal.pub", "--operator")[0] == 0
    )
    parts = 'storage = "state"\nkey = ["k"]\nanswers = "a"\nanswers-anchor = "b"\n'
    (clone / "safepoint.toml").write_text(f"[stores.invoices]\n{parts}")
    person = ("--key", Path.home() / "opal.key", "--reason", "wait")
    status, out, err = said("hold", "invoices", "order-7", *person)
    assert (status, out[:12]) == (0, "Held by opal"), err
    assert open_answers("invoices").storage.threads()
    assert {each.name for each in clone.iterdir()} == {"code.py", "safepoint.toml"}


@pytest.mark.parametrize(
    "planted",
    [b"a." * 20_000 + b"a = 1\n", b'"\xe2\x80\xa8".' * 8_000 + b"a = 1\n", b"#" * 2**16 + b"\n"],
)
def test_a_planted_file_that_takes_long_to_parse_is_not_parsed(
    clone: Path, planted: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safepoint.settings.tomllib", SimpleNamespace(loads=lambda _: 1 / 0))
    (clone / "safepoint.toml").write_bytes(planted)
    for line in ("audit code.py", "verify x --config safepoint.toml"):
        status, out, err = said(*line.split())
        assert (status, out, err.count("\n")) == (2, "", 1), line
        assert "cannot be read as settings (" in err  # and not a defect of ours
    (clone / "pyproject.toml").write_bytes(planted)
    (clone / "safepoint.toml").unlink()
    assert said("audit", "code.py")[0] == 0  # it is no file of ours


def test_a_file_of_a_stranger_is_not_even_read(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners: dict[Path, int] = {}  # only root could give files away
    real = Path.stat

    def stat(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        info = real(path, follow_symlinks=follow_symlinks)
        at = Path(os.path.realpath(path)) if follow_symlinks else path
        return os.stat_result([*info[:4], owners.get(at, info.st_uid), *info[5:]])

    monkeypatch.setattr(Path, "stat", stat)
    file = clone / "safepoint.toml"
    file.symlink_to("code.py")
    owners[file] = 65534
    status, _, err = said("audit", "code.py")
    assert (status, "belongs to user 65534" in err) == (2, True), err
    file.unlink()
    file.write_text("[audit]\n")
    owners |= dict.fromkeys((file, clone), 1000)  # as in a job of CI, which runs as root
    assert said("audit", "code.py")[0] == 0


def test_a_found_file_says_what_the_audit_does_and_the_report_names_it(clone: Path) -> None:
    (clone / "safepoint.toml").write_text('[audit]\npaths = ["code.py"]\n')
    below = clone / "below"
    below.mkdir()
    status, out, _ = said("audit", folder=below)
    assert (status, f"Settings: {clone}/safepoint.toml" in out) == (0, True)
    file = own(f'[audit]\npaths = ["{clone}"]\n')
    assert f"Settings: {file}" not in said("audit")[1]
    (clone / "safepoint.toml").unlink()
    assert f"Settings: {file}" in said("audit")[1]


def test_settings_count_that_are_named_or_the_users_own(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = '[stores.s]\nstorage = "{}"\n'
    file = own(table.format("own"))
    assert read().store("s").storage == str(file.parent / "own")
    (clone / "env.toml").write_text(table.format("/env"))
    monkeypatch.setenv(VARIABLE, "env.toml")
    assert read().store("s").storage == "/env"
    (clone / "named.toml").write_text(table.format("/named"))
    assert read("named.toml").store("s").storage == "/named"
    said("init", "t")
    with pytest.raises(ConfigurationError, match=r"names other stores, but not t\."):
        read("named.toml").store("t")
    monkeypatch.setenv(VARIABLE, "nowhere.toml")
    with pytest.raises(ConfigurationError, match="cannot be read as settings"):
        read()
    for name in (VARIABLE, "HOME"):
        monkeypatch.delenv(name)
    assert read().stores == []  # who has no home has none


@pytest.mark.parametrize(
    ("package", "adapter"),
    [("langgraph", "SealedSaver"), ("agent_framework", "SealedCheckpointStorage")],
)
def test_an_adapter_takes_the_people_of_named_settings_and_none_of_a_planted_file(
    clone: Path, monkeypatch: pytest.MonkeyPatch, package: str, adapter: str
) -> None:
    """The worker pays what these people sign, so its people are those of the commands."""
    need(package, f"needs safepoint[{package}]")
    made = getattr(import_module(f"safepoint.{package}"), adapter).from_settings
    assert said("init", "invoices")[0] == 0
    for name in ("dana", "mallory"):
        file = Path.home() / f"{name}.pub"
        SigningKey.from_file(Path.home() / f"{name}.key", create=True).public.to_file(file)
    assert said("people", "invoices", "--add", "dana", Path.home() / "dana.pub")[0] == 0
    (clone / "evil").mkdir(mode=0o700)
    (clone / "evil/mallory.pub").write_bytes((Path.home() / "mallory.pub").read_bytes())
    (clone / "safepoint.toml").write_text('[stores.invoices]\napprovers = "evil"\n')

    def people() -> tuple[str, ...]:
        found = made("invoices", types=[Head])
        with ExitStack() as stack:
            desk = Desk.open(read().store("invoices"), stack)
            assert desk.gate.approvers.keys == found.gate.approvers.keys
        found.ledger.save("order-7", {"amount": 42})
        assert [*found.ledger.journal.show()]
        assert found.gate.answers
        return tuple(found.gate.approvers.names)

    assert people() == ("dana",)
    monkeypatch.setenv(VARIABLE, "safepoint.toml")  # now it is named
    assert people() == ("mallory",)
    with pytest.raises(TypeError, match="gate"):
        made("invoices", gate=Gate())
    Path(read().store("invoices").answers or "").unlink()  # with it would go denials and holds
    with pytest.raises(Unavailable, match=r"The storage .*answers.db"):
        made("invoices")


@pytest.mark.parametrize("mode", [0o666, 0o664])
def test_own_settings_that_others_can_write_are_refused(clone: Path, mode: int) -> None:
    file = own("[stores.s]\n")
    file.chmod(mode)
    with pytest.raises(ConfigurationError, match=f"chmod go-w {file}"):
        read()
    file.chmod(0o600)
    file.parent.chmod(0o777)
    with pytest.raises(ConfigurationError, match="Every user can rename and replace"):
        read()
