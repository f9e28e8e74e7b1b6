"""The digest of a large file: defined by its bytes, whatever computes it."""

from __future__ import annotations

import hashlib
import mmap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safepoint.weights import digest as module
from safepoint.weights.digest import CHUNK, digest, is_digest

SIZES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK, 5 * CHUNK + 7]


def plain(data: bytes) -> str:
    """Compute it as the docstring says, on one thread."""
    text = b"safepoint-tree/1\n" + len(data).to_bytes(8, "big")
    for start in range(0, len(data), 1024 * 1024):
        text += hashlib.sha256(data[start : start + 1024 * 1024]).digest()
    return "sha256-tree:" + hashlib.sha256(text).hexdigest()


def test_the_digest_of_nothing_is_written_down() -> None:
    """A change of the definition would break every seal that exists."""
    assert digest(b"") == (
        "sha256-tree:f3d898f1bd586cb096277159841a0dba3d722bb207e9600228b12ef94bb8a1e6"
    )
    assert digest(b"safepoint" * 500_000) == (
        "sha256-tree:cafaa0ac776b4297e9a92ff422d3f39b26b57c919d52e4325639af0ff2e459f3"
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("cores", [1, 2, 64])
def test_it_is_the_same_on_any_number_of_cores(
    size: int, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_cores", lambda: cores)
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert digest(data) == plain(data)


@pytest.mark.parametrize("size", SIZES[1:])
def test_a_mapped_file_and_a_view_have_the_digest_of_their_bytes(size: int) -> None:
    with mmap.mmap(-1, size) as mapped:
        mapped[:] = data = bytes(size - 1) + b"x"
        assert digest(mapped) == digest(memoryview(data)) == digest(bytearray(data)) == plain(data)


@pytest.mark.parametrize("place", [0, CHUNK - 1, CHUNK, 3 * CHUNK, 5 * CHUNK - 1])
def test_one_changed_bit_changes_it(place: int) -> None:
    data = bytearray(5 * CHUNK)
    before = digest(data)
    data[place] ^= 1
    assert digest(data) != before


def test_chunks_that_change_places_change_it() -> None:
    first, second = b"a" * CHUNK, b"b" * CHUNK
    assert digest(first + second + bytes(4 * CHUNK)) != digest(second + first + bytes(4 * CHUNK))


def test_a_list_of_digests_is_not_the_file_that_it_is_of() -> None:
    data = bytes(2 * CHUNK)
    leaves = hashlib.sha256(data[:CHUNK]).digest() * 2
    assert (
        len({digest(data), digest(leaves), "sha256-tree:" + hashlib.sha256(leaves).hexdigest()})
        == 3
    )


@settings(max_examples=50, deadline=None, database=None)
@given(st.binary(max_size=300), st.binary(max_size=300))
def test_two_contents_have_two_digests(one: bytes, other: bytes) -> None:
    assert (digest(one) == digest(other)) == (one == other)


def test_is_digest_knows_its_own_and_no_other() -> None:
    assert is_digest(digest(b"x"))
    for other in (
        None,
        b"",
        "",
        "sha256:" + "0" * 64,
        "sha256-tree:" + "0" * 63,
        digest(b"") + "\n",
    ):
        assert not is_digest(other)
