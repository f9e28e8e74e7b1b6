"""Verify records by their specification alone."""

# --8<-- [start:record]
import base64
import hashlib
import hmac
import re
from datetime import datetime

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ed25519

DIGEST = "sha256:[0-9a-f]{64}"
NAME = "[a-z0-9][a-z0-9_-]{0,63}"
WORD = "[A-Za-z0-9._@/+:-]{0,128}"
LINE_1 = re.compile(
    rb"safepoint/1 ([0-9a-f]{16}) "
    rb"([A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]="
    rb"|[A-Za-z0-9+/]{85}[AQgw]==)\n"
)
LINE_2 = re.compile(
    rf'\{{"app":"{WORD}",'
    r'"cipher":(null|"(?P<cipher>[0-9a-f]{16})"),'
    r'"created":"(?P<created>[0-9]{4}-[0-9]{2}-[0-9]{2}'
    r'T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}\.[0-9]{6}Z)",'
    rf'"digest":"(?P<digest>{DIGEST})",'
    r'"kind":"(?P<kind>state|note|base|deleted)",'
    rf'"label":"(?P<label>{WORD})",'
    rf'"previous":(null|"(?P<previous>{DIGEST})"),'
    r'"sequence":(?P<sequence>[1-9][0-9]{0,9}),'
    rf'"store":"(?P<store>{NAME})",'
    rf'"tenant":"(?P<tenant>(?:{NAME})?)",'
    rf'"thread":"(?P<thread>{NAME})",'
    rf'"tools":(null|"{DIGEST}")\}}'
)


class Refused(Exception):
    """Its text is the name of the error."""


def check(value, error):
    if not value:
        raise Refused(error)
    return value


def digest_of(data):
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def is_genuine(key, message, signature):
    if key["algorithm"] == "hmac-sha256":
        mac = hmac.digest(key["secret"], message, "sha256")
        return hmac.compare_digest(mac, signature)
    public = ed25519.Ed25519PublicKey.from_public_bytes(key["public"])
    try:
        public.verify(signature, message)
    except InvalidSignature:
        return False
    return True


def parse(line_2):
    header = LINE_2.fullmatch(line_2.decode("latin-1"))
    if not header:
        return None
    try:
        datetime.fromisoformat(header["created"])
    except ValueError:
        return None
    is_first = header["sequence"] == "1"
    if is_first != (header["previous"] is None):
        return None
    has_state = header["kind"] in ("state", "note")
    labelled = header["label"] or header["cipher"]
    return header if has_state or not labelled else None


def counts(until, sequence, digest, base):
    if base or until is None or sequence > until[0]:
        return False
    return sequence < until[0] or digest == until[1]


def open_record(
    record, place, keys, base=False, revoked=None, limit=16781312
):
    """Return the header, its digest and the state, or refuse."""
    check(len(record) <= limit, "LimitExceeded")

    line_1 = check(LINE_1.match(record), "RecordMalformed")
    key_id, signature = line_1[1].decode(), base64.b64decode(line_1[2])
    line_2, end, rest = record[line_1.end() :].partition(b"\n")
    check(end and len(line_2) <= 2048, "RecordMalformed")

    check(key_id in keys, "UnknownKey")
    message = b"safepoint/1 record\n" + line_2
    genuine = is_genuine(keys[key_id], message, signature)
    check(genuine, "SealBroken")

    header = check(parse(line_2), "RecordMalformed")
    sequence = int(header["sequence"])
    here = header["store"], header["tenant"], header["thread"]
    check((*here, sequence) == place, "WrongPlace")
    check((header["kind"] == "base") == base, "WrongPlace")

    check(digest_of(rest) == header["digest"], "SealBroken")
    check(rest.endswith(b"\n"), "SealBroken")

    digest = digest_of(line_2)
    if revoked and key_id in revoked:
        until = revoked[key_id]  # a sequence and a digest, or None
        check(counts(until, sequence, digest, base), "KeyRevoked")
    return header, digest, rest[:-1]


# --8<-- [end:record]
# --8<-- [start:thread]
def verify_thread(
    records, where, keys, base=None, anchor=None, revoked=None
):
    """Return how many records there are, or refuse.

    Args:
        records: by sequence, read after the anchor.
        where: store, tenant and thread.
        base: a sequence and a record, or None.
        anchor: a sequence and a digest, or None.
    """
    head = max(records, default=0)
    check(not anchor or head >= anchor[0], "RolledBack")

    first, previous = 1, None
    if base:
        first, record = base
        place = (*where, first)
        header, _, _ = open_record(record, place, keys, True, revoked)
        previous = header["previous"]
    check(not base or head >= first, "RecordsMissing")
    check(not anchor or anchor[0] >= first, "RecordsMissing")

    for sequence in range(first, head + 1):
        check(sequence in records, "RecordsMissing")
        header, digest, _ = open_record(
            records[sequence],
            (*where, sequence),
            keys,
            revoked=revoked,
        )
        check(header["previous"] == previous, "WrongPlace")
        is_last = sequence == head
        check(header["kind"] != "deleted" or is_last, "WrongPlace")
        if anchor and sequence == anchor[0]:
            check(digest == anchor[1], "Forked")
        previous = digest
    return head - first + 1


# --8<-- [end:thread]
# What the package sealed, by a published test key.
records = {}
records[1] = b"""\
safepoint/1 21e1d2f0634272a3 \
/ajeMDEVn/UmMSJt+FczlmCM6oHgRnwDoVgTF7PGkF0=
{"app":"invoice/1.4","cipher":null,\
"created":"2026-11-15T12:01:00.000000Z","digest":"sha256:\
79648ffb98a05a67d00ee67f08503504bf51a632a8533a2dd6994cb6bd4e19a5",\
"kind":"state","label":"","previous":null,\
"sequence":1,"store":"invoices","tenant":"",\
"thread":"order-7","tools":null}
{"amount":42}
"""
records[2] = b"""\
safepoint/1 21e1d2f0634272a3 \
2wXfTbebrdUPN9z7sz/H7pCNkh+dkF1YQS+9XBLEYro=
{"app":"invoice/1.4","cipher":null,\
"created":"2026-11-15T12:02:00.000000Z","digest":"sha256:\
1284011b559fb0e572e846007695ba67b5af29ca7bfca29358746bd71b022e1b",\
"kind":"state","label":"","previous":"sha256:\
6226e3a738e388028eb48e9236e33f500be661c31692b0a2d532d970a5ed520b",\
"sequence":2,"store":"invoices","tenant":"",\
"thread":"order-7","tools":null}
{"amount":43}
"""

secret = b"published test key: do not use!!"
key_id = hmac.digest(secret, b"safepoint/1 key id", "sha256")[:8].hex()
where = ("invoices", "", "order-7")
keys = {key_id: {"algorithm": "hmac-sha256", "secret": secret}}
print(verify_thread(records, where, keys), "records")
#> 2 records

records[2] = records[2].replace(b":43}", b":99}")
try:
    verify_thread(records, where, keys)
except Refused as refusal:
    print(refusal)
    #> SealBroken
