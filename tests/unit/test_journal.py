"""What a line of a journal is: who, what and when, one spelling, and nothing smuggled in."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from safepoint import Head, InMemoryAnchor, Keyring, Revoked, SigningKey
from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    InvalidId,
    JournalBroken,
    JournalUnavailable,
    KeyRefused,
)
from safepoint.journal import Actor, Entry, Event, InMemoryJournal, Journal, _text
from safepoint.journal._chain import Chain
from safepoint.journal.actor import MAX_TEXT
from safepoint.journal.event import MAX_DETAIL, OUTCOMES, WHATS
from safepoint.names import digest_of

KEY = SigningKey.generate()
KEYS = Keyring(KEY)
ANA = Actor("ana", how="login")
DIGEST = "sha256:" + "a" * 64
NOW = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
RESTORE = (
    "Nothing is appended to it. Keep this copy, find out who can write the journal, and restore"
    " one that verifies."
)
HOSTILE = {
    "line break": "a\nb",
    "carriage return": "ana\rroot",
    "a forged line": 'x"},"key":"0000000000000000","signature":"AAAA"}\n{"entry":{',
    "quotes": "\"'`",
    "backslash": "\\\\u0041\\",
    "colours": "\x1b[31mred\x1b[0m",
    "title of the terminal": "\x1b]0;owned\x07",
    "C1 control": "\x9b31m",
    "NUL": "a\0b",
    "DEL and backspace": "a\x7f\x08",
    "line separator": "a\u2028b\u2029c\x85d",
    "right to left": "\u202egnp.exe",
    "zero width": "a\u200bna",
    "astral": "\U0001f4a3",
    "not ASCII": "Jürgen",
}
each_hostile = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)


def event(**fields: Any) -> Event:
    given: dict[str, Any] = {
        "what": "save",
        "outcome": "intended",
        "actor": ANA,
        "store": "invoices",
        **fields,
    }
    return Event(**given)


def refusal(error: type[CheckpointError], call: Callable[[], object]) -> str:
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    return str(caught.value)


# Who


def test_the_process_is_the_user_of_the_operating_system() -> None:
    actor = Actor.process()
    assert re.fullmatch(rf"uid {os.geteuid()}( \(.+\))? on .+", actor.name)
    assert actor.how == "operating system"


def test_a_user_or_host_with_an_impossible_name_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "\udcff" + "h" * 1000)
    assert Actor.process().name.endswith(" on \\udcff" + "h" * 58)
    monkeypatch.setattr("platform.node", lambda: "")
    assert Actor.process().name.endswith(" on an unnamed host")


def test_a_user_that_no_list_knows_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 2**31 - 7)
    assert Actor.process().name.startswith("uid 2147483641 on ")
    monkeypatch.delattr(os, "geteuid")
    assert Actor.process().name.startswith(f"process {os.getpid()} on ")


@pytest.mark.parametrize("bad", ["", "x" * (MAX_TEXT + 1), "\ud800", None, b"ana", 7])
@pytest.mark.parametrize("field", ["name", "how"])
def test_an_actor_is_two_short_texts(field: str, bad: Any) -> None:
    fields = {"name": "ana", "how": "login", field: bad}
    said = refusal(ConfigurationError, lambda: Actor(**fields))
    assert said.endswith(
        f" cannot be the {field} of an actor."
        " Give a text of 1 to 256 characters, without lone surrogates."
    )
    assert len(said) < 200
    assert said.isascii()


# What


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        (
            {"what": "sing"},
            ConfigurationError,
            (
                "'sing' cannot be the what of an event. Choose one of: save, verify, resume, pause,"
                " approve, deny, act, rotate, prune, delete, migrate, copy, accept-loss, own,"
                " recover."
            ),
        ),
        (
            {"outcome": ["done"]},
            ConfigurationError,
            "['done'] cannot be the outcome of an event. Choose one of: intended, done, refused.",
        ),
        (
            {"actor": "ana"},
            ConfigurationError,
            (
                "The actor of an event is an Actor, not str. Write Actor(name, how), or"
                " Actor.process()."
            ),
        ),
        (
            {"store": "in\nvoices"},
            InvalidId,
            (
                "'in\\nvoices' is not a store name. Use 1 to 64 of a-z, 0-9, '-' and '_', and start"
                " with a letter or digit."
            ),
        ),
        (
            {"thread": "../x"},
            InvalidId,
            (
                "'../x' is not a thread name. Use 1 to 64 of a-z, 0-9, '-' and '_', and start with"
                " a letter or digit."
            ),
        ),
        (
            {"sequence": 0},
            InvalidId,
            "0 is not a sequence number. Sequences are whole numbers from 1 to 9999999999.",
        ),
        (
            {"digest": "sha256:"},
            InvalidId,
            "'sha256:' is not a digest. Digests are 'sha256:' and 64 hex digits.",
        ),
        (
            {"detail": b"x"},
            ConfigurationError,
            "The detail of an event is a text, not bytes. Write detail=str(...), or leave it out.",
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_an_event_is_checked_field_by_field(
    fields: dict[str, Any], error: type[CheckpointError], said: str
) -> None:
    assert refusal(error, lambda: event(**fields)) == said


def test_an_actor_of_another_class_is_none() -> None:
    """A subclass could say something else the next time that it is asked."""

    class Liar(Actor):
        pass

    with pytest.raises(ConfigurationError, match="is an Actor, not Liar"):
        event(actor=Liar("ana", "login"))


@pytest.mark.parametrize("length", [MAX_DETAIL, MAX_DETAIL + 1, 10_000_000])
def test_a_long_detail_is_cut_and_says_so(length: int) -> None:
    kept = event(detail="x" * length).detail
    assert len(kept) == MAX_DETAIL
    assert kept.endswith("x" if length == MAX_DETAIL else f"x... ({length} characters)")


def test_half_a_character_is_spelled_out() -> None:
    """Two halves would be read back as one whole, and the line would not have one spelling."""
    assert event(detail="\ud83d\ude00").detail == "\\ud83d\\ude00"
    halves = event(detail="\ud800" * MAX_DETAIL).detail
    assert len(halves) == MAX_DETAIL
    assert halves.endswith("... (6000 characters)")


# The line


def test_a_line_is_json_that_a_person_can_read() -> None:
    journal = InMemoryJournal(KEYS)
    first = journal.record_at_time(event(), NOW)
    journal.record_at_time(
        event(outcome="done", thread="order-7", sequence=3, digest=DIGEST, detail='"ok"'), NOW
    )
    line, after = journal.lines
    assert after == (
        b'{"entry":{"actor":{"how":"login","name":"ana"},"at":"2026-01-31T09:30:00.000000Z",'
        b'"detail":"\\"ok\\"","digest":"%b","journal":"journal","number":2,"outcome":"done",'
        b'"previous":"%b","sequence":3,"store":"invoices","thread":"order-7","what":"save"},'
        b'"key":"%b","signature":"%b"}\n'
        % (
            DIGEST.encode(),
            first.digest_of_entry.encode(),
            KEY.id.encode(),
            json.loads(after)["signature"].encode(),
        )
    )
    body = line[len(b'{"entry":') : line.index(b',"key"')]
    assert first.digest_of_entry == digest_of(body)
    fields = json.loads(line)["entry"]
    assert body == json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    assert [fields["previous"], fields["number"], fields["thread"]] == [None, 1, None]


def test_the_signature_covers_the_format_and_the_entry() -> None:
    journal = InMemoryJournal(Keyring(SigningKey(bytes(range(32)))))
    journal.record_at_time(event(), NOW)
    found = _text.frame(journal.lines[0][:-1])
    assert found is not None
    assert _text.signed(found.entry) == b"safepoint-journal/1\n" + found.entry
    assert SigningKey(bytes(range(32))).verify(_text.signed(found.entry), found.signature)


@pytest.mark.parametrize("algorithm", ["hmac-sha256", "ed25519"])
def test_every_field_comes_back(algorithm: Any) -> None:
    journal = InMemoryJournal(Keyring(SigningKey.generate(algorithm)))
    written = [
        journal.record(event(what=what, outcome=outcome, thread="t", sequence=9_999_999_999))
        for what in WHATS
        for outcome in OUTCOMES
    ]
    assert list(journal.show()) == written
    assert all(isinstance(entry, Entry) for entry in written)
    assert journal.verify() == len(written) == len(WHATS) * 3


def test_a_time_is_written_in_utc() -> None:
    journal = InMemoryJournal(KEYS)
    there = timezone(timedelta(hours=-5))
    entry = journal.record_at_time(event(), datetime(900, 1, 1, 23, 0, tzinfo=there))
    assert str(entry).startswith("1 0900-01-02T04:00:00.000000Z save intended")
    (again,) = journal.show()
    assert again == entry
    assert again.at == datetime(900, 1, 2, 4, 0, tzinfo=UTC)


def test_order_comes_from_the_number_and_not_from_the_clock() -> None:
    journal = InMemoryJournal(KEYS)
    journal.record_at_time(event(), NOW)
    journal.record_at_time(event(), NOW - timedelta(days=1))
    assert [entry.number for entry in journal.show()] == [1, 2]


@each_hostile
def test_nothing_gets_out_of_its_field(text: str) -> None:
    """One line, of printable ASCII; another reader of JSON sees the very text, in its field."""
    journal = InMemoryJournal(KEYS)
    entry = journal.record(event(actor=Actor(text, text), detail=text))
    (line,) = journal.lines
    assert re.fullmatch(rb"[ -~]+\n", line)
    assert len(line.decode().splitlines()) == 1
    fields = json.loads(line)
    assert set(fields) == {"entry", "key", "signature"}
    read = fields["entry"]
    assert (read["actor"], read["detail"]) == ({"how": text, "name": text}, text)
    assert list(journal.show()) == [entry]
    shown = str(entry)
    assert shown.isascii()
    assert shown.isprintable()


@each_hostile
@pytest.mark.parametrize("field", ["store", "thread", "what", "outcome", "digest"])
def test_the_other_fields_do_not_take_it(field: str, text: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        event(**{field: text})
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()


def test_the_longest_line_fits() -> None:
    """Each character escaped, every field at its bound."""
    wide = "\U0001f4a3"
    journal = InMemoryJournal(Keyring(SigningKey.generate("ed25519")), name="j" * 64)
    entry = journal.record(
        event(
            what="accept-loss",
            actor=Actor(wide * MAX_TEXT, wide * MAX_TEXT),
            store="s" * 64,
            thread="t" * 64,
            sequence=9_999_999_999,
            digest=DIGEST,
            detail=wide * MAX_DETAIL,
        )
    )
    assert 18_000 < len(journal.lines[0]) < _text.LINE_BYTES
    assert list(journal.show()) == [entry]


def test_an_entry_is_one_line_for_people() -> None:
    entry = InMemoryJournal(KEYS).record_at_time(
        event(thread="order-7", sequence=3, digest=DIGEST, detail="paid\n42"), NOW
    )
    assert str(entry) == (
        "1 2026-01-31T09:30:00.000000Z save intended invoices/order-7 #3 sha256:aaaaaaaaaaaa"
        " 'ana' (by 'login'): 'paid\\n42'"
    )
    bare = InMemoryJournal(KEYS).record_at_time(event(), NOW)
    assert str(bare) == ("1 2026-01-31T09:30:00.000000Z save intended invoices 'ana' (by 'login')")


def test_a_name_cannot_look_like_the_rest_of_a_shown_line() -> None:
    entry = InMemoryJournal(KEYS).record_at_time(
        event(actor=Actor("ana' (by 'login'): 'paid", "x")), NOW
    )
    assert str(entry).endswith("invoices \"ana' (by 'login'): 'paid\" (by 'x')")


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (
            "save",
            "A journal records an Event, not str. Write Event(what, outcome, actor, store).",
        ),
        (None, "A journal records an Event, not NoneType."),
    ],
)
def test_only_an_event_is_recorded(what: Any, said: str) -> None:
    journal = InMemoryJournal(KEYS)
    assert said in refusal(ConfigurationError, lambda: journal.record(what))
    assert journal.lines == []


@pytest.mark.parametrize("now", [datetime(2026, 1, 1), "2026-01-01", None])  # noqa: DTZ001
def test_a_time_without_a_zone_is_refused(now: Any) -> None:
    said = refusal(ConfigurationError, lambda: InMemoryJournal(KEYS).record_at_time(event(), now))
    assert said == "The time has no time zone. Give an aware datetime."


def test_a_time_that_utc_does_not_have_is_refused() -> None:
    far = datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))
    said = refusal(ConfigurationError, lambda: InMemoryJournal(KEYS).record_at_time(event(), far))
    assert said == "The time is out of range in UTC. Give one of this century."


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("store", 'x","what":"delete', InvalidId),
        ("thread", "a\nb", InvalidId),
        ("what", "sing", ConfigurationError),
        ("detail", 7, ConfigurationError),
        ("actor", object(), ConfigurationError),
    ],
)
def test_an_event_that_was_changed_behind_its_back_is_looked_at_again(
    field: str, value: object, error: type[CheckpointError]
) -> None:
    """As one is that comes out of a pickle, or of a class of somebody else's."""
    forged = event()
    object.__setattr__(forged, field, value)
    journal = InMemoryJournal(KEYS)
    with pytest.raises(error):
        journal.record(forged)
    assert journal.lines == []


def test_an_actor_that_was_changed_behind_its_back_is_looked_at_again() -> None:
    actor = Actor("ana", "login")
    object.__setattr__(actor, "name", "\ud800")
    with pytest.raises(ConfigurationError, match="cannot be the name of an actor"):
        InMemoryJournal(KEYS).record(event(actor=actor))


def test_a_ring_that_only_verifies_reads_and_does_not_write() -> None:
    pair = SigningKey.generate("ed25519")
    journal = InMemoryJournal(Keyring(pair))
    journal.record(event())
    reader = InMemoryJournal(Keyring(verify=pair.public))
    reader.lines = journal.lines
    assert reader.verify() == 1
    with pytest.raises(KeyRefused, match="only verifies"):
        reader.record(event())


# The chain


def lines_of(count: int, keys: Keyring = KEYS, name: str = "journal") -> list[bytes]:
    journal = InMemoryJournal(keys, name=name)
    for number in range(1, count + 1):
        journal.record_at_time(event(thread="t", sequence=number), NOW)
    return journal.lines


def verify(lines: list[bytes], keys: Keyring = KEYS, **options: Any) -> None:
    chain = Chain("journal", keys, **options)
    for line in lines:
        chain.follow(line, "here")
    chain.check_end()


THREE = lines_of(3)


def broken(lines: list[bytes], keys: Keyring = KEYS, **options: Any) -> str:
    return refusal(JournalBroken, lambda: verify(lines, keys, **options))


def signed_by(key: SigningKey, body: bytes) -> bytes:
    """A line as somebody with the key would write it, whatever the entry is."""
    signature = base64.b64encode(key.sign(_text.signed(body)))
    return b'{"entry":%b,"key":"%b","signature":"%b"}\n' % (body, key.id.encode(), signature)


def body_of(line: bytes) -> bytes:
    found = _text.frame(line[:-1])
    assert found is not None
    return found.entry


@pytest.mark.parametrize("number", [0, 1, 2])
def test_any_byte_that_is_changed_is_refused(number: int) -> None:
    for at in range(len(THREE[number])):
        edited = bytearray(THREE[number])
        edited[at] ^= 1
        lines = [*THREE[:number], bytes(edited), *THREE[number + 1 :]]
        with pytest.raises(JournalBroken):
            verify(lines)


def test_a_line_removed_moved_or_repeated_is_refused() -> None:
    one, two, three = THREE
    gap = "The line after entry 1 in here is entry 3, where entry 2 belongs: lines were removed,"
    assert broken([one, three]) == f"{gap} moved or repeated. {RESTORE}"
    assert broken([one, three, two]) == f"{gap} moved or repeated. {RESTORE}"
    assert broken([two, three]) == (
        "The first line in here is entry 2, where entry 1 belongs: lines were removed, moved or"
        f" repeated. {RESTORE}"
    )
    assert "is entry 1, where entry 2 belongs" in broken([one, one, two])


def test_a_line_of_another_history_is_refused() -> None:
    """The same key, the same number, and another entry before it."""
    journal = InMemoryJournal(KEYS)
    for _ in range(3):
        journal.record(event(detail="another"))
    assert broken([THREE[0], journal.lines[1]]) == (
        "The line after entry 1 in here was written after another entry 1 than the one that is"
        f" there. {RESTORE}"
    )


def test_a_line_of_another_journal_is_refused() -> None:
    assert broken(lines_of(1, name="other")) == (
        f"The first line in here is an entry of the journal other, not of journal. {RESTORE}"
    )


def test_a_key_that_is_not_on_the_ring_is_refused() -> None:
    key = SigningKey.generate()
    assert broken(lines_of(1, Keyring(key))) == (
        f"The first line in here cannot be verified. It names key '{key.id}', which is not on this"
        " keyring. If that key is one of yours, add it with Keyring(..., verify=[key]). If not,"
        " somebody else wrote the line."
    )


def test_a_signature_of_something_else_does_not_count() -> None:
    """Neither one of another line, nor one of the same bytes under another label."""
    body = body_of(THREE[1])
    other = THREE[0][THREE[0].index(b',"key"') :]
    said = (
        "The line after entry 1 in here was changed after it was written, or somebody else wrote"
        f" it. {RESTORE}"
    )
    assert broken([THREE[0], b'{"entry":%b%b' % (body, other)]) == said
    sealed = base64.b64encode(KEY.sign(b"safepoint/1\n" + body))
    forged = b'{"entry":%b,"key":"%b","signature":"%b"}\n' % (body, KEY.id.encode(), sealed)
    assert broken([THREE[0], forged]) == said


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"{}\n",
        THREE[0][:-1],
        THREE[0][:-1] + b"\r\n",
        b" " + THREE[0],
        THREE[0].replace(b'"key"', b'"Key"'),
        THREE[0].replace(b"=", b""),
        THREE[0].replace(b"ana", b"\xc3\xbc"),
    ],
)
def test_what_is_no_line_is_refused(line: bytes) -> None:
    assert broken([line]) == f"The first line in here is not a line of a journal. {RESTORE}"


def test_a_line_that_is_too_long_is_refused_before_it_is_looked_at() -> None:
    body = body_of(THREE[0]).replace(b'"detail":""', b'"detail":"%b"' % (b"x" * 40_000))
    assert broken([signed_by(KEY, body)]) == (
        f"The first line in here has more than 32768 bytes. {RESTORE}"
    )


FOREIGN = {
    "a field too many": (b'"what":"save"}', b'"what":"save","x":1}'),
    "a field too few": (b'"outcome":"intended",', b""),
    "spaces": (b'"what":"save"', b'"what": "save"'),
    "an event of another release": (b'"save"', b'"sing"'),
    "an escape where none is needed": (b'"ana"', b'"\\u0061na"'),
    "an escape in capitals": (b'"detail":""', b'"detail":"\\u00FF"'),
    "an escaped slash": (b'"detail":""', b'"detail":"\\/"'),
    "half a character": (b'"detail":""', b'"detail":"\\ud800"'),
    "a detail that is too long": (b'"detail":""', b'"detail":"%b"' % (b"x" * 1001)),
    "nobody": (b'"name":"ana"', b'"name":""'),
    "the 30th of February": (b"2026-01-31", b"2026-02-30"),
    "hour 24": (b"T09:30", b"T24:30"),
    "a device": (b'"thread":"t"', b'"thread":"con"'),
    "a number in letters": (b'"sequence":1', b'"sequence":"1"'),
    "a number with a zero": (b'"sequence":1', b'"sequence":01'),
    "a first entry after another": (b'"previous":null', b'"previous":"%b"' % DIGEST.encode()),
}


@pytest.mark.parametrize(("old", "new"), FOREIGN.values(), ids=FOREIGN)
def test_an_entry_has_one_spelling_even_from_a_holder_of_the_key(old: bytes, new: bytes) -> None:
    body = body_of(THREE[0])
    assert old in body
    assert broken([signed_by(KEY, body.replace(old, new))]) == (
        "The first line in here is an entry that this release did not write. Check that its writer"
        " runs a released version of safepoint with the same format."
    )


def test_older_keys_verify_after_a_rotation() -> None:
    new = SigningKey.generate("ed25519")
    journal = InMemoryJournal(KEYS.rotated(new))
    journal.lines = list(THREE)
    entry = journal.record(event())
    assert (entry.number, entry.key) == (4, new.id)
    assert [found.key for found in journal.show()] == [KEY.id] * 3 + [new.id]
    assert "cannot be verified" in broken(journal.lines)


def head_of(number: int) -> Head:
    return Head(number, digest_of(body_of(THREE[number - 1])))


def revoked(until: InMemoryAnchor | None) -> Keyring:
    return KEYS.rotated(SigningKey.generate()).revoking(KEY, until=until)


def test_a_stolen_key_counts_up_to_where_the_anchor_was() -> None:
    before = InMemoryAnchor()
    before.advance("journal", "journal", head_of(2))
    verify(THREE[:2], revoked(before))
    assert broken(THREE, revoked(before)) == (
        f"The line after entry 2 in here is signed by key {KEY.id}, which was revoked and does not"
        " count after entry 2. Whoever stole that key may have written it. Restore what was there"
        " before, and record with the new key."
    )
    assert f"key {KEY.id}, which was revoked and does not count here." in broken(
        THREE, revoked(None)
    )


@pytest.mark.parametrize("digit", "0f")
def test_a_thief_cannot_write_the_last_entry_that_counts_anew(digit: str) -> None:
    before = InMemoryAnchor()
    before.advance("journal", "journal", Head(2, f"sha256:{digit * 64}"))
    assert "does not count after entry 2" in broken(THREE[:2], revoked(before))


def test_a_point_of_revocation_that_cannot_be_read_is_no_point() -> None:
    class Down:
        def read(self, store: str, thread: str) -> Head | None:
            raise OSError

    keys = Keyring(SigningKey.generate(), revoked=Revoked(KEY, Down()))
    assert refusal(JournalUnavailable, lambda: verify(THREE, keys)) == (
        f"How far revoked key {KEY.id} counts cannot be read: OSError. Nothing is loaded without"
        " it. See the error that it came from."
    )


def test_the_anchor_sees_a_cut_and_another_history() -> None:
    verify(THREE, known=head_of(3))
    verify(THREE, known=head_of(2))
    cut = (
        "Its newest lines were cut off, or an old copy was restored. Put the whole journal back,"
        " and find out who did that."
    )
    assert broken(THREE[:2], known=head_of(3)) == (
        f"The journal journal ends at entry 2, and the anchor has seen entry 3. {cut}"
    )
    assert broken([], known=head_of(3)) == (
        f"The journal journal is empty, and the anchor has seen entry 3. {cut}"
    )
    assert broken(THREE, known=Head(2, DIGEST)) == (
        "Entry 2 of the journal journal is not the one that the anchor has seen. Two copies of the"
        " journal are in use, or one was written anew. Find out which is the right one."
    )


# In memory


def test_who_changed_what_when() -> None:
    journal = InMemoryJournal(KEYS)
    ben = Actor("ben", how="login")
    journal.record(event(thread="order-7"))
    journal.record(event(thread="order-8", what="resume", outcome="refused", actor=ben))
    journal.record(event(thread="order-7", store="other"))
    journal.record(event(what="rotate", actor=ben))

    def numbers(**asked: str) -> list[int]:
        return [entry.number for entry in journal.show(**asked)]

    assert numbers() == [1, 2, 3, 4]
    assert numbers(thread="order-7") == [1, 3]
    assert numbers(thread="order-7", store="invoices") == [1]
    assert numbers(what="rotate") == [4]
    assert numbers(thread="nobody") == []
    assert [entry.number for entry in journal.tail(2)] == [3, 4]
    assert len(journal.tail()) == 4
    assert [entry.actor for entry in journal.show(what="resume")] == [ben]


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        ({"store": "A"}, InvalidId, "'A' is not a store name."),
        ({"thread": ""}, InvalidId, "'' is not a thread name."),
        ({"what": "sing"}, ConfigurationError, "No event is called 'sing'. Choose one of: save,"),
    ],
)
def test_a_question_that_has_no_answer_is_refused_at_once(
    asked: dict[str, str], error: type[CheckpointError], said: str
) -> None:
    assert said in refusal(error, lambda: InMemoryJournal(KEYS).show(**asked))


@pytest.mark.parametrize("count", [0, -1, True, "3", 1.0])
def test_a_tail_has_a_length(count: Any) -> None:
    said = refusal(ConfigurationError, lambda: InMemoryJournal(KEYS).tail(count))
    assert said == f"{count!r} is not a number of entries. Give a whole number from 1 up."


@pytest.mark.parametrize("count", [1, 3])
def test_nothing_is_appended_to_an_edited_end(count: int) -> None:
    journal = InMemoryJournal(KEYS)
    for _ in range(count):
        journal.record(event())
    journal.lines[-1] = journal.lines[-1].replace(b"ana", b"ben")
    with pytest.raises(JournalBroken):
        journal.record(event())
    assert len(journal.lines) == count


def test_it_is_a_journal_and_shows_no_key() -> None:
    journal: Journal = InMemoryJournal()
    journal.record(event())
    assert repr(journal) == "InMemoryJournal(<1 entries>)"


def test_an_entry_cannot_be_changed() -> None:
    entry = InMemoryJournal(KEYS).record(event())
    with pytest.raises(dataclasses.FrozenInstanceError):
        entry.what = "delete"  # type: ignore[misc]
