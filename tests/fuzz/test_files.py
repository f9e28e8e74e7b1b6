"""Files that somebody else may have written: keys, heads and bases are whole, or refused."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from safepoint import CheckpointError, SigningKey, SQLiteAnchor, VerifyingKey
from safepoint.core.names import Head

KEY = SigningKey.generate()
PAIR = SigningKey.generate()
OPEN_KEY = (Path(__file__).parents[1] / "unit/openssh/plain").read_text().splitlines()[1:-1]
DIGEST = "sha256:" + "0" * 64
WORDS = st.sampled_from(
    [
        b"-----BEGIN OPENSSH PRIVATE KEY-----\n",
        b"-----END OPENSSH PRIVATE KEY-----\n",
        *(line.encode() for line in OPEN_KEY),
        b"safepoint-anchor/1 ",
        b"ssh-ed25519 ",
        PAIR.public.text.split()[1].encode(),
        b"invoices ",
        b"order-7 ",
        b"57 ",
        DIGEST.encode(),
        b"0000000002\n",
        b"\n",
        b"=",
        b"A" * 43,
    ]
)
TEXTS = st.lists(WORDS | st.binary(max_size=12), max_size=8).map(b"".join)


@given(TEXTS)
def test_a_key_file_holds_a_key_or_is_refused(text: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "a.key")
        file.write_bytes(text)
        file.chmod(0o600)
        for kind in (SigningKey, VerifyingKey):
            try:
                key = kind.from_file(file)
            except CheckpointError:
                continue
            again = Path(folder, f"{kind.__name__}.key")
            key.to_file(again)
            assert kind.from_file(again).id == key.id


@given(TEXTS)
def test_a_row_of_an_anchor_holds_a_head_or_is_refused(text: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "anchor/heads.db")
        anchor = SQLiteAnchor(file, create=True)
        anchor.advance("invoices", "order-7", Head(1, DIGEST))
        with closing(sqlite3.connect(file)) as other, other:
            other.execute("UPDATE heads SET digest = CAST(? AS TEXT)", (text,))
        try:
            head = anchor.read("invoices", "order-7")
        except CheckpointError:
            return
        assert head is not None, "a head that is there is never taken for none"
        assert head.digest.encode() == text
