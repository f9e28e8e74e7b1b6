"""Reasons: why a resume is not a matter of course."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """What the gate found. Its value is what a policy, an approval and the journal write.

    ```python
    from safepoint.reasons import Reason

    print(Reason.TOOLS_ADDED, "-", Reason.TOOLS_ADDED.sentence)
    #> tools-added - The run would get tools that it did not have at this checkpoint.
    ```
    """

    OLD_CHECKPOINT = "old-checkpoint"
    VERSION_CHANGED = "version-changed"
    NO_MIGRATION = "no-migration"
    TOOLS_ADDED = "tools-added"
    TOOL_CHANGED = "tool-changed"
    PERMISSIONS_WIDENED = "permissions-widened"
    ASKED = "asked"
    OWNED_BY_ANOTHER = "owned-by-another"
    UNVERIFIED = "unverified"

    @property
    def sentence(self) -> str:
        """What it means, for whoever has to decide."""
        return _SENTENCES[self]


_SENTENCES = {
    Reason.OLD_CHECKPOINT: (
        "The checkpoint is not the end of its thread, so steps that already ran would run again."
    ),
    Reason.VERSION_CHANGED: (
        "Another version of the workflow wrote the checkpoint, and its state may mean something"
        " else to this one."
    ),
    Reason.NO_MIGRATION: (
        "No migration leads from the version that wrote the checkpoint to this one, so its state"
        " would be read as it is."
    ),
    Reason.TOOLS_ADDED: "The run would get tools that it did not have at this checkpoint.",
    Reason.TOOL_CHANGED: (
        "A tool has the name that it had at this checkpoint, and another version or schema."
    ),
    Reason.PERMISSIONS_WIDENED: "A tool would be allowed more than it was at this checkpoint.",
    Reason.ASKED: "A step of the workflow asks for a person's yes.",
    Reason.OWNED_BY_ANOTHER: (
        "Another worker owns the thread, and with two at work its steps could run twice."
    ),
    Reason.UNVERIFIED: (
        "The checkpoint or the end of its thread could not be verified, so nothing in it is"
        " trusted."
    ),
}
