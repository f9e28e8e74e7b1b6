"""Verify records by their specification alone."""

# --8<-- [start:record]
import base64
import hashlib
import json
import re
from datetime import datetime

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ed25519

DIGEST = "sha256:[0-9a-f]{64}"
NAME = "[a-z0-9][a-z0-9_-]{0,63}"
WORD = "[A-Za-z0-9._@/+:-]{0,128}"
MOMENT = (
    "[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3])"
    r":[0-9]{2}:[0-9]{2}\.[0-9]{6}Z"
)
LINE_1 = re.compile(
    rb"safepoint/1 ([0-9a-f]{16}) ([A-Za-z0-9+/]{85}[AQgw]==)\n"
)
LINE_2 = re.compile(
    rf'\{{"app":"{WORD}",'
    r'"cipher":(null|"(?P<cipher>[0-9a-f]{16})"),'
    rf'"created":"(?P<created>{MOMENT})",'
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
    public = ed25519.Ed25519PublicKey.from_public_bytes(key)
    try:
        public.verify(signature, message)
    except InvalidSignature:
        return False
    return True


def exists(moment):
    try:
        return datetime.fromisoformat(moment)
    except ValueError:
        return None


def parse(line_2):
    header = LINE_2.fullmatch(line_2.decode("latin-1"))
    if not header or not exists(header["created"]):
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
    record,
    place,
    keys,
    base=False,
    revoked=None,
    limit=16781312,
    use=b"record",
):
    """Return the header, its digest and the state, or refuse."""
    check(len(record) <= limit, "LimitExceeded")

    line_1 = check(LINE_1.match(record), "RecordMalformed")
    key_id, signature = line_1[1].decode(), base64.b64decode(line_1[2])
    line_2, end, rest = record[line_1.end() :].partition(b"\n")
    check(end and len(line_2) <= 2048, "RecordMalformed")

    check(key_id in keys, "UnknownKey")
    message = b"safepoint/1 %b\n%b" % (use, line_2)
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


def check_cipher(header, encrypted):
    """Before you decode: the reader knows whether it is encrypted."""
    has_state = header["kind"] in ("state", "note")
    fits = encrypted == (header["cipher"] is not None)
    check(fits or not has_state, "DecodeError")


# --8<-- [end:record]
# --8<-- [start:thread]
def verify_thread(
    records,
    where,
    keys,
    base=None,
    anchor=None,
    revoked=None,
    use=b"record",
):
    """Return the states of all its records, or refuse.

    Args:
        records: by sequence, read after the anchor.
        where: store, tenant and thread.
        base: a sequence and a record, or None.
        anchor: a sequence and a digest, or None.
    """
    head, states = max(records, default=0), []
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
        header, digest, state = open_record(
            records[sequence],
            (*where, sequence),
            keys,
            revoked=revoked,
            use=use,
        )
        check(header["previous"] == previous, "WrongPlace")
        is_last = sequence == head
        check(header["kind"] != "deleted" or is_last, "WrongPlace")
        if anchor and sequence == anchor[0]:
            check(digest == anchor[1], "Forked")
        previous = digest
        states.append(state)
    return states


# --8<-- [end:thread]
# --8<-- [start:state]
TAG = re.compile(
    r"\$(date|datetime|time|timedelta|decimal|uuid|bytes|int|tuple"
    "|set|frozenset|dict|odict|path|posixpath|windowspath)"
)


def tagged(pairs):
    tags = [key for key, _ in pairs if key.startswith("$")]
    if tags and (len(pairs) > 1 or not TAG.fullmatch(tags[0])):
        raise ValueError
    return dict(pairs)


def whole(digits):
    if not -(2**63) <= int(digits) < 2**63:
        raise ValueError
    return int(digits)


def spell(value):
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), allow_nan=False
    )


def read_state(data, error="DecodeError"):
    """Return what canonical JSON says, or refuse.

    A value with a tag stays as it is, and nobody looks inside.
    """
    try:
        value = json.loads(
            data, object_pairs_hook=tagged, parse_int=whole
        )
        json.dumps(value, ensure_ascii=False).encode()  # no half pair
        spelled = spell(value).encode()
    except (ValueError, RecursionError):
        raise Refused(error) from None
    check(spelled == data, error)
    return value


# --8<-- [end:state]
# --8<-- [start:approval]
TEXT = "(?s:.*)"
DEVICE = "con|prn|aux|nul|(?:com|lpt)[0-9]"
NO_DEVICE = rf"(?!(?:{DEVICE})\Z){NAME}"
QUESTION = {
    "action": "[A-Za-z0-9._:/-]{0,128}",
    "app": WORD,
    "next": TEXT,
    "scope": TEXT,
    "store": NO_DEVICE,
    "tenant": f"(?:{NO_DEVICE})?",
    "then": "deny|continue",
    "thread": NO_DEVICE,
    "tools": DIGEST,
    "until": f"(?:{MOMENT})?",
}
ANSWER = {
    "approver": NO_DEVICE,
    "expires": MOMENT,
    "issued": MOMENT,
    "nonce": "[0-9a-f]{32}",
    "verdict": "approved|denied",
}
LISTS = {
    "details": "(?!.*  )[ -~]*",
    "done": TEXT,
    "reasons": "[a-z][a-z-]{0,63}",
    "tell": TEXT,
}


def are_texts(values, grammars):
    return all(
        isinstance(values[name], str)
        and re.fullmatch(grammar, values[name])
        for name, grammar in grammars.items()
    )


def is_sequence(value):
    return type(value) is int and 1 <= value <= 9999999999


def is_head(value):
    return (
        isinstance(value, dict)
        and value.keys() == {"digest", "sequence"}
        and are_texts(value, {"digest": DIGEST})
        and is_sequence(value["sequence"])
    )


def are_named(arguments):
    """An object; or its pairs, where a name begins with `$`."""
    if not isinstance(arguments, dict):
        return False
    pairs = arguments.get("$dict")
    if isinstance(pairs, list):
        return all(
            isinstance(pair, list) and pair and isinstance(pair[0], str)
            for pair in pairs
        )
    return not any(name.startswith("$") for name in arguments)


def is_list(values, grammar):
    return isinstance(values, list) and all(
        are_texts({"": value}, {"": grammar}) for value in values
    )


def is_statement(value, texts):
    """These fields and no other, each in its grammar."""
    others = {"arguments", "checkpoint", "head"}
    return (
        isinstance(value, dict)
        and value.keys() == {*texts, *LISTS, *others}
        and are_texts(value, texts)
        and all(is_list(value[name], LISTS[name]) for name in LISTS)
        and value["reasons"]
        and are_named(value["arguments"])
        and is_head(value["checkpoint"])
        and is_head(value["head"])
        and (value["until"] == "" or exists(value["until"]))
    )


def unwrapped(text):
    check(len(text) <= 65536, "ApprovalMalformed")
    text = text.replace("\r\n", "\n").strip(" \t\r\n")
    return text.encode("utf-8", "replace")


def open_question(text):
    """Return its fields, or refuse. Nobody has signed them."""
    fields = read_state(unwrapped(text), "ApprovalMalformed")
    check(is_statement(fields, QUESTION), "ApprovalMalformed")
    return fields


def open_approval(text, approvers, revoked=()):
    """Return the id of the key and the fields, or refuse.

    Args:
        approvers: by the id of a key, the key and whose it is.
        revoked: the ids of keys that no longer count.
    """
    lines = unwrapped(text) + b"\n"
    line_1 = check(LINE_1.match(lines), "ApprovalMalformed")
    line_2 = lines[line_1.end() : -1]

    key_id, signature = line_1[1].decode(), base64.b64decode(line_1[2])
    check(key_id in approvers, "ApprovalUntrusted")
    check(key_id not in revoked, "ApprovalUntrusted")
    key, owner = approvers[key_id]
    message = b"safepoint/1 approval\n" + line_2
    genuine = is_genuine(key, message, signature)
    check(genuine, "ApprovalUntrusted")

    fields = read_state(line_2, "ApprovalMalformed")
    known = is_statement(fields, {**QUESTION, **ANSWER})
    check(known, "ApprovalMalformed")
    check(exists(fields["issued"]), "ApprovalMalformed")
    check(exists(fields["expires"]), "ApprovalMalformed")
    check(fields["approver"] == owner, "ApprovalUntrusted")
    return key_id, fields


# --8<-- [end:approval]
# --8<-- [start:journal]
ENTRY = {
    "detail": "(?s:.{0,1000})",
    "outcome": "intended|done|refused",
    "store": NAME,
    "tenant": f"(?:{NAME})?",
    "what": "save|verify|resume|pause|approve|deny|expire|hold"
    "|release|act|rotate|prune|delete|erase|migrate|copy|accept-loss"
    "|own",
}
ACTOR = {"how": "(?s:.{1,256})", "name": "(?s:.{1,256})"}
OR_NULL = {"digest": DIGEST, "thread": NAME}


def is_entry(value, tenant, chain):
    others = {"actor", "sequence"}
    if not isinstance(value, dict):
        return False
    if value.keys() != {*ENTRY, *OR_NULL, *others}:
        return False
    said = {k: v for k, v in OR_NULL.items() if value[k] is not None}
    actor, sequence = value["actor"], value["sequence"]
    return (
        are_texts(value, {**ENTRY, **said})
        and isinstance(actor, dict)
        and actor.keys() == ACTOR.keys()
        and are_texts(actor, ACTOR)
        and (sequence is None or is_sequence(sequence))
        and value["tenant"] == tenant
        and (value["thread"] or "journal") == chain
    )


def verify_journal(records, where, keys, anchor=None, revoked=None):
    """Return the entries of one chain, or refuse."""
    options = {"anchor": anchor, "revoked": revoked, "use": b"journal"}
    try:
        states = verify_thread(records, where, keys, **options)
    except Refused:
        raise Refused("JournalBroken") from None
    found = []
    for state in states:
        entry = read_state(state, "JournalBroken")
        check(is_entry(entry, *where[1:]), "JournalBroken")
        found.append(entry)
    return found


# --8<-- [end:journal]
# --8<-- [start:key]
PUBLIC = re.compile(r"ssh-ed25519 ([A-Za-z0-9+/]{68})(?: [^\r\n]*)?\n?")
P = 2**255 - 19
Y = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826


def read_key(line):
    """Return the id and the 32 bytes of a public key, or refuse."""
    found = check(PUBLIC.fullmatch(line), "KeyRefused")
    blob = base64.b64decode(found[1])
    check(blob[:19] == b"\0\0\0\x0bssh-ed25519\0\0\0 ", "KeyRefused")
    public = blob[19:]
    y = int.from_bytes(public, "little") % 2**255 % P
    check(y not in (0, 1, P - 1, Y, P - Y), "KeyRefused")
    named = b"safepoint/1 key id ed25519\n" + public
    return hashlib.sha256(named).hexdigest()[:16], public


# --8<-- [end:key]
# --8<-- [start:names]
def base32(data):
    return base64.b32encode(data).decode().lower().rstrip("=")


def thread_name(text):
    """Return the name of a thread for any text."""
    plain = re.fullmatch(NO_DEVICE, text)
    if plain and not text.startswith(("t--", "b--", "h--")):
        return text
    data = text.encode()
    escape = re.compile(b"[^a-z0-9-]")
    escaped = escape.sub(lambda byte: b"_%02x" % ord(byte[0]), data)
    for name in (f"t--{escaped.decode()}", f"b--{base32(data)}"):
        if len(name) <= 64:
            return name
    return f"h--{base32(hashlib.sha256(data).digest())}"


# --8<-- [end:names]
# What the package sealed, by a published test key.
records = {}
records[1] = b"""\
safepoint/1 c3c41284c8b117fd \
Gyp3Az9nr9Wx8Sa69R/LJP9/iOu4o/nfvYBs3C/UfiioElA34+rhP5tikx3O/SA4\
BX+3uG6Kz8RToGsTTblpDg==
{"app":"invoice/1.4","cipher":null,\
"created":"2026-11-15T12:01:00.000000Z","digest":"sha256:\
79648ffb98a05a67d00ee67f08503504bf51a632a8533a2dd6994cb6bd4e19a5",\
"kind":"state","label":"","previous":null,\
"sequence":1,"store":"invoices","tenant":"",\
"thread":"order-7","tools":null}
{"amount":42}
"""
records[2] = b"""\
safepoint/1 c3c41284c8b117fd \
ZFVkp4UsXwkccUmxdTQqgkrRNT27V4xm3T8zgOWKm+A6IQTR85TynsEbqy9OQyhc\
xbU6spmYI8UPzG9eLVUCAg==
{"app":"invoice/1.4","cipher":null,\
"created":"2026-11-15T12:02:00.000000Z","digest":"sha256:\
1284011b559fb0e572e846007695ba67b5af29ca7bfca29358746bd71b022e1b",\
"kind":"state","label":"","previous":"sha256:\
6226e3a738e388028eb48e9236e33f500be661c31692b0a2d532d970a5ed520b",\
"sequence":2,"store":"invoices","tenant":"",\
"thread":"order-7","tools":null}
{"amount":43}
"""

key_id, public = read_key(
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvA5ne49L"
    "ODXa2B44RqxwzwAsTa0VxCMz5s9L5qoX4b writer"
)
where = ("invoices", "", "order-7")
keys = {key_id: public}
print(len(verify_thread(records, where, keys)), "records")
#> 2 records

records[2] = records[2].replace(b":43}", b":99}")
try:
    verify_thread(records, where, keys)
except Refused as refusal:
    print(refusal)
    #> SealBroken
