"""Anchors: heads move forward alone, two histories are seen, and what cannot be told is refused."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safepoint import SQLiteAnchor, SQLiteCheckpointStorage
from safepoint.core.anchor import InMemoryAnchor
from safepoint.core.errors import ConfigurationError, InvalidId, RolledBack, Unavailable, Unsafe
from safepoint.core.names import Head, is_further, journal_of

Each = InMemoryAnchor | SQLiteAnchor
KINDS = ["memory", "sqlite"]
S, T = "invoices", "order-7"


def head(sequence: int, digit: str = "a") -> Head:
    return Head(sequence, f"sha256:{digit * 64}")


def made(kind: str, folder: Path, *, create: bool = True) -> Each:
    if kind == "memory":
        return InMemoryAnchor()
    return sqlite(folder, create=create)


def sqlite(folder: Path, *, create: bool = True) -> SQLiteAnchor:
    return SQLiteAnchor(folder / "anchor/heads.db", create=create)


@pytest.fixture(params=KINDS)
def anchor(request: pytest.FixtureRequest, tmp_path: Path) -> Each:
    return made(request.param, tmp_path)


@pytest.fixture
def kept(tmp_path: Path) -> SQLiteAnchor:
    """An anchor on disk, which has seen a thread."""
    found = sqlite(tmp_path)
    found.advance(S, T, head(57))
    return found


def calls(anchor: Each, store: str = S) -> list[Callable[[], object]]:
    return [
        lambda: anchor.read(store, T),
        lambda: anchor.read(store, "new"),
        lambda: anchor.advance(store, T, head(58)),
        lambda: anchor.advance(store, "new", head(1)),
        lambda: anchor.threads(store),
        lambda: anchor.tenants(store),
        lambda: anchor.rewind(store, T, head(1)),
        lambda: anchor.rewind(store, T, None),
    ]


def refused(error: type[Exception], said: str, *acts: Callable[[], object]) -> None:
    for act in acts:
        with pytest.raises(error, match=said):
            act()


# --- what holds for each


def test_a_tenant_sees_its_own_threads_alone(anchor: Each) -> None:
    """Both ways, and also where one tenant's name begins with another's."""
    scopes = [anchor, anchor.tenant("acme"), anchor.tenant("acme-2"), anchor.tenant("order-7")]
    for number, scope in enumerate(scopes, 1):
        assert (scope.read(S, T), scope.threads(S), scope.tenants(S)) == (None, [], [])
        scope.advance(S, T, head(number))
    for number, scope in enumerate(scopes, 1):
        assert (scope.read(S, T), scope.threads(S)) == (head(number), [T])
        assert scope.tenants(S) == (["acme", "acme-2", "order-7"] if scope is anchor else [])
    scopes[1].rewind(S, T, None)
    assert [scope.read(S, T) for scope in scopes] == [head(1), None, head(3), head(4)]
    for name in ("", "A", "a/b", "@acme", ".."):
        with pytest.raises(InvalidId, match="tenant name"):
            anchor.tenant(name)
    refused(ConfigurationError, "a tenant has no tenants", lambda: scopes[1].tenant("acme"))


@pytest.mark.parametrize("name", ["..", "a\n", "x" * 65, 7])
def test_a_name_outside_the_grammar_never_reaches_a_file(anchor: Each, name: Any) -> None:
    refused(InvalidId, "name|device", *calls(anchor, name), lambda: anchor.read("s", name))
    refused(InvalidId, "name|device", lambda: anchor.advance("s", name, head(1)))
    refused(InvalidId, "name|device", lambda: anchor.rewind("s", name, None))
    assert anchor.threads("s") == []


def test_an_anchor_belongs_to_the_store_that_came_first(kept: SQLiteAnchor, tmp_path: Path) -> None:
    """A call that is refused, or only reads, binds it to none; its own journal may be beside it."""
    (tmp_path / "new").mkdir(mode=0o700)
    new = sqlite(tmp_path / "new")
    assert (new.read("orders", "a"), new.threads("orders")) == (None, [])
    refused(InvalidId, "A", lambda: new.advance("orders", "A", head(1)))
    late = sqlite(tmp_path / "new")
    new.advance(S, "a", head(1))
    new.advance(journal_of(S), "a", head(3))
    assert [new.read(each, "a") for each in (S, journal_of(S))] == [head(1), head(3)]
    for each in (kept, new, late, sqlite(tmp_path / "new")):
        for other in ("orders", "journal", journal_of("orders")):
            refused(RolledBack, "belongs to store invoices, but was", *calls(each, other))
    assert kept.read(S, T) == head(57)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@given(st.lists(st.builds(head, st.integers(1, 6), st.sampled_from("ab")), max_size=12))
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@pytest.mark.parametrize("kind", KINDS)
def test_any_sequence_of_heads_moves_forward_alone(
    folder: Path, kind: str, heads: list[Head]
) -> None:
    """The anchor holds the first record that it saw at the highest sequence that it saw."""
    (folder / kind).mkdir(mode=0o700, exist_ok=True)
    anchor = made(kind, folder / kind)
    anchor.rewind("s", "t", None)
    known: Head | None = None
    for new in heads:
        if known is not None and new.sequence == known.sequence and new.digest != known.digest:
            with pytest.raises(
                RolledBack, match=f"t {new} is not the record that the anchor has seen"
            ):
                anchor.advance("s", "t", new)
        else:
            further = is_further("t", known, new)
            anchor.advance("s", "t", new)
            assert further == (known is None or new.sequence > known.sequence)
            known = new if further else known
        assert anchor.read("s", "t") == known


# --- where it is


def test_a_place_without_an_anchor_is_never_one_that_has_seen_nothing(tmp_path: Path) -> None:
    """A typo in the path, or a volume that is not mounted, or that goes."""
    folder = tmp_path / "anchor"
    refused(Unavailable, "directory.. Run: mkdir", lambda: sqlite(tmp_path / "none"))
    missing = pytest.raises(Unavailable, match="does not exist, so no rollback would be")
    with missing:
        SQLiteAnchor(tmp_path / "heads.db")
    assert not folder.exists()
    anchor = sqlite(tmp_path)
    folder.rename(tmp_path / "aside")
    refused(Unavailable, "is gone", *calls(anchor))


def test_what_changed_is_never_an_empty_anchor(kept: SQLiteAnchor, tmp_path: Path) -> None:
    """Opened to others, replaced, or emptied while it was in use; or the state in its place."""
    folder, aside = tmp_path / "anchor", tmp_path / "aside"
    folder.chmod(0o770)
    refused(Unsafe, "can be written by others", *calls(kept))
    folder.chmod(0o700)
    folder.rename(aside)
    sqlite(tmp_path)
    refused(Unavailable, "was removed or replaced", *calls(kept))
    shutil.rmtree(folder)
    aside.rename(folder)
    assert kept.read(S, T) == head(57)
    for file in folder.iterdir():
        file.unlink()
    refused(Unavailable, "is gone", *calls(kept))
    SQLiteCheckpointStorage(folder / "heads.db").close()
    refused(Unavailable, "does not have the schema", lambda: sqlite(tmp_path))


# --- what it holds
