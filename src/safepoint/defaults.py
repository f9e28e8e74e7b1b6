"""Where state lives when nobody says where: each part in a folder of its own, for its owner alone.

              a user on Linux                           a service
    storage   ~/.local/state/safepoint/<store>/storage  /var/lib/safepoint/<store>/storage
    journal   ~/.local/state/safepoint/<store>/journal  /var/log/safepoint/<store>/journal
    anchor    ~/.local/state/safepoint-anchor/<store>   /var/lib/safepoint-anchor/<store>
    keys      ~/.local/share/safepoint-keys/<store>     /etc/safepoint-keys/<store>

What a backup takes together is below `safepoint`. The anchor and the keys are elsewhere, so that
nobody restores the first with the storage, or finds the second in the storage's backup.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Final

from safepoint._defaults.folders import make_folder
from safepoint._defaults.platform import is_service, of_a_service, of_a_user
from safepoint.anchor import FileAnchor
from safepoint.codec import Codec
from safepoint.errors import ConfigurationError, quoted, shell
from safepoint.ids import check_name
from safepoint.journal import Actor, FileJournal
from safepoint.keys import Keyring, SigningKey
from safepoint.ledger import Ledger
from safepoint.location import as_named
from safepoint.storage import FileCheckpointStorage
from safepoint.storage._posix import require_posix

KEY: Final = "signing.key"
JOURNAL_KEY: Final = "journal.key"
_PARTS: Final = ("storage", "keys", "anchor", "journal")


@dataclass(frozen=True, slots=True)
class Locations:
    """The folders of a store. None of them lies inside another.

    `default_locations` chooses them. To move one, for example to a volume of its own, replace it:

    ```python
    from dataclasses import replace
    from pathlib import Path

    from safepoint.defaults import default_locations

    usual = default_locations("invoices", service=True, environ={})
    print(usual.anchor)
    #> /var/lib/safepoint-anchor/invoices
    moved = replace(usual, anchor=Path("/mnt/witness/invoices"))
    print(moved.anchor)
    #> /mnt/witness/invoices
    ```

    Attributes:
        store: the name of the store.
        storage: for `FileCheckpointStorage`.
        keys: for the key files.
        anchor: for `FileAnchor`.
        journal: for `FileJournal`.
        roots: the folders of this package among the platform's. In these, `create` makes what is
            missing between them and the folders above.
        home: the user's home. In it, `create` also makes what is missing above the roots.

    Raises:
        InvalidId: the name of the store is outside the grammar.
        ConfigurationError: a path is relative, or one folder is inside another.
        StorageUnavailable: a path cannot be one.
    """

    store: str
    storage: Path
    keys: Path
    anchor: Path
    journal: Path
    roots: frozenset[Path] = field(default=frozenset(), repr=False)
    home: Path | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_name("store", self.store)
        for name in _PARTS:
            path = as_named(getattr(self, name), f"The folder for the {name}")
            if path != Path(getattr(self, name)):
                raise ConfigurationError(
                    f"The folder for the {name} is a relative path, which leads elsewhere as soon"
                    " as the process starts elsewhere.",
                    "Name an absolute path.",
                )
            if path.name in ("", ".."):
                raise ConfigurationError(
                    f"The folder for the {name} is {quoted(str(path))}, which is no folder of its"
                    " own.",
                    "Name one that is for this store alone.",
                )
            object.__setattr__(self, name, path)
        _check_apart(self._folders())

    @property
    def key_file(self) -> Path:
        """The file of the signing key, in the folder of the keys."""
        return self.keys / KEY

    @property
    def journal_key(self) -> Path:
        """The file of the key that signs the journal: whoever writes records cannot rewrite it."""
        return self.keys / JOURNAL_KEY

    @property
    def journal_anchor(self) -> Path:
        """For the `FileAnchor` of the journal, beside the other. No store can have its name."""
        return self.anchor.with_name(f"{self.anchor.name}.journal")

    def create(self) -> None:
        """Make each folder that is missing, with mode 0700 whatever the umask, and check the rest.

        No link is followed below the platform's own folders. What exists is not changed, so this
        can run at every start. Keys are not made here: `SigningKey.from_file` does that.

        Raises:
            UnsafeLocation: a folder belongs to somebody else or is open to others, or others could
                replace it. The message says what to run.
            StorageUnavailable: a folder cannot be made, or the system is not POSIX.
            StorageFull: there is no room.
            ConfigurationError: a link leads from one folder into another.
        """
        require_posix()
        folders = self._folders()
        _check_apart({name: _resolved(path) for name, path in folders.items()})
        for path in folders.values():
            self._create(path)

    def ledger(
        self, *, create: bool = False, codec: Codec | None = None, actor: Actor | None = None
    ) -> Ledger:
        """Open the store: files, a key and an anchor for them, and a journal with its own.

        For a ring of several keys, or parts of your own, construct the `Ledger` yourself.

        Args:
            create: make the folders, the keys, the anchors and the journal that are missing. Pass
                it once, when you set the store up: what is gone later is then refused, and not
                begun anew.
            codec: turns state into bytes and back, with your own types.
            actor: who acts, for the journal; the user of this process if you leave it out.

        Raises:
            CheckpointError: what `create`, `SigningKey.from_file`, `FileAnchor`, `FileJournal`,
                `FileCheckpointStorage` or `Ledger` refuses.
        """
        if create:
            self.create()
        keys = Keyring(SigningKey.from_file(self.key_file, create=create))
        journal = FileJournal(
            self.journal,
            keys=Keyring(SigningKey.from_file(self.journal_key, create=create)),
            name=self.store,
            anchor=FileAnchor(self.journal_anchor, create=create),
            create=create,
        )
        anchor = FileAnchor(self.anchor, create=create)
        return Ledger(
            FileCheckpointStorage(self.storage),
            store=self.store,
            keys=keys,
            codec=codec,
            anchor=anchor,
            journal=journal,
            actor=actor,
        )

    def _folders(self) -> dict[str, Path]:
        return {
            "storage": self.storage,
            "keys": self.keys,
            "anchor": self.anchor,
            "journal": self.journal,
            "journal's anchor": self.journal_anchor,
        }

    def _create(self, path: Path) -> None:
        top = next((root.parent for root in self.roots if root in path.parents), path.parent)
        # The XDG specification: a folder of the user's that is missing is made, for them alone.
        while self.home in top.parents and not os.path.lexists(top):
            top = top.parent
        make_folder(path, top)


def default_locations(
    store: str, *, service: bool | None = None, environ: Mapping[str, str] | None = None
) -> Locations:
    """Choose where a store keeps its parts, by the conventions of the platform.

    ```python
    from safepoint.defaults import default_locations

    locations = default_locations("invoices", service=True, environ={})
    print(locations.storage)
    #> /var/lib/safepoint/invoices/storage
    print(locations.key_file)
    #> /etc/safepoint-keys/invoices/signing.key
    ```

    A user's state is below `XDG_STATE_HOME`, and the keys are below `XDG_DATA_HOME`: many people
    publish what is in `XDG_CONFIG_HOME`. On macOS all is below `~/Library/Application Support`.
    A service has what systemd hands it in `STATE_DIRECTORY`, `LOGS_DIRECTORY` and
    `CONFIGURATION_DIRECTORY` (the first, of several), or `/var/lib`, `/var/log` and `/etc`. Of
    `STATE_DIRECTORY` the second folder is for the anchors, so that no restore of the first takes
    them back: `StateDirectory=invoices invoices-anchor`. A value that is empty or relative counts
    as not set.

    Nothing is created, and nothing is looked at but the environment.

    Args:
        store: the name of the store.
        service: whether this is a service, or a user's own program. None decides: it is one if
            root runs it, or `STATE_DIRECTORY` is set.
        environ: what to read in place of `os.environ`.

    Raises:
        InvalidId: the name of the store is outside the grammar.
        ConfigurationError: `service` is not a bool, or the environment puts one folder inside
            another.
        StorageUnavailable: the user has no home, systemd made one folder for the storage and its
            anchor, or the system is not POSIX.
    """
    require_posix()
    check_name("store", store)
    if not isinstance(service, (bool, type(None))):
        raise ConfigurationError(
            f"service is {quoted(service)}.", "Write service=True, service=False, or nothing."
        )
    given = os.environ if environ is None else environ
    if is_service(given) if service is None else service:
        bases = of_a_service(given)
    else:
        bases = of_a_user(given)
    stored, logged = bases.state / "safepoint", bases.logs / "safepoint"
    anchored, secret = bases.anchors / "safepoint-anchor", bases.keys / "safepoint-keys"
    return Locations(
        store=store,
        storage=stored / store / "storage",
        keys=secret / store,
        anchor=anchored / store,
        journal=logged / store / "journal",
        roots=frozenset([stored, logged, anchored, secret]),
        home=bases.home,
    )


def _resolved(path: Path) -> Path:
    """Return where a folder is, or would be. Itself, it must not be a link."""
    return Path(os.path.realpath(path.parent), path.name)


def _check_apart(folders: Mapping[str, Path]) -> None:
    for (one, first), (other, second) in combinations(folders.items(), 2):
        if first.is_relative_to(second) or second.is_relative_to(first):
            raise ConfigurationError(
                f"The folder for the {one} {shell(str(first))} is in one place with that for the"
                f" {other} {shell(str(second))}.",
                "Whoever can write one could write the other. Give each a folder of its own.",
            )
