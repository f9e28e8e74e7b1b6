"""An allow-list that refuses, on save and on load."""

from dataclasses import dataclass
from datetime import UTC, datetime

from safepoint import Codec
from safepoint.core.errors import DecodeError, EncodeError


@dataclass
class Refund:
    amount: int
    due: datetime

    def __post_init__(self):
        if self.amount > 100:
            raise ValueError("a refund is at most 100")


@dataclass
class Session:
    token: str


codec = Codec([Refund])  # nothing else is ever built
refund = Refund(42, datetime(2026, 12, 1, tzinfo=UTC))
print(codec.decode(codec.encode(refund)) == refund)
#> True

try:
    codec.encode({"session": Session("s3cret")})
except EncodeError as refusal:
    print(type(refusal).__name__)
    #> EncodeError

# Validators run on load, too: they are part of the type.
edited = codec.encode(refund).replace(b"amount\x2a", b"amount\x7f")
try:
    codec.decode(edited)
except DecodeError as refusal:
    print(type(refusal).__name__)
    #> DecodeError
