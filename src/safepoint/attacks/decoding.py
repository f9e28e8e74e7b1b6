"""Attacks on whatever parses a record, and on what it says when it refuses."""

from __future__ import annotations

import secrets
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import ClassVar

from safepoint.attacks.kit import Attack, got, unnoticed, worst
from safepoint.attacks.outcome import HONEST, WANTED, Miss, Outcome
from safepoint.attacks.target import Target
from safepoint.names import DEFAULT_LIMITS


class _Smuggled(Attack):
    """Put other encoded bytes in place of the state, under the genuine key where there is one.

    A seal says who wrote a record. What a decoder must not swallow, it must not swallow from the
    right hands either: a writer with a bug, or one that somebody else controls.
    """

    payload: ClassVar[bytes]

    def prepare(self, target: Target) -> None:
        """Write it past the encoder."""
        super().prepare(target)
        target.smuggle("victim", self.payload)

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return unnoticed(target.latest("victim"))


class DuplicateKeys(_Smuggled):
    """Say the same thing twice, differently."""

    id = "duplicate-keys"
    rule = "SP09"
    threat = 27
    story = "The payee is there twice: the check reads alice, the payment reads mally."
    payload = b'{"amount":42,"payee":"alice","payee":"mally"}'

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return got(target.latest("victim") == WANTED)


class NotANumber(_Smuggled):
    """Use a number that is equal to nothing and smaller than nothing."""

    id = "not-a-number"
    rule = "SP09"
    threat = 27
    story = "The amount is NaN, so every comparison with a limit is false."
    payload = b'{"amount":NaN,"payee":"alice"}'

    def strike(self, target: Target) -> Outcome:
        """Load, and see whether the amount differs from itself."""
        amount = target.latest("victim")["amount"]
        return got(amount != amount)


class DeepNesting(_Smuggled):
    """Nest deeper than the parser's stack."""

    id = "deep-nesting"
    rule = "SP11"
    threat = 26
    story = "A state of a hundred thousand brackets takes the worker down."
    payload = b"[" * 100_000 + b"]" * 100_000


class OversizedRecord(_Smuggled):
    """Send more than anybody wants to read."""

    id = "oversized-record"
    rule = "SP11"
    threat = 25
    story = "A record of any size is read and parsed before anybody asks how large it is."
    payload = b'{"payee":"%b"}' % (b"x" * DEFAULT_LIMITS.record_bytes)


class SecretInError(Attack):
    """Break records, and look for what they held in the errors."""

    id = "secret-in-error"
    rule = "SP09"
    threat = 32
    story = "A refusal quotes the state that it refuses, and from then on it is in every log."

    def prepare(self, target: Target) -> None:
        """Save something secret."""
        self._secret = secrets.token_hex(8)
        target.save("victim", {"amount": 42, "payee": self._secret})

    def strike(self, target: Target) -> Outcome:
        """Break the record in many ways, then write what cannot be decoded, and load."""
        return worst(target, self._looks(target))

    def _looks(self, target: Target) -> Iterator[Callable[[], Outcome]]:
        name = target.records("victim")[-1]
        record = target.medium.read(name)
        for broken in self._broken(record):
            target.medium.write(name, broken)
            yield lambda: self._look(target, "victim")
        for number, payload in enumerate(self._undecodable()):
            thread = f"victim-{number}"
            target.save(thread, HONEST)
            with suppress(Miss):
                target.smuggle(thread, payload)
                yield partial(self._look, target, thread)

    def _broken(self, record: bytes) -> Iterator[bytes]:
        quoted = b'"%b"' % self._secret.encode()
        yield record[:-1]
        yield record + b"x"
        yield record.replace(quoted, quoted[:-1])
        yield record.replace(quoted, b'%b,"payee":%b' % (quoted, quoted))
        yield record.replace(b"amount", b"__type")
        for index in range(0, len(record), 2):
            yield record[:index] + bytes([record[index] ^ 1]) + record[index + 1 :]

    def _undecodable(self) -> Iterator[bytes]:
        secret = b'"%b"' % self._secret.encode()
        yield b'{"amount":42,"payee":%b' % secret
        yield b'{"amount":42,"payee":%b,"payee":%b}' % (secret, secret)
        yield b'{"amount":NaN,"payee":%b}' % secret
        yield b'{"payee":%b,"amount":42}' % secret
        for tag in (b"__type__", b"$nobody", b"$date", b"$decimal", b"$uuid", b"$bytes", b"$int"):
            yield b'{"%b":%b}' % (tag, secret)

    def _look(self, target: Target, thread: str) -> Outcome:
        try:
            target.latest(thread)
        except Exception as error:
            told = "".join(traceback.format_exception(error)) + repr(error)
            if self._secret in told:
                return Outcome.ACCEPTED
            raise
        raise Miss  # this one was not refused, so it told nothing
