"""Several processes that want one thread: one owner at a time, and nothing of a former one."""

from __future__ import annotations

import json
from pathlib import Path

from safepoint.storage import FileCheckpointStorage
from tests.unit.storage_helpers import python, tree

RACE = """
    import json, os, sys
    from datetime import UTC, datetime, timedelta
    from safepoint.errors import NotOwner
    from safepoint.storage import FileCheckpointStorage

    path, rounds, workers = sys.argv[1], 100, 8
    start = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
    go = [os.pipe() for _ in range(workers)]
    ours, theirs = os.pipe()
    children = []
    for number in range(workers):
        pid = os.fork()
        if not pid:
            try:
                storage = FileCheckpointStorage(path)
                for round in range(rounds):
                    os.read(go[number][0], 1)
                    now = start + timedelta(seconds=60 * round)
                    try:
                        won = storage.acquire_at_time("t", f"worker-{number}", 60, now).token
                    except NotOwner:
                        won = 0
                    os.write(theirs, json.dumps([number, won]).encode().ljust(32))
                os._exit(0)
            except BaseException as error:
                sys.excepthook(type(error), error, error.__traceback__)
                os._exit(99)
        children.append(pid)
    outcomes = []
    for round in range(rounds):
        for _, end in go:
            os.write(end, b"x")
        told = [json.loads(os.read(ours, 32)) for _ in range(workers)]
        outcomes.append([each for each in told if each[1]])
    for pid in children:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    print(json.dumps(outcomes))
"""


def test_8_processes_race_for_a_thread_100_times(tmp_path: Path) -> None:
    """In each round one gets it, with the next token; the clock then passes its end."""
    root = tmp_path / "store"
    FileCheckpointStorage(root)
    outcomes = json.loads(python(RACE, str(root)))
    assert [len(each) for each in outcomes] == [1] * 100
    assert [token for ((_, token),) in outcomes] == list(range(1, 101))
    assert len({number for ((number, _),) in outcomes}) > 1, "it was a race"
    last = FileCheckpointStorage(root).lease("t")
    assert last is not None
    assert (last.token, last.owner) == (100, f"worker-{outcomes[-1][0][0]}")
    assert tree(root) == [".tmp", "t", "t/lease"]


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
                storage, log = FileCheckpointStorage(path), []
                for move in range(moves):
                    time.sleep(random.uniform(0, 0.02))
                    lease = storage.lease("t")
                    now = start if lease is None else lease.expires
                    try:
                        lease = storage.acquire_at_time("t", f"worker-{number}", 60, now)
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
    assert list((root / ".tmp").iterdir()) == []
