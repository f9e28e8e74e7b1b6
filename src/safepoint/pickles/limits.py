"""How large a pickle may be, in each of the ways in which one can be large."""

from __future__ import annotations

from dataclasses import dataclass

from safepoint.errors import LimitExceeded


@dataclass(frozen=True, slots=True)
class PickleLimits:
    """What is refused with `LimitExceeded` while a pickle is read.

    A pickle can refer to one value from many places. Nodes, text and depth are therefore counted
    as if each place had its own copy: what is small in the file and large once it is written out
    is large.

    Attributes:
        data_bytes: the pickle.
        opcodes: its instructions.
        memo: the values that it numbers, and the highest number.
        integer_bits: one integer.
        nodes: values, written out.
        text_bytes: text, bytes and integers, written out.
        depth: nesting.
        key_nodes: values in one key of a dict, or in one item of a set.
        number_keys: keys of one dict, or items of one set, whose hash anybody can predict:
            numbers above all. An attacker can choose them so that they get into each other's way,
            and the time goes with the square of their number. So many small dicts count little.
    """

    data_bytes: int = 64 * 1024 * 1024
    opcodes: int = 5_000_000
    memo: int = 2_000_000
    integer_bits: int = 2048
    nodes: int = 1_000_000
    text_bytes: int = 64 * 1024 * 1024
    depth: int = 64
    key_nodes: int = 64
    number_keys: int = 50_000


DEFAULT_PICKLE_LIMITS = PickleLimits()


def out_of_memory() -> LimitExceeded:
    """Return the error for a look at a file that the machine has no memory for."""
    return LimitExceeded(
        "There is not enough memory to look at the file.",
        "Nothing was run. Look at it on a larger machine, or keep it out.",
    )
