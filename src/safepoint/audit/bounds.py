"""Is anything in a store larger, deeper or more than a reader allows? Counted, never parsed."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from safepoint.audit.files import Closed, content, existing_folder, files
from safepoint.audit.finding import Finding, worst_first
from safepoint.audit.formats import SEALED
from safepoint.audit.text import is_json, narrow
from safepoint.codec import check_shape
from safepoint.errors import LimitExceeded, shell
from safepoint.names import DEFAULT_LIMITS, Limits
from safepoint.storage.file import RECORD_NAME

_WORDS: Final = re.compile(rb'[^\[\]{},:"]+')


def check_bounds(path: str | os.PathLike[str], limits: Limits = DEFAULT_LIMITS) -> list[Finding]:
    """Look for records over the size limit, and for states that are too deep or hold too much.

    The brackets and commas are counted by the codec's own check, which runs before any parser.
    Nothing is decoded, and a file over the limit is not read. Sealed records are looked at, and
    JSON that anybody else wrote.

    ```python
    from pathlib import Path

    from safepoint import Limits
    from safepoint.audit import check_bounds

    Path("state").mkdir(mode=0o700)
    Path("state/order-7.json").write_text("[" * 500 + "]" * 500)
    for finding in check_bounds("state", Limits(depth=64)):
        print(finding.rule, finding.severity, finding.what.split(": ")[1])
        #> SP11 error The encoded state is nested deeper than 64 levels.
    ```

    Args:
        path: the folder of the store.
        limits: those of your ledger's codec and storage.

    Returns:
        An error under SP11 for each file over a limit, and a warning for what could not be looked
        at.

    Raises:
        StorageUnavailable: there is no such folder.
    """
    root = existing_folder(path)
    closed = Closed()
    over: list[Finding] = []
    for file in files(root, closed):
        try:
            _look(file, limits)
        except LimitExceeded as refusal:
            over.append(Finding("SP11", "error", refusal.what, refusal.do, file))
        except OSError as error:
            closed.add(file, error)
    return [*worst_first(over), *closed.findings("SP11")]


def _look(file: str, limits: Limits) -> None:
    found = content(file, 64)
    if found is None:
        return
    start, size = found
    sealed = SEALED.match(start)
    text = sealed is not None or is_json(start)
    most = limits.record_bytes + len(sealed[1] or b"" if sealed else b"")
    if size > most and (text or RECORD_NAME.match(Path(file).name)):
        raise LimitExceeded(
            f"{shell(file)} has {size} bytes or more, and the limit is {most}.",
            "Find out who wrote it; if it was you, pass the same Limits here as there.",
        )
    found = content(file, most) if text else None
    state = b"" if found is None else found[0]
    if sealed is not None:
        state = state[sealed.start(2) :].partition(b"\n")[2].partition(b"\n")[2].rstrip(b"\n")
    try:
        if len(state) > limits.state_bytes:
            check_shape(state, limits)
        check_shape(_skeleton(state), limits)
    except LimitExceeded as refusal:
        raise LimitExceeded(f"{shell(file)}: {refusal.what}", refusal.do) from None


def _skeleton(data: bytes) -> bytes:
    """Return what gives JSON its shape, and one byte for all that stands between.

    The codec's check knows what the codec writes. Here it must count in spite of spaces, long
    numbers and letters of any script.
    """
    bare = narrow(data).translate(None, b" \t\r\n")
    bare = bare.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in bare else bare
    return _WORDS.sub(b"0", bare)
