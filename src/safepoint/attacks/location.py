"""Attacks on where checkpoints lie."""

from __future__ import annotations

from safepoint.attacks.kit import Attack, Outcome, Target


class TraverseId(Attack):
    """Let a thread's name climb out of the folder."""

    id = "traverse-id"
    rule = "SP04"
    story = "A thread named ../outside writes a file next to the store's folder."

    def strike(self, target: Target) -> Outcome:
        """Save under a name that climbs, and look what appeared outside."""
        target.save("victim", {"amount": 42})
        before = set(target.folder.iterdir())
        target.save("../outside", {"amount": 42})
        written = set(target.folder.iterdir()) - before
        return Outcome.ACCEPTED if written else Outcome.NOT_APPLICABLE


class PlantSymlink(Attack):
    """Replace a record by a link to a file elsewhere."""

    id = "plant-symlink"
    rule = "SP04"
    story = "A record becomes a symbolic link, and the store reads a file from somewhere else."

    def strike(self, target: Target) -> Outcome:
        """Move the genuine record out of the store and link to it."""
        target.save("victim", {"amount": 42})
        file = target.file_of("victim", 1)
        elsewhere = target.folder / "elsewhere"
        file.rename(elsewhere)
        file.symlink_to(elsewhere)
        return Outcome.ACCEPTED if target.latest("victim") else Outcome.NOT_APPLICABLE


class OpenFolder(Attack):
    """Use a folder that everybody can write."""

    id = "open-folder"
    rule = "SP04"
    story = "The store's folder is open to every user of the machine, and nobody is told."

    def strike(self, target: Target) -> Outcome:
        """Open the folder's mode, and load."""
        target.save("victim", {"amount": 42})
        target.store.chmod(0o777)
        return Outcome.ACCEPTED if target.latest("victim") else Outcome.NOT_APPLICABLE
