r"""Attacks by what a record holds: code, and what a parser must not swallow.

Each payload does one harmless thing: it leaves a marker. The pickles are written by hand, opcode by
opcode, so that this module needs no pickler and you can see how little it takes: `c` imports a
name, the arguments follow, `R` calls it.

A seal says who wrote a record. What a decoder must not swallow, it must not swallow from the right
hands either: a writer with a bug, or one that somebody else controls. So these have the key.
"""

from __future__ import annotations

import base64
import importlib
import secrets
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ormsgpack import Ext, packb, unpackb

from safepoint.attacks.kit import Look, attacks, loads, overwrite, saved, unnoticed
from safepoint.attacks.outcome import HONEST, MARKER, WANTED, Miss
from safepoint.attacks.target import Target
from safepoint.core.names import DEFAULT_LIMITS

_TYPE = "datetime:timedelta"

code = attacks(
    "Attacks that carry code. Each payload does one harmless thing: it leaves a marker.",
    attacker="key",
)
decoding = attacks(
    "Attacks on whatever parses a record, and on what it says when it refuses.", attacker="key"
)


def marker_pickle(marker: Path) -> bytes:
    """Return a pickle that makes the folder `marker` while it is decoded, and yields None."""
    return b"cos\nmkdir\n(V%b\ntR." % str(marker).encode()


def marker_pickle_of_type(marker: Path) -> bytes:
    """Return a pickle that does the same, and then yields an honest `datetime.timedelta`."""
    run = b"cos\nmkdir\n(V%b\ntR0" % str(marker).encode()
    return run + b"cdatetime\ntimedelta\n(I1\ntR."


@code("pickle-payload", "SP03")
def pickle_payload(target: Target) -> Iterator[Look]:
    """A pickle in the record runs while it is decoded. The type check afterwards comes too late."""
    saved(target)
    _plant_pickle(target, marker_pickle(target.folder / MARKER))
    yield unnoticed(lambda: target.latest("victim"))


@code("pickle-right-type", "SP03")
def pickle_right_type(target: Target) -> Iterator[Look]:
    """The pickle runs and returns the declared type, so the type check passes."""
    saved(target)
    _plant_pickle(target, marker_pickle_of_type(target.folder / MARKER))
    yield unnoticed(lambda: target.latest("victim"))


@code("unknown-type", "SP09")
def unknown_type(target: Target) -> Iterator[Look]:
    """The record names a class that nobody listed, and its module is imported to look."""
    saved(target)
    module = f"sentinel_{secrets.token_hex(4)}"
    leaves_marker = f"import os\nos.mkdir({str(target.folder / MARKER)!r})\nclass Thing: pass\n"
    (target.folder / f"{module}.py").write_text(leaves_marker, encoding="utf-8")
    sys.path.insert(0, str(target.folder))
    importlib.invalidate_caches()
    states: list[Any] = [
        {"__type__": f"{module}:Thing"},
        {f"${module}.Thing": {}},
        {"py/object": f"{module}.Thing"},
        {"lc": 2, "type": "constructor", "id": [module, "Thing"], "kwargs": {}},
    ]
    if target.format == "msgpack":
        states.append(_tagged(f"{module}.Thing", {}))
    try:
        yield from _each(target, states)
        _plant_pickle(target, f"c{module}\nThing\n.".encode())
        yield _nothing_ran(target, "victim")
    finally:
        sys.path.remove(str(target.folder))
        sys.modules.pop(module, None)


@code("row-chooses-decoder", "SP10")
def row_chooses_decoder(target: Target) -> Iterator[Look]:
    """What a user typed into a form looks like the store's own mark for a pickle, and runs."""

    def typed(state: dict[str, Any]) -> bool:
        target.save("user", state)
        return bool(target.latest("user") != state)

    saved(target)
    pickle = base64.b64encode(marker_pickle_of_type(target.folder / MARKER)).decode()
    states = ({"__pickled__": pickle, "__type__": _TYPE}, {"$pickle": pickle})
    for state in states:
        yield partial(typed, {"note": state})
    tagged = [_tagged("pickle", pickle)] if target.format == "msgpack" else []
    yield from _each(target, [*states, *tagged])


def _plant_pickle(
    target: Target, pickle: bytes, type_name: str = _TYPE, instead: bytes = b""
) -> None:
    """Put a pickle where the format has room for one; else something in place of a state."""
    record = target.pickled(pickle, type_name)
    if record is None:
        target.smuggle("victim", instead or pickle)
    else:
        overwrite(target, target.records("victim")[-1], record)


def _each(target: Target, states: Iterable[Any]) -> Iterator[Look]:
    """Put each in place of a state, in a thread of its own, and let the victim load."""
    for number, state in enumerate(states):
        thread = f"victim-{number}"
        target.save(thread, HONEST)
        with suppress(Miss):
            target.smuggle(thread, target.encoded(state))
            yield _nothing_ran(target, thread)


def _nothing_ran(target: Target, thread: str) -> Look:
    """Let plain data come back as plain data. If anything ran, the marker tells."""

    def look() -> bool:
        target.latest(thread)
        return False

    return look


@decoding("duplicate-keys", "SP09")
def duplicate_keys(target: Target) -> Iterator[Look]:
    """The payee is there twice: the check reads alice, the payment reads mally."""
    saved(target)
    twice = b'{"amount":42,"payee":"alice","payee":"mally"}'
    if target.format == "msgpack":
        twice = b"\x83" + packb(HONEST)[1:] + packb("payee") + packb("mally")
    target.smuggle("victim", twice)
    yield loads(target, WANTED)


@decoding("not-a-number", "SP09")
def not_a_number(target: Target) -> Iterator[Look]:
    """The amount is NaN, so every comparison with a limit is false."""

    def differs_from_itself() -> bool:
        amount = target.latest("victim")["amount"]
        return bool(amount != amount)

    saved(target)
    target.smuggle("victim", target.encoded({**HONEST, "amount": float("nan")}))
    yield differs_from_itself


@decoding("deep-nesting", "SP11")
def deep_nesting(target: Target) -> Iterator[Look]:
    """A state of a hundred thousand lists inside one another takes the worker down."""
    saved(target)
    deep = b"[" * 100_000 + b"]" * 100_000
    target.smuggle("victim", deep if target.format == "json" else b"\x91" * 99_999 + b"\x90")
    yield unnoticed(lambda: target.latest("victim"))


@decoding("equal-hashes", "SP11")
def equal_hashes(target: Target) -> Iterator[Look]:
    """A set of numbers that share one hash is compared each with each, and the worker stalls."""
    saved(target)
    numbers = [n * sys.hash_info.modulus for n in range(9, 3_009)]  # each over 64 bits
    pickle = "cbuiltins\nset\n((l" + "".join(f"I{n}\na" for n in numbers) + "tR."
    items = sorted(packb(Ext(1, hex(n).encode())) for n in numbers)
    a_set = packb(Ext(10, b"\xdc" + len(items).to_bytes(2) + b"".join(items)))
    if target.format == "json":
        a_set = target.encoded({"$set": numbers})
    _plant_pickle(target, pickle.encode(), "builtins:set", a_set)
    yield lambda: isinstance(target.latest("victim"), set)


@decoding("oversized-record", "SP11")
def oversized_record(target: Target) -> Iterator[Look]:
    """A record of any size is read and parsed before anybody asks how large it is."""
    saved(target)
    target.smuggle("victim", target.encoded({"payee": "x" * DEFAULT_LIMITS.record_bytes}))
    yield unnoticed(lambda: target.latest("victim"))


@decoding("secret-in-error", "SP09")
def secret_in_error(target: Target) -> Iterator[Look]:
    """A refusal quotes the state that it refuses, and from then on it is in every log."""
    secret = secrets.token_hex(8)

    def leaks(thread: str) -> bool:
        try:
            target.latest(thread)
        except Exception as error:
            if secret in "".join(traceback.format_exception(error)) + repr(error):
                return True
            raise
        raise Miss  # this one was not refused, so it told nothing

    target.save("victim", {"amount": 42, "payee": secret})
    name = target.records("victim")[-1]
    undecodable = _undecodable if target.format == "json" else _undecodable_messagepack
    for broken in _broken(target.medium.read(name), target.encoded(secret)):
        target.medium.write(name, broken)
        yield partial(leaks, "victim")
    for number, payload in enumerate(undecodable(target.encoded(secret))):
        thread = f"victim-{number}"
        target.save(thread, HONEST)
        with suppress(Miss):
            target.smuggle(thread, payload)
            yield partial(leaks, thread)


def _broken(record: bytes, secret: bytes) -> Iterator[bytes]:
    yield record[:-1]
    yield record + b"x"
    yield record.replace(secret, secret[:-1])
    yield record.replace(secret, b'%b,"payee":%b' % (secret, secret))
    yield record.replace(b"amount", b"__type")
    for index in range(0, len(record), 2):
        yield record[:index] + bytes([record[index] ^ 1]) + record[index + 1 :]


def _undecodable(secret: bytes) -> Iterator[bytes]:
    yield b'{"amount":42,"payee":%b' % secret
    yield b'{"amount":42,"payee":%b,"payee":%b}' % (secret, secret)
    yield b'{"amount":NaN,"payee":%b}' % secret
    yield b'{"payee":%b,"amount":42}' % secret
    for tag in (b"__type__", b"$nobody", b"$date", b"$decimal", b"$uuid", b"$bytes", b"$int"):
        yield b'{"%b":%b}' % (tag, secret)


def _undecodable_messagepack(secret: bytes) -> Iterator[bytes]:
    amount, payee = packb("amount"), packb("payee")
    yield b"\x83" + amount + b"\x2a" + payee + secret
    yield b"\x83" + amount + b"\x2a" + (payee + secret) * 2
    yield b"\x82" + amount + packb(float("nan")) + payee + secret
    yield b"\xde\0\x02" + payee + secret + amount + b"\x2a"
    yield b"\x82" + payee + secret + secret + b"\xc1"
    yield packb(_tagged("nobody", unpackb(secret)))
    for extension in (*range(1, 13), 99):
        yield packb(Ext(extension, secret))


def _tagged(tag: str, content: Any) -> Ext:
    """Return what our format writes for a type of the caller's."""
    return Ext(0, b"%c%b%b" % (len(tag), tag.encode(), packb(content)))
