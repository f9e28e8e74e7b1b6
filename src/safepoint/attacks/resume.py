"""Attacks that wake a run up as something else, or somewhere else. No record is touched."""

from __future__ import annotations

from typing import ClassVar

from safepoint.attacks.kit import RunAttack, got
from safepoint.attacks.outcome import HONEST, Outcome
from safepoint.attacks.runs import TOOLS
from safepoint.attacks.target import Target
from safepoint.tools import Tool


class _OtherTools(RunAttack):
    rule = "SP18"
    threat = 33
    tools: ClassVar[tuple[Tool, ...]]

    def prepare(self, target: Target) -> None:
        """Let a run begin."""
        target.begin("victim", HONEST)

    def strike(self, target: Target) -> Outcome:
        """Go on with other tools than it began with."""
        return got(target.resume("victim", tools=self.tools) == HONEST)


class WiderTools(_OtherTools):
    """Wake a run up with a tool more."""

    id = "wider-tools"
    story = "A run that began with a mailbox wakes up with a bank account, and nobody said yes."
    tools = (*TOOLS, Tool("bank", version="1", permissions=["transfer"]))


class ChangedTool(_OtherTools):
    """Put another tool behind a name that the run knows."""

    id = "changed-tool"
    story = "Behind the name of a tool that was looked at there is now another one."
    tools = (Tool("mail", version="2-of-somebody-else", permissions=["read"]),)


class WiderPermissions(_OtherTools):
    """Let a tool do more than it could."""

    id = "wider-permissions"
    story = "The mailbox that the run could read can now send as well, and it does."
    tools = (Tool("mail", version="1", permissions=["read", "send"]),)


class RideAlong(WiderTools):
    """Use the yes to a payment to get another tool in."""

    id = "ride-along"
    story = "Somebody says yes to a payment, and the run wakes up with a new tool as well."

    def prepare(self, target: Target) -> None:
        """Get a genuine yes, from a process with the usual tools."""
        target.ask("victim", HONEST)
        self._yes = target.approve("victim")

    def strike(self, target: Target) -> Outcome:
        """Use it in a process with more of them."""
        return got(target.resume("victim", self._yes, tools=self.tools) == HONEST)


class OtherVersion(RunAttack):
    """Wake a run up in code that means something else by the same state."""

    id = "other-version"
    rule = "SP17"
    threat = 34
    story = "The new version counts in euros. A run with cents resumes, and pays a hundredfold."

    def prepare(self, target: Target) -> None:
        """Let a run begin."""
        target.begin("victim", HONEST)

    def strike(self, target: Target) -> Outcome:
        """Go on with other code."""
        return got(target.resume("victim", version="2") == HONEST)


class OldCheckpoint(RunAttack):
    """Go back to before the deed."""

    id = "old-checkpoint"
    rule = "SP16"
    threat = 4
    story = "A worker is told to resume from step 1, and pays a second time. Nobody asked for it."

    def prepare(self, target: Target) -> None:
        """Let a run begin and act."""
        target.begin("victim", HONEST)
        target.resume("victim")

    def strike(self, target: Target) -> Outcome:
        """Go on from its first checkpoint."""
        return got(target.resume("victim", sequence=1) == HONEST)
