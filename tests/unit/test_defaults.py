"""Where state lives by default, how its folders are made, and when a store is begun."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import stat
import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from safepoint import Codec, InMemoryJournal, SQLiteAnchor, open_ledger
from safepoint.core.errors import ConfigurationError, InvalidId, NotOwner, Unavailable, Unsafe
from safepoint.places import PLACES, Store, connection_string, default_places, is_beside
from tests.harness.optional import need
from tests.house import refused
from tests.unit.storage_helpers import tree

SYSTEMD = {
    "STATE_DIRECTORY": "/var/lib/app:/var/lib/app-anchor",
    "LOGS_DIRECTORY": "/var/log/app",
    "CONFIGURATION_DIRECTORY": "/etc/app",
}


def at_home(home: Path | str, **environ: str) -> Store:
    return default_places("invoices", {"HOME": str(home), **environ})


def folders(places: Store) -> dict[str, Path]:
    found = {"key": places.key[0], **{each: getattr(places, each) for each in PLACES}}
    return {part: Path(file).parent for part, file in found.items()}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    found = tmp_path / "home"
    found.mkdir(mode=0o700)
    return found


# --- where


HOME = "/h/.local/state /h/.local/share /h/.local/state"
ODD = {"XDG_STATE_HOME": "s", "XDG_DATA_HOME": "", "STATE_DIRECTORY": "~/x"}
GIVEN = {"XDG_STATE_HOME": "/s:1", "XDG_DATA_HOME": "/d"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, HOME),
        (ODD, HOME),
        (GIVEN, "/s:1 /d /s:1"),
        ({"STATE_DIRECTORY": "/s:/a"}, "/s /etc /var/log"),
        ({**GIVEN, **SYSTEMD}, "/var/lib/app /etc/app /var/log/app"),
    ],
)
def test_the_environment_says_where(environ: dict[str, str], expected: str) -> None:
    found = default_places("invoices", {"HOME": "/h", **environ})
    state, keys, logs = expected.split()
    assert found.storage == f"{state}/safepoint/invoices/storage/checkpoints.db"
    assert found.key == (f"{keys}/safepoint-keys/invoices/signing.key",)
    assert found.journal == f"{logs}/safepoint/invoices/journal/journal.db"
    anchors = {"/var/lib/app": "/var/lib/app-anchor", "/s": "/a"}.get(state, state)
    assert found.anchor == f"{anchors}/safepoint-anchor/invoices/heads.db"
    assert found.journal_anchor == f"{anchors}/safepoint-anchor/invoices.journal/heads.db"


def test_a_home_is_asked_for() -> None:
    for environ in ({}, {"HOME": "~"}):
        assert "has no home folder." in refused(Unavailable, partial(default_places, "a", environ))


@pytest.mark.parametrize("given", ["/a", "/a:/a", "/a:/a/b", "/a/b:/a"])
def test_a_service_whose_anchor_would_be_restored_with_its_storage_is_refused(given: str) -> None:
    environ = {**SYSTEMD, "STATE_DIRECTORY": given}
    assert "systemd gave one folder for state" in refused(
        Unavailable, lambda: default_places("a", environ)
    )


VARIABLES = ["HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", *SYSTEMD]


@pytest.mark.parametrize("store", ["../x", "a.journal", None])
def test_the_name_of_a_store_never_leads_elsewhere(store: Any) -> None:
    for choose in (default_places, open_ledger):
        refused(InvalidId, lambda choose=choose: choose(store))


@pytest.mark.parametrize("part", ["key", *PLACES])
@pytest.mark.parametrize("where", ["{0}/x.db", "{1}/x/x.db"])
def test_nothing_lies_in_the_storage_or_around_it(home: Path, part: str, where: str) -> None:
    found = at_home(home)
    others = [path for each, path in folders(found).items() if each != part]
    moved = where.format(*others[:2])
    changed: Any = {part: (moved,) if part == "key" else moved}
    places = replace(found, **changed)
    assert "in the same place as that for" in refused(ConfigurationError, places.create)
    assert tree(home) == []


# --- what stands for a part


def test_a_connection_string_comes_from_a_variable_or_has_no_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need("psycopg", "psycopg: pip install '.[postgres]'")
    for name, value in (("DB", "host=db"), ("AGAIN", "env:DB"), ("PATH_OF", "/srv/state")):
        monkeypatch.setenv(name, value)
    for given in ("env:DB", "host=db"):
        assert connection_string("storage", given) == "host=db"
    for wrong in ("env:AGAIN", "env:PATH_OF", "env:NONE", "host=db password=x"):
        refused(ConfigurationError, partial(connection_string, "storage", wrong))


BESIDE: dict[bytes, bool] = {
    b"": True,
    bytes(8) + b"x": True,
    b"7\x7f\x06\x82": True,
    b"\xd9\xd5\x05\xf9 \xa1c\xd7": True,
    b"\xd9\xd5\x05\xf9 \xa1c\xd6": False,
    bytes(7) + b"x": False,
}


def test_what_sqlite_leaves_beside_a_database_is_known_by_its_first_bytes(home: Path) -> None:
    SQLiteAnchor(home / "heads.db", create=True).close()
    for content, is_one in BESIDE.items():
        for name in ("heads.db-journal", "other.db-journal", "heads.db-other"):
            (home / name).write_bytes(content)
            assert is_beside(str(home / name)) == (is_one and name == "heads.db-journal"), content


# --- the folders


ABOVE = ".local/state/safepoint"
OWN = ".local/state/safepoint/invoices/storage"


@pytest.mark.parametrize("mask", [0, 0o022, 0o077, 0o777])
def test_every_folder_is_for_its_owner_alone_whatever_the_umask(home: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        at_home(home).create()
    finally:
        os.umask(before)
    made = [home / name for name in tree(home)]
    assert len(made) == 14
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}
    times = [path.stat().st_ctime_ns for path in made]
    at_home(home).create()
    assert [path.stat().st_ctime_ns for path in made] == times


@pytest.mark.parametrize(
    ("name", "kind"), [(ABOVE, "mode"), *((OWN, kind) for kind in ("mode", "link", "file"))]
)
def test_a_folder_that_is_not_as_it_should_be_is_refused(
    home: Path, tmp_path: Path, name: str, kind: str
) -> None:
    folder = home / name
    at_home(home).create()
    if kind == "mode":
        folder.chmod(0o755)
        if name == ABOVE:
            at_home(home).create()  # those around may be read
            folder.chmod(0o777)
        what = "Run: chmod o-w" if name == ABOVE else "and should have 0700. Run: chmod 700"
    else:
        shutil.rmtree(folder)
        (tmp_path / "outside").mkdir(mode=0o700)
        if kind == "link":
            folder.symlink_to(tmp_path / "outside")
        else:
            folder.touch()
        what = "is a symbolic link." if kind == "link" else "is not a folder."
    assert f"{folder} " in (refusal := refused(Unsafe, at_home(home).create))
    assert what in refusal
    assert kind != "link" or tree(tmp_path / "outside") == []


# --- a store in one line


@dataclass
class Invoice:
    amount: int


def test_a_store_is_begun_once_and_opened_ever_after(
    home: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    found, journal = at_home(home), InMemoryJournal()
    with caplog.at_level(logging.WARNING, "safepoint"):
        ledger = open_ledger("invoices", codec=Codec([Invoice]), journal=journal)
    assert [record.name for record in caplog.records] == ["safepoint"]
    for path in (found.storage, found.anchor, found.key[0]):
        assert str(path) in caplog.text
        assert stat.S_IMODE(Path(str(path)).stat().st_mode) == 0o600
    assert ledger.places == found
    assert not [name for name in tree(home) if "journal" in name]  # there is none in a file
    ledger.save("order-7", Invoice(42))
    assert [entry.what for entry in journal.show()] == ["save"]
    caplog.clear()
    again = open_ledger("invoices", places=found, codec=Codec([Invoice]), worker="worker-1")
    again.owners.keep("order-8")
    with pytest.raises(NotOwner, match="is held by worker 'worker-1'"):
        ledger.owners.keep("order-8")
    assert again.latest("order-7").state == Invoice(42)
    assert again.anchor is not None
    assert not caplog.records
    for name, places in (("other", found), ("invoices", replace(found, anchor="dbname=heads"))):
        refused(ConfigurationError, partial(open_ledger, name, places=places))


FILES = ("storage", "anchor", "key")


@pytest.mark.parametrize("used", [None, "", "acme"])
@pytest.mark.parametrize(
    "lost",
    [list(some) for count in (1, 2) for some in combinations(FILES, count)],
    ids=" and ".join,
)
def test_a_loss_is_refused_and_nothing_is_made_in_its_place(
    home: Path, lost: list[str], used: str | None
) -> None:
    """Unless nothing was ever saved, and what is there is what a killed first call leaves."""
    found = at_home(home)
    ledger = open_ledger("invoices", places=found)
    if used is not None:  # by a tenant, or by nobody in particular
        (ledger.tenant(used) if used else ledger).save("order-7", {"amount": 42})
    del ledger
    files = dict(zip(FILES, (found.storage, found.anchor, found.key[0]), strict=True))
    for name in lost:
        Path(str(files[name])).unlink()
    before = tree(home)
    if used is None and "key" in lost:
        open_ledger("invoices", places=found).save("order-7", {"amount": 42})
        return
    refusal = refused(Unavailable, lambda: open_ledger("invoices", places=found))
    for name, file in files.items():
        assert (f"{file}" in refusal) == (name in lost)
    assert tree(home) == before


def begin_at(home: str, moment: float, thread: str) -> str:
    while time.time() < moment:
        pass
    ledger = open_ledger("invoices", places=at_home(home))
    ledger.save(thread, {"n": 1})
    return ledger.keys.signing.id


def test_processes_that_begin_it_at_once_get_the_same_ledger(home: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        orders = [(str(home), time.time() + 2, f"t{number}") for number in range(4)]
        assert len(set(pool.starmap(begin_at, orders, 1))) == 1
    ledger = open_ledger("invoices", places=at_home(home))
    for number in range(4):
        assert ledger.latest(f"t{number}").state == {"n": 1}
