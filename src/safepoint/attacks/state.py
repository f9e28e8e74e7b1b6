"""Attacks on what a checkpoint says: no exploit needed, only write access."""

from __future__ import annotations

import re
import shutil

from safepoint.attacks.kit import Attack, Outcome, Target

_PLANTED = {"amount": 5_000_000}


class EditState(Attack):
    """Change one number in a stored state."""

    id = "edit-state"
    rule = "SP01"
    story = "An amount of 42 in the store becomes 5000000, and the workflow pays it."

    def strike(self, target: Target) -> Outcome:
        """Replace the number in the file."""
        target.save("victim", {"amount": 42})
        file = target.file_of("victim", 1)
        before = file.read_bytes()
        after = re.sub(rb'"amount": ?42', b'"amount":5000000', before)
        if after == before:
            return Outcome.NOT_APPLICABLE
        file.write_bytes(after)
        return _verdict(target.latest("victim") == _PLANTED)


class PlantRecord(Attack):
    """Put a well-formed record of one's own where the newest belongs."""

    id = "plant-record"
    rule = "SP02"
    story = "A checkpoint that the application never wrote is loaded as if it had."

    def strike(self, target: Target) -> Outcome:
        """Overwrite the record with a forged one."""
        target.save("victim", {"amount": 42})
        target.file_of("victim", 1).write_bytes(target.forge("victim", _PLANTED))
        return _verdict(target.latest("victim") == _PLANTED)


class SwapThreads(Attack):
    """Copy a genuine record of one thread over another thread's."""

    id = "swap-threads"
    rule = "SP02"
    story = "One customer's genuine checkpoint is resumed as another customer's."

    def strike(self, target: Target) -> Outcome:
        """Copy the file."""
        target.save("victim", {"amount": 42})
        target.save("attacker", _PLANTED)
        shutil.copyfile(target.file_of("attacker", 1), target.file_of("victim", 1))
        return _verdict(target.latest("victim") == _PLANTED)


def _verdict(got_it: bool) -> Outcome:
    return Outcome.ACCEPTED if got_it else Outcome.NOT_APPLICABLE
