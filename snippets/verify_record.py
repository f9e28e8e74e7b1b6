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


def open_record(
    record,
    place,
    keys,
    base=False,
    limit=16781312,
    use=b"record",
):
    """Return the header, its digest and the state, or refuse."""
    check(len(record) <= limit, "LimitExceeded")

    line_1 = check(LINE_1.match(record), "SealBroken form")
    key_id, signature = line_1[1].decode(), base64.b64decode(line_1[2])
    line_2, end, rest = record[line_1.end() :].partition(b"\n")
    check(end and len(line_2) <= 2048, "SealBroken form")

    check(key_id in keys, "SealBroken key")
    message = b"safepoint/1 %b\n%b" % (use, line_2)
    genuine = is_genuine(keys[key_id], message, signature)
    check(genuine, "SealBroken")

    header = check(parse(line_2), "SealBroken form")
    here = header["store"], header["tenant"], header["thread"]
    check(header["tenant"] == place[1], "SealBroken tenant")
    found = (*here, int(header["sequence"]))
    check(found == place, "SealBroken place")
    check((header["kind"] == "base") == base, "SealBroken place")

    check(digest_of(rest) == header["digest"], "SealBroken")
    return header, digest_of(line_2), rest


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
        header, _, _ = open_record(record, place, keys, True)
        previous = header["previous"]
    check(not base or head >= first, "RolledBack missing")
    check(not anchor or anchor[0] >= first, "RolledBack missing")

    for sequence in range(first, head + 1):
        check(sequence in records, "RolledBack missing")
        header, digest, state = open_record(
            records[sequence],
            (*where, sequence),
            keys,
            use=use,
        )
        check(header["previous"] == previous, "SealBroken chain")
        may_end = header["kind"] != "deleted" or sequence == head
        check(may_end, "SealBroken chain")
        if anchor and sequence == anchor[0]:
            check(digest == anchor[1], "RolledBack other")
        previous = digest
        states.append(state)
    return states


# --8<-- [end:thread]
# --8<-- [start:state]
import math
import struct

# First byte: what it begins, how long its number is, and the least
# that is written so.
HEADS = {
    0xC4: ("bytes", 1, 0),
    0xC5: ("bytes", 2, 256),
    0xC6: ("bytes", 4, 65536),
    0xC7: ("extension", 1, 0),
    0xC8: ("extension", 2, 256),
    0xC9: ("extension", 4, 65536),
    0xCC: ("number", 1, 128),
    0xCD: ("number", 2, 256),
    0xCE: ("number", 4, 65536),
    0xCF: ("number", 8, 2**32),
    0xD9: ("text", 1, 32),
    0xDA: ("text", 2, 256),
    0xDB: ("text", 4, 65536),
    0xDC: ("array", 2, 16),
    0xDD: ("array", 4, 65536),
    0xDE: ("map", 2, 16),
    0xDF: ("map", 4, 65536),
}
CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def part(data, at, size):
    check(at + size <= len(data), "DecodeError")
    return data[at : at + size]


def head_of(data, at):
    """Return what begins here, its number, and where that ends."""
    head, at = part(data, at, 1)[0], at + 1
    if head in CONSTANTS:
        return "constant", CONSTANTS[head], at
    if head < 0x80 or head >= 0xE0:
        return "number", head if head < 0x80 else head - 256, at
    if head < 0xC0:
        kinds = {0x80: "map", 0x90: "array"}
        size = head & 15 if head < 0xA0 else head & 31
        return kinds.get(head & 0xF0, "text"), size, at
    if head == 0xCB:
        (number,) = struct.unpack(">d", part(data, at, 8))
        check(math.isfinite(number), "DecodeError")
        return "constant", number, at + 8
    if 0xD0 <= head <= 0xD3:
        size = 1 << head - 0xD0
        number = int.from_bytes(part(data, at, size), signed=True)
        most = -(2 ** (4 * size - 1)) if size > 1 else -32
        check(number < most, "DecodeError")
        return "number", number, at + size
    if 0xD4 <= head <= 0xD8:
        return "extension", 1 << head - 0xD4, at
    check(head in HEADS, "DecodeError")
    kind, size, least = HEADS[head]
    number = int.from_bytes(part(data, at, size))
    check(number >= least, "DecodeError")
    fixed = kind == "extension" and number in (1, 2, 4, 8, 16)
    check(not fixed, "DecodeError")
    return kind, number, at + size


def read_value(data, at=0):
    """Return a value of MessagePack, and where it ends, or refuse."""
    kind, number, at = head_of(data, at)
    if kind in ("constant", "number"):
        return number, at
    if kind in ("text", "bytes"):
        found = part(data, at, number)
        return text_of(found) if kind == "text" else found, at + number
    if kind == "extension":
        code, body = part(data, at, 1)[0], part(data, at + 1, number)
        check(1 <= code <= 12, "DecodeError")  # 0: a type of yours
        inner = text_of(body) if code < 9 else read_state(body)
        return (code, inner), at + 1 + number
    values = []
    for _ in range(number if kind == "array" else 2 * number):
        value, at = read_value(data, at)
        values.append(value)
    if kind == "array":
        return values, at
    names = values[::2]
    check(all(isinstance(name, str) for name in names), "DecodeError")
    check(len(set(names)) == len(names), "DecodeError")
    return dict(zip(names, values[1::2], strict=True)), at


def text_of(data):
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refused("DecodeError") from None


def read_state(data):
    """Return what canonical MessagePack says, or refuse.

    Nobody looks at what an extension type means: it stays its code,
    with what follows it.
    """
    value, end = read_value(data)
    check(end == len(data), "DecodeError")
    return value


# --8<-- [end:state]
# --8<-- [start:approval]
TAG = re.compile(r"\$(bytes|date|datetime|time|decimal|uuid)")


def tagged(pairs):
    is_tag = len(pairs) == 1 and pairs[0][0].startswith("$")
    if is_tag and not TAG.fullmatch(pairs[0][0]):
        raise ValueError
    return dict(pairs)


def spell(value):
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), allow_nan=False
    )


def read_json(data, error):
    """Return what canonical JSON says, or refuse.

    A value with a tag stays as it is, and nobody looks inside.
    """
    try:
        value = json.loads(data, object_pairs_hook=tagged)
        json.dumps(value, ensure_ascii=False).encode()  # no half pair
        spelled = spell(value).encode()
    except (ValueError, RecursionError):
        raise Refused(error) from None
    check(spelled == data, error)
    return value


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
    """An object, and not one that is a tag."""
    return isinstance(arguments, dict) and not (
        len(arguments) == 1 and next(iter(arguments)).startswith("$")
    )


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
    check(len(text) <= 65536, "ApprovalRefused form")
    text = text.replace("\r\n", "\n").strip(" \t\r\n")
    return text.encode("utf-8", "replace")


def open_question(text):
    """Return its fields, or refuse. Nobody has signed them."""
    fields = read_json(unwrapped(text), "ApprovalRefused form")
    check(is_statement(fields, QUESTION), "ApprovalRefused form")
    return fields


def open_approval(text, approvers, revoked=()):
    """Return the id of the key and the fields, or refuse.

    Args:
        approvers: by the id of a key, the key and whose it is.
        revoked: the ids of keys that no longer count.
    """
    lines = unwrapped(text) + b"\n"
    line_1 = check(LINE_1.match(lines), "ApprovalRefused form")
    line_2 = lines[line_1.end() : -1]

    key_id, signature = line_1[1].decode(), base64.b64decode(line_1[2])
    check(key_id in approvers, "ApprovalRefused key")
    check(key_id not in revoked, "ApprovalRefused")
    key, owner = approvers[key_id]
    message = b"safepoint/1 approval\n" + line_2
    genuine = is_genuine(key, message, signature)
    check(genuine, "ApprovalRefused")

    fields = read_json(line_2, "ApprovalRefused form")
    known = is_statement(fields, {**QUESTION, **ANSWER})
    check(known, "ApprovalRefused form")
    check(exists(fields["issued"]), "ApprovalRefused form")
    check(exists(fields["expires"]), "ApprovalRefused form")
    check(fields["approver"] == owner, "ApprovalRefused")
    return key_id, fields


# --8<-- [end:approval]
# --8<-- [start:journal]
ENTRY = {
    "detail": "(?s:.{0,1000})",
    "outcome": "intended|done|refused",
    "store": NAME,
    "tenant": f"(?:{NAME})?",
    "what": "save|verify|resume|pause|approve|deny|expire|hold"
    "|release|act|rotate|prune|delete|erase|move|copy|accept-loss"
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


def verify_journal(records, where, keys, anchor=None):
    """Return the entries of one chain, or refuse."""
    options = {"anchor": anchor, "use": b"journal"}
    try:
        states = verify_thread(records, where, keys, **options)
    except Refused:
        raise Refused("SealBroken journal") from None
    found = []
    for state in states:
        entry = read_json(state, "SealBroken journal")
        check(is_entry(entry, *where[1:]), "SealBroken journal")
        found.append(entry)
    return found


# --8<-- [end:journal]
# --8<-- [start:key]
PUBLIC = re.compile(r"ssh-ed25519 ([A-Za-z0-9+/]{68})(?: [^\r\n]*)?\n?")
P = 2**255 - 19
Y = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826


def read_key(line):
    """Return the id and the 32 bytes of a public key, or refuse."""
    found = check(PUBLIC.fullmatch(line), "Unsafe")
    blob = base64.b64decode(found[1])
    check(blob[:19] == b"\0\0\0\x0bssh-ed25519\0\0\0 ", "Unsafe")
    public = blob[19:]
    y = int.from_bytes(public, "little") % 2**255 % P
    check(y not in (0, 1, P - 1, Y, P - Y), "Unsafe")
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
Qe9BfFv02NBS/whCECqJnMEXxoA8qQfGTK8H+tUWoFwDpP0BKHRWGXh38xE+Z7kJ\
kBfwF+2t64/7bZ8wtpYPCA==
{"app":"invoice/1.4","cipher":null,\
"created":"2026-11-15T12:01:00.000000Z","digest":"sha256:\
ffa9ffbcb4bbe60cb6ce64555fa3fa52cdf0e096d5b89f9499f5cff9f29159a2",\
"kind":"state","label":"","previous":null,\
"sequence":1,"store":"invoices","tenant":"",\
"thread":"order-7","tools":null}
\x81\xa5payee\xa5alice"""
records[2] = b"""\
safepoint/1 c3c41284c8b117fd \
/XxWeiD67CPVI2qrChCPgjLDvnt1ERmxZQYC1C4/dhqaL58wc0xDethKbA/CCsYG\
X5wQT7nrAHVQ1NBpGWkTCg==
{"app":"invoice/1.4","cipher":null,\
"created":"2026-11-15T12:02:00.000000Z","digest":"sha256:\
abf9a6440126f7f59e13c0f0351ec4efa6a5779ece1088f0df2327291311c516",\
"kind":"state","label":"","previous":"sha256:\
f59d9808d2050f9c268c30a5901e0f955f66512862d020161bdaaaab875b9a7a",\
"sequence":2,"store":"invoices","tenant":"",\
"thread":"order-7","tools":null}
\x81\xa5payee\xa5bella"""

key_id, public = read_key(
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvA5ne49L"
    "ODXa2B44RqxwzwAsTa0VxCMz5s9L5qoX4b writer"
)
where = ("invoices", "", "order-7")
keys = {key_id: public}
print(len(verify_thread(records, where, keys)), "records")
#> 2 records

records[2] = records[2].replace(b"bella", b"mally")
try:
    verify_thread(records, where, keys)
except Refused as refusal:
    print(refusal)
    #> SealBroken
