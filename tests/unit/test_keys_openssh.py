"""OpenSSH's format: we read what `ssh-keygen` makes, and it reads ours. The rest is refused.

The keys that `ssh-keygen` made are committed, so that this holds where there is none. Where there
is one, both directions are tried with it.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import ssh

from safepoint import SigningKey, VerifyingKey
from safepoint.core.errors import Unsafe
from safepoint.core.keys import Hidden, parse_key, read_key_file
from tests.unit.openssh import PASSPHRASE, put, text

SSH_KEYGEN = shutil.which("ssh-keygen")
BEGIN, END = b"-----BEGIN OPENSSH PRIVATE KEY-----\n", b"-----END OPENSSH PRIVATE KEY-----\n"


def ssh_keygen(*arguments: str | Path) -> str:
    assert SSH_KEYGEN
    ran = subprocess.run([SSH_KEYGEN, *arguments], capture_output=True, text=True, check=True)
    return ran.stdout


def armored(inner: bytes) -> bytes:
    return BEGIN + base64.b64encode(inner) + b"\n" + END


@pytest.mark.parametrize(("name", "passphrase"), [("plain", None), ("phrase", PASSPHRASE)])
def test_a_key_that_ssh_keygen_made_signs(
    tmp_path: Path, name: str, passphrase: str | None
) -> None:
    key = SigningKey.from_file(put(tmp_path / "a.key", name), passphrase=passphrase)
    public = VerifyingKey.from_file(put(tmp_path / "a.pub", f"{name}.pub"))
    assert (public == key, public.verify(b"text", key.sign(b"text"))) == (True, True)
    # Written again, it is the same key, in the same form.
    key.to_file(tmp_path / "b.key", passphrase=passphrase)
    assert read_key_file(tmp_path / "b.key").kind == read_key_file(tmp_path / "a.key").kind
    assert SigningKey.from_file(tmp_path / "b.key", passphrase=passphrase) == key
    if SSH_KEYGEN:
        shown = ssh_keygen("-y", "-P", passphrase or "", "-f", tmp_path / "b.key")
        assert VerifyingKey.from_text(shown) == key
        made = tmp_path / "c.key"
        ssh_keygen("-q", "-t", "ed25519", "-a", "1", "-N", passphrase or "", "-f", made)
        again = SigningKey.from_file(made, passphrase=passphrase)
        assert again == VerifyingKey.from_file(tmp_path / "c.key.pub")


def test_a_passphrase_takes_64_rounds_to_try(tmp_path: Path) -> None:
    SigningKey.generate().to_file(tmp_path / "a.key", passphrase=PASSPHRASE)
    inner = base64.b64decode((tmp_path / "a.key").read_bytes()[len(BEGIN) : -len(END)])
    assert b"aes256-ctr\0\0\0\x06bcrypt\0\0\0\x18\0\0\0\x10" in inner
    before, _, _ = inner.partition(b"\0\0\0\1\0\0\0\x33\0\0\0\x0bssh-ed25519")
    assert before[-4:] == (64).to_bytes(4, "big")


def test_a_file_that_would_cost_time_is_refused_before_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever plants a file must not choose how long we work."""
    monkeypatch.setattr(ssh, "_bcrypt_kdf", lambda *_: pytest.fail("it was worked on"))
    anew = "rewrite it: ssh-keygen -p -Z aes256-ctr -a 64 -f FILE"
    refused(anew, put(tmp_path / "a.key", "rounds"), PASSPHRASE)
    refused(anew, put(tmp_path / "b.key", "cipher"), PASSPHRASE)
    most, last = (1025).to_bytes(4, "big"), (1024).to_bytes(4, "big")
    inner = base64.b64decode(text("phrase")[len(BEGIN) : -len(END)])
    rounds = b"\0\0\0\1\0\0\0\1\0\0\0\x33"
    parsed = parse_key(Hidden(armored(inner.replace(rounds, last + rounds[4:]))))
    assert parsed is not None
    assert parsed[0] == "key with a passphrase"
    for changed in (
        inner.replace(rounds, most + rounds[4:]),
        inner.replace(b"\0\0\0\x18\0\0\0\x10", b"\0\0\1\x18\0\0\0\x10"),  # more behind the rounds
    ):
        assert changed != inner
        refused(WHOLE, written(tmp_path / "c.key", armored(changed)), PASSPHRASE)


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def refused(
    message: str,
    file: Path,
    passphrase: str | None = None,
    load: Callable[..., object] = SigningKey.from_file,
) -> None:
    """The refusal is ours alone: nothing of the library leads from it."""
    with pytest.raises(Unsafe) as refusal:
        load(file) if passphrase is None else load(file, passphrase=passphrase)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert (refusal.value.__cause__, refusal.value.__context__) == (None, None)


@pytest.mark.parametrize("name", ["rsa", "ecdsa"])
def test_a_key_of_another_type_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    refused(WHOLE, put(tmp_path / "a.key", name))
    refused(WHOLE, put(tmp_path / "a.pub", f"{name}.pub"), load=VerifyingKey.from_file)


WHOLE = "is not one Ed25519 key in OpenSSH's format, whole and with nothing around it. "
PLAIN = text("plain")
INNER = base64.b64decode(PLAIN[len(BEGIN) : -len(END)])
MALFORMED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", WHOLE),
    "another format": (text("pem"), WHOLE),
    "a comment before it": (b"# mine\n" + PLAIN, WHOLE),
    "more behind it": (PLAIN + b"hello\n", WHOLE),
    "two keys inside": (
        armored(INNER.replace(b"none\0\0\0\0\0\0\0\1", b"none\0\0\0\0\0\0\0\2")),
        WHOLE,
    ),
    "without its last line": (PLAIN[: -len(END)], WHOLE),
    "cut inside": (armored(INNER[:-8]), "or the file was changed."),
    "more inside": (armored(INNER + bytes(8)), "or the file was changed."),
    "too long": (BEGIN + b"A" * 8192 + b"\n" + END, WHOLE),
    "no base64": (PLAIN.replace(b"b3Bl", b"b3B=", 1), WHOLE),
}


@pytest.mark.parametrize(("content", "message"), MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_whole_key_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    refused(message, written(tmp_path / "a.key", content))


def test_a_passphrase_is_needed_where_there_is_one_alone(tmp_path: Path) -> None:
    phrase, plain = put(tmp_path / "phrase", "phrase"), put(tmp_path / "plain", "plain")
    wrong = "cannot be read: the passphrase is wrong, or the file was changed."
    for passphrase in (PASSPHRASE.upper(), "", "\ud800"):
        refused(wrong, phrase, passphrase)
    refused("holds a key with a passphrase, but a key without a passphrase is needed", phrase)
    refused("holds a key without a passphrase, but a key with a passphrase", plain, PASSPHRASE)
    key = SigningKey.from_file(plain)
    with pytest.raises(Unsafe, match="fewer than 12 characters"):
        key.to_file(tmp_path / "new", passphrase="eleven char")  # noqa: S106
    assert not (tmp_path / "new").exists()
    key.to_file(tmp_path / "new", passphrase="twelve chars")  # noqa: S106


@pytest.mark.parametrize(("name", "passphrase"), [("plain", None), ("phrase", PASSPHRASE)])
def test_a_file_that_names_another_public_key_is_refused(
    tmp_path: Path, name: str, passphrase: str | None
) -> None:
    """What it says in clear text is a hint. Whoever swapped it would have theirs handed out."""
    file, content = tmp_path / "a.key", text(name)
    public = read_key_file(put(file, name)).public._public
    other = SigningKey.generate().public
    inner = base64.b64decode(content[len(BEGIN) : -len(END)])
    swapped = inner.replace(public, other._public, 1)
    assert read_key_file(written(file, armored(swapped))).public == other
    refused("cannot be read: ", file, passphrase)
    # All of what is in clear text, in a file without a passphrase; the seed is another's.
    refused("cannot be read: ", written(file, armored(inner.replace(public, other._public))),
            passphrase)  # fmt: skip
