"""Several processes at one thread: one winner, one owner, and nothing of a former one."""

from __future__ import annotations

import json
from pathlib import Path

from safepoint.storage import FileCheckpointStorage
from tests.unit.storage_helpers import python

# Each worker takes the thread over, looks where it ends, and saves until it is fenced off.
# What it saves is the token. The order of the records then is the order of the owners.
MOVES = """
    import json, os, random, sys, time
    from datetime import UTC, datetime, timedelta
    from safepoint.errors import Conflict, NotOwner
    from safepoint.storage import FileCheckpointStorage

    path, workers, moves = sys.argv[1], 4, 25
    start = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
    children = []
    for number in range(workers):
        pid = os.fork()
        if not pid:
            try:
                random.seed(number)
                now, log = start, []
                storage = FileCheckpointStorage(path, clock=lambda: now)
                for move in range(moves):
                    time.sleep(random.uniform(0, 0.02))
                    lease = storage.lease("t")
                    now = start if lease is None else lease.expires
                    try:
                        lease = storage.acquire("t", f"worker-{number}", 60)
                    except NotOwner:
                        continue
                    at_handover, saved = storage.head("t"), 0
                    try:
                        while saved < 8:
                            head = storage.head("t")
                            record = b"%d" % lease.token
                            try:
                                storage.append("t", head + 1, record, fence=lease.token)
                                saved += 1
                            except Conflict:
                                pass
                            time.sleep(random.uniform(0, 0.001))
                        end = "stopped"
                    except NotOwner:
                        end = "fenced off"
                    log.append([lease.token, at_handover, saved, end])
                with open(f"{path}/../log-{number}", "w") as file:
                    json.dump(log, file)
                os._exit(0)
            except BaseException as error:
                sys.excepthook(type(error), error, error.__traceback__)
                os._exit(99)
        children.append(pid)
    for pid in children:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    print("done")
"""


def test_nothing_of_a_former_owner_appears_after_the_next_one_got_its_token(
    tmp_path: Path,
) -> None:
    """Four processes take one thread from each other, and each saves until it is refused."""
    root = tmp_path / "store"
    storage = FileCheckpointStorage(root)
    assert python(MOVES, str(root)) == "done"
    files = [(tmp_path / f"log-{number}").read_text() for number in range(4)]
    logs = [each for file in files for each in json.loads(file)]
    tokens = sorted(token for token, *_ in logs)
    assert tokens == list(range(1, len(tokens) + 1)), "each token once"
    head = storage.head("t")
    written = [int(record) for record in storage.scan("t", 1, head)]
    assert written == sorted(written), "the owners one after the other"
    for token, at_handover, saved, _ in logs:
        assert written.count(token) == saved, "what was acknowledged, and nothing else"
        assert all(each >= token for each in written[at_handover:])
    assert sum(end == "fenced off" for *_, end in logs) >= 5
    assert len(set(written)) >= 5
    assert not list(root.glob("*/.next"))
