"""Which threads did another version write, and does each change of version say how it came?"""

from __future__ import annotations

from collections.abc import Iterator

from safepoint.approval import Reason
from safepoint.audit.finding import Finding, worst_first
from safepoint.audit.records import view_of
from safepoint.audit.workflows import Record, records_of, unverified
from safepoint.errors import AnchorError, CheckpointError, ConfigurationError, quoted
from safepoint.ledger import Ledger


def check_versions(ledger: Ledger, *apps: str) -> list[Finding]:
    """Find threads that another version of your workflow wrote, and changes that nobody explains.

    Nothing is changed. What does not verify is for `check_records`, and a note here. The ledger
    needs the keys, but not your types.

    ```python
    from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
    from safepoint.audit.versions import check_versions

    storage, keys = InMemoryCheckpointStorage(), Keyring(SigningKey.generate())
    ledger = Ledger(storage, store="invoices", keys=keys)
    ledger.save("order-7", {"amount": 42}, app="invoice@1")
    print(check_versions(ledger, "invoice@2")[0].what)
    #> order-7 ends at #1, which invoice@1 wrote, and you run invoice@2.
    ```

    Args:
        ledger: the store, with its keys and its anchor.
        apps: what you run today, as `Workflow.app` says it: "invoice@2". Each is compared with the
            threads of its own name; without any, only changes in the middle are found.

    Returns:
        Under SP17, an error for each change of version, or of workflow, in the middle of a thread
        that no record of a resumption explains; a note for each thread that ends with a checkpoint
        of another version, unless somebody denied how it goes on.

    Raises:
        ConfigurationError: an app is not one.
        StorageError: the storage cannot be listed.
    """
    today = dict(_named(app) for app in apps)
    try:
        threads = ledger.threads()
    except AnchorError as refusal:
        return [Finding("SP15", "error", refusal.what, refusal.do, ledger.store)]
    view, found = view_of(ledger), list[Finding]()
    for thread in threads:
        before: Record | None = None
        try:
            for record in records_of(view, thread, ledger.codec.limits):
                found += _changed(record, before)
                before = record
        except CheckpointError:
            found.append(unverified("SP17", thread, "versions"))
        else:
            found += _left_behind(before, today)
    return worst_first(found)


def _changed(record: Record, before: Record | None) -> Iterator[Finding]:
    if before is None:
        return
    resumed, source = record.resumed, record.source()
    was = before.app
    if resumed is not None:
        was = resumed.app if source is None else source.header.app
    explained = (
        resumed is not None
        and resumed.app == was
        and was.partition("@")[0] == record.app.partition("@")[0]
        and Reason.VERSION_CHANGED in resumed.reasons
    )
    if was != record.app and not explained:
        yield Finding(
            "SP17",
            "error",
            f"{record} was written by {_shown(record.app)} upon a state of {_shown(was)}, and no"
            " record says that it was resumed across versions.",
            "Find out what wrote it: its state may mean something else than it says.",
            record.thread,
        )


def _left_behind(last: Record | None, today: dict[str, str]) -> Iterator[Finding]:
    if last is None or (last.payload is not None and last.payload.denied is not None):
        return
    app = today.get(last.app.partition("@")[0], last.app)
    if app != last.app:
        yield Finding(
            "SP17",
            "note",
            f"{last.thread} ends at #{last.sequence}, which {last.app} wrote, and you run {app}.",
            "If it is not over, keep a migration from that version, or let that version end it.",
            last.thread,
        )


def _named(app: object) -> tuple[str, str]:
    if not isinstance(app, str) or not app:
        raise ConfigurationError(
            f"{quoted(app)} is not the name of a workflow.", 'Give Workflow.app: "invoice@2".'
        )
    return app.partition("@")[0], app


def _shown(app: str) -> str:
    return app or "something without a name"
