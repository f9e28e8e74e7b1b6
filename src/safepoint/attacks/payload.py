r"""Attacks that carry code. Each payload does one harmless thing: it leaves a marker.

The pickles are written by hand, opcode by opcode, so that this module needs no pickler and you can
see how little it takes: `c` imports a name, the arguments follow, `R` calls it.
"""

from __future__ import annotations

from pathlib import Path

from safepoint.attacks.kit import MARKER, Attack, Outcome, Target


def marker_pickle(marker: Path) -> bytes:
    """Return a pickle that makes the folder `marker` while it is decoded, and yields None."""
    return b"cos\nmkdir\n(V%b\ntR." % str(marker).encode()


def marker_pickle_of_type(marker: Path) -> bytes:
    """Return a pickle that does the same, and then yields an honest `datetime.timedelta`."""
    run = b"cos\nmkdir\n(V%b\ntR0" % str(marker).encode()
    return run + b"cdatetime\ntimedelta\n(I1\ntR."


class PicklePayload(Attack):
    """Replace the state by a pickle that runs code."""

    id = "pickle-payload"
    rule = "SP03"
    story = "A pickle in the record runs while it is decoded; the type check then fails, too late."

    def strike(self, target: Target) -> Outcome:
        """Plant a pickle whose result has the wrong type."""
        return _plant(target, marker_pickle(target.folder / MARKER), "datetime:timedelta")


class PickleRightType(Attack):
    """Run code and still return a value of the declared type."""

    id = "pickle-right-type"
    rule = "SP03"
    story = "The pickle runs and returns the declared type, so the type check passes."

    def strike(self, target: Target) -> Outcome:
        """Plant a pickle whose result has the right type."""
        return _plant(target, marker_pickle_of_type(target.folder / MARKER), "datetime:timedelta")


def _plant(target: Target, pickle: bytes, type_name: str) -> Outcome:
    record = target.pickled(pickle, type_name)
    if record is None:
        return Outcome.NOT_APPLICABLE
    target.save("victim", {"amount": 42})
    target.file_of("victim", 1).write_bytes(record)
    target.latest("victim")
    return Outcome.ACCEPTED
