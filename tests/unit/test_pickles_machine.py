"""The interpreter, under attack: each pickle asks for more than data, or for too much of it."""

from __future__ import annotations

import pickle
import struct
import sys
import tracemalloc
from typing import Any

import pytest

from safepoint.errors import ConfigurationError, LimitExceeded, PickleRefused, UnsafeModel
from safepoint.pickles.limits import PickleLimits
from safepoint.pickles.machine import Collect, Constant, Name, Refused, run, run_at

INTACT = "Restore an intact copy, or write the state again."
NOT_DATA = "Do not load it with pickle. If you wrote it, save plain data in its place."
CIRCLE = (
    "The pickle changes a value that is part of another one by then. One that contains itself"
    " does that. Save a state without circles: with ids in place of objects."
)
P4 = b"\x80\x04"


class Ordered(dict[Any, Any]):
    """What a caller's function may give for a dict that has attributes."""

    state: Any = "not built"

    def __build__(self, state: Any) -> Ordered:
        self.state = state
        return self


CALLED: list[Any] = []


def note(*arguments: Any) -> Any:
    CALLED.append(arguments)
    return arguments


def fails(*_: Any) -> Any:
    raise KeyError("TOPSECRET")


def recurses(*_: Any) -> Any:
    return recurses()


def refuses(*_: Any) -> Any:
    raise UnsafeModel("It is not data.", "Leave it.")


class Endless:
    """Its hash takes more stack than there is."""

    def __hash__(self) -> int:
        return hash(self)


def hands_back(argument: Any) -> Any:
    return argument


FUNCTIONS: Any = {
    ("m", "note"): note,
    ("m", "fails"): fails,
    ("m", "recurses"): recurses,
    ("m", "refuses"): refuses,
    ("m", "hands_back"): hands_back,
    ("m", "Ordered"): Ordered,
    ("m", "Endless"): Endless,
    ("m", "dict"): dict,
    ("m", "list"): list,
    ("m", "set"): Collect("set"),
    ("m", "frozenset"): Collect("frozenset"),
    ("m", "float32"): Constant("float32"),
    ("m", "old"): Refused("Save something newer."),
}


def read(data: bytes, **options: Any) -> Any:
    CALLED.clear()
    return run(data, functions=FUNCTIONS, **options)


def refusal(data: bytes, **options: Any) -> str:
    with pytest.raises(PickleRefused) as refused:
        read(data, **options)
    assert refused.value.__context__ is None
    assert refused.value.__cause__ is None
    return str(refused.value)


def too_much(data: bytes, **limits: int) -> str:
    with pytest.raises(LimitExceeded) as refused:
        read(data, limits=PickleLimits(**limits))
    assert refused.value.__context__ is None
    return str(refused.value)


# What a pickle wants


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"cos\nsystem\n(S'id'\ntR.", "os.system"),
        (b"c__builtin__\neval\n(S'1'\ntR.", "__builtin__.eval"),
        (P4 + b"\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.", "os.system"),
        (P4 + b"\x8c\x06random\x8c\x0a_os.system\x93.", "random._os.system"),
        (P4 + b"\x8c\x08builtins\x8c\x07getattr\x93.", "builtins.getattr"),
        (b"cm\nnote.__globals__\n.", "m.note.__globals__"),
        (b"cm.note\n__globals__\n.", "m.note.__globals__"),
        (b"c\nnote\n.", "'.note'"),
        (b"cm\nno\\x74e\n.", "'m.no\\\\x74e'"),
    ],
)
def test_a_name_that_is_not_on_the_list_is_refused_by_its_name(data: bytes, wanted: str) -> None:
    assert refusal(data) == (
        f"The pickle wants {wanted}, which is not on the list of what may be built. {NOT_DATA}"
    )


def test_nothing_is_imported_to_find_that_out() -> None:
    assert "antigravity" not in sys.modules
    assert "antigravity.x" in refusal(b"cantigravity\nx\n.")
    assert "antigravity" not in sys.modules


def test_a_name_that_is_popped_again_is_refused_too() -> None:
    """A filter that only looks at the result would miss it."""
    assert "os.system" in refusal(b"(cos\nsystem\nl0I1\n.")


def test_a_name_can_be_refused_with_a_hint() -> None:
    assert refusal(b"cm\nold\n.") == (
        "The pickle wants m.old, which is not on the list of what may be built."
        " Save something newer."
    )


@pytest.mark.parametrize(
    "data",
    [
        P4 + b"\x8c\x01mK\x01\x93.",
        P4 + b"K\x01\x8c\x04note\x93.",
        P4 + b"C\x01mC\x04note\x93.",
        P4 + b"]\x8c\x04note\x93.",
    ],
)
def test_a_name_has_to_be_text(data: bytes) -> None:
    assert "takes a name that is no text" in refusal(data)


@pytest.mark.parametrize(
    ("data", "name", "do"),
    [
        (b"\x80\x02\x82\x01.", "EXT1", NOT_DATA),
        (b"\x80\x02\x83\x01\x00.", "EXT2", NOT_DATA),
        (b"\x80\x02\x84\x01\x00\x00\x00.", "EXT4", NOT_DATA),
        (b"(im\nnote\n.", "INST", NOT_DATA),
        (b"(cm\nnote\no.", "OBJ", NOT_DATA),
        (P4 + b"\x8c\x01m\x8c\x04note\x93)}\x92.", "NEWOBJ_EX", NOT_DATA),
        (b"N2.", "DUP", NOT_DATA),
        (b"N0.", "POP", "Save a state in which no tuple contains itself."),
        (b"(1.", "POP_MARK", "Save a state in which no tuple contains itself."),
        (
            b"\x80\x02\x8b\x01\x00\x00\x00\x01.",
            "LONG4",
            "Save an integer of more than 2039 bits as text or as bytes.",
        ),
        (
            b"\x80\x05\x96" + struct.pack("<Q", 1) + b"x.",
            "BYTEARRAY8",
            "Save bytes(value) in place of a bytearray.",
        ),
        (
            b"\x80\x05\x97.",
            "NEXT_BUFFER",
            "Save bytes in place of a buffer that is kept outside of the pickle.",
        ),
        (
            b"\x80\x05N\x98.",
            "READONLY_BUFFER",
            "Save bytes in place of a buffer that is kept outside of the pickle.",
        ),
        (b"Pid\n.", "PERSID", "Read it with the program that knows what its persistent ids"),
        (b"NQ.", "BINPERSID", "Read it with the program that knows what its persistent ids"),
    ],
)
def test_an_instruction_that_data_does_not_need_is_refused(data: bytes, name: str, do: str) -> None:
    told = refusal(data)
    assert told.startswith(f"The pickle uses {name}, which plain data does not need. {do}")


# Calls


def test_a_listed_function_is_called_with_what_the_pickle_gives() -> None:
    assert read(b"cm\nnote\n(I1\n(lp0\nI2\natR.") == (1, [2])
    assert CALLED == [(1, [2])]


def test_nothing_is_called_if_a_later_instruction_is_refused() -> None:
    """Attack: an allowed call first, for its side effect, and then something that fails."""
    for end in (b"cos\nsystem\n.", b"N0.", b"", b"\xff", b".more", b"N."):
        assert refusal(b"(cm\nnote\n(tR" + end)
        assert CALLED == []


def test_nothing_is_called_that_the_result_does_not_hold() -> None:
    """A memo keeps what was popped; only what the result refers to is built."""
    data = b"cm\nnote\n(I1\ntRp0\n"
    assert refusal(data + b"I2\n.") == f"The pickle does not end with one value. {INTACT}"
    assert CALLED == []


def test_newobj_goes_through_the_same_list() -> None:
    assert read(b"\x80\x02cm\nnote\nK\x05\x85\x81.") == (5,)
    assert "os.system" in refusal(b"\x80\x02cos\nsystem\n)\x81.")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"(I1\nl(tR.", "calls what is no name of the list"),
        (b"S'm.note'\n(tR.", "calls what is no name of the list"),
        (b"cm\nnote\n(tR(tR.", "calls what is no name of the list"),
        (b"cm\nfloat32\n(tR.", "calls what is no name of the list"),
        (b"cm\nnote\n(lR.", "calls m.note without a tuple of arguments"),
        (b"cm\nnote\nI1\nR.", "calls m.note without a tuple of arguments"),
        (b"cm\nnote\ncm\nnote\nR.", "calls m.note without a tuple of arguments"),
    ],
)
def test_only_names_are_called_and_only_with_tuples(data: bytes, what: str) -> None:
    assert what in refusal(data)


def test_what_a_function_raises_is_a_refusal_without_its_text() -> None:
    told = refusal(b"cm\nfails\n(tR.")
    assert told == f"The pickle gives m.fails what it does not take. {INTACT}"


def test_a_wrong_number_of_arguments_is_a_refusal() -> None:
    assert "gives m.hands_back what it does not take" in refusal(b"cm\nhands_back\n(tR.")


def test_a_function_may_refuse_with_an_error_of_its_own() -> None:
    with pytest.raises(UnsafeModel, match=r"It is not data\. Leave it\."):
        read(b"cm\nrefuses\n(tR.")


@pytest.mark.parametrize("data", [b"cm\nrecurses\n(tR.", b"(cm\nEndless\n(tRNd."])
def test_a_function_that_recurses_without_end_is_a_limit(data: bytes) -> None:
    assert too_much(data) == (
        "The pickle needs more memory than this process has."
        " Lower PickleLimits to what the process can hold, or let it use more."
    )


# Names as values


def test_a_name_is_an_argument_and_nothing_else() -> None:
    (argument,) = read(b"cm\nnote\n(cm\nlist\ntR.")
    assert type(argument) is Name
    assert argument.key == ("m", "list")


@pytest.mark.parametrize(
    "data",
    [
        b"cm\nnote\n.",
        b"(cm\nnote\nl.",
        b"(cm\nnote\nt.",
        b"(lcm\nnote\na.",
        b"(I1\ncm\nnote\nd.",
        b"(cm\nnote\nI1\nd.",
        b"((cm\nnote\ntt.",
        b"((cm\nnote\ntl.",
        b"cm\nnote\n((cm\nnote\nttR.",
        b"cm\nnote\n((cm\nnote\nltR.",
        b"cm\nOrdered\n(tRcm\nnote\nb.",
        b"cm\nOrdered\n(tR(cm\nnote\ntb.",
        b"cm\nhands_back\n(cm\nnote\ntR.",
        P4 + b"(\x8c\x01m\x8c\x04note\x93\x91.",
        P4 + b"\x8f(\x8c\x01m\x8c\x04note\x93\x90.",
    ],
)
def test_a_name_that_is_used_as_data_is_refused(data: bytes) -> None:
    assert refusal(data).startswith("The pickle holds m.note itself, which is no data.")


def test_a_constant_is_a_value() -> None:
    assert read(b"(cm\nfloat32\ncm\nfloat32\nd.") == {"float32": "float32"}


# Persistent ids


def test_a_persistent_id_is_looked_up_by_the_caller() -> None:
    given = []

    def persistent(identifier: Any) -> Any:
        given.append(identifier)
        return [identifier]

    data = b"(X\x07\x00\x00\x00storagecm\nfloat32\nK\x05tQ."
    assert read(data, persistent=persistent) == [("storage", "float32", 5)]
    assert given == [("storage", "float32", 5)]


def test_one_persistent_id_is_one_object() -> None:
    first, second = read(b"(K\x07Qq\x00h\x00l.", persistent=lambda _: object())
    assert first is second


@pytest.mark.parametrize("data", [b"cm\nnote\nQ.", b"(cm\nnote\ntQ."])
def test_a_name_is_no_persistent_id(data: bytes) -> None:
    assert "holds m.note itself" in refusal(data, persistent=lambda _: None)


def test_a_persistent_id_in_text_is_refused_even_so() -> None:
    assert "uses PERSID" in refusal(b"Pid\n.", persistent=lambda _: None)


def test_what_the_caller_raises_on_an_id_is_a_refusal() -> None:
    told = refusal(b"K\x01Q.", persistent=fails)
    assert told == f"The pickle gives a persistent id what it does not take. {INTACT}"


# BUILD


def test_a_state_goes_to_what_has_asked_for_it() -> None:
    built = read(b"cm\nOrdered\n(tRS'a'\nI1\ns(S'_metadata'\nI2\ndb.")
    assert type(built) is Ordered
    assert (built, built.state) == ({"a": 1}, {"_metadata": 2})


def test_no_state_is_none() -> None:
    assert read(b"cm\nOrdered\n(tR.").state is None


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"cm\nnote\n(tR(db.", "The pickle sets attributes of m.note, which takes none."),
        (b"cm\nnote\n(db.", "BUILD at byte 10 of the pickle sets attributes of what has none."),
        (b"(l(db.", "BUILD at byte 4 of the pickle sets attributes of what has none."),
        (b"I1\n(db.", "BUILD at byte 5 of the pickle sets attributes of what has none."),
        (b"cm\nfloat32\n(db.", "BUILD at byte 13 of the pickle sets attributes of what has none."),
        (
            b"cm\nOrdered\n(tR(db(db.",
            "BUILD at byte 19 of the pickle sets attributes of what has none.",
        ),
        (b"cm\nOrdered\n(tRNb.", "BUILD at byte 15 of the pickle sets no attributes."),
    ],
)
def test_attributes_are_set_on_nothing_else(data: bytes, what: str) -> None:
    assert refusal(data).startswith(what)


def test_a_class_of_the_list_keeps_its_attributes() -> None:
    """Attack: BUILD on the class itself changes it for the whole process."""
    assert "sets attributes of what has none" in refusal(b"cm\nOrdered\n(S'state'\nI666\ndb.")
    assert Ordered.state == "not built"


def test_a_method_cannot_be_overwritten_through_the_state() -> None:
    built = read(b"cm\nOrdered\n(tR(S'keys'\nI1\ndb.")
    assert callable(built.keys)


def test_what_is_filled_after_it_was_built_is_refused() -> None:
    assert "wants a dict that is not there" in refusal(b"cm\nOrdered\n(tR(dbI1\nI2\ns.")


def test_items_go_into_a_dict_and_nothing_else() -> None:
    assert read(b"cm\ndict\n(tRI1\nI2\ns.") == {1: 2}
    assert refusal(b"cm\nnote\n(tRI1\nI2\ns.") == (
        f"The pickle puts items into m.note, which takes none. {NOT_DATA}"
    )
    assert "APPEND at byte" in refusal(b"cm\nlist\n(tRI1\na.")


# Values that change, or contain themselves


@pytest.mark.parametrize(
    "data",
    [
        b"(lp0\ng0\na.",
        b"(lp0\n(g0\nla.",
        b"(lp0\n(g0\nI1\nda.",
        b"(dp0\nI1\ng0\ns.",
        b"(lp0\n(g0\ntp1\ng0\ng1\na.",
        b"(lp0\ncm\nnote\n(g0\ntRg0\nI1\na.",
        b"(dp0\n(g0\nlg0\nI1\nI2\ns.",
        b"cm\nOrdered\n(tRp0\n(g0\nlg0\n(db.",
        b"cm\nOrdered\n(tRp0\nI1\ng0\ns.",
        b"cm\nOrdered\n(tRp0\ng0\nb.",
        b"cm\nset\n((lp0\ntRg0\nI1\na.",
        P4 + b"\x8f\x94(h\x00\x90.",
    ],
)
def test_a_value_that_is_part_of_another_one_does_not_change(data: bytes) -> None:
    assert refusal(data) in (
        CIRCLE,
        f"The pickle has a key that can change: a list, a dict or a set, or one within. {INTACT}",
    )


def test_circles_of_the_pickler_are_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    ring: dict[str, Any] = {}
    ring["x"] = [ring]
    loop: Any = ([],)
    loop[0].append(loop)
    for value in (circle, ring, loop):
        for protocol in range(6):
            assert refusal(pickle.dumps(value, protocol))


def test_what_is_shared_is_one_object() -> None:
    inner = [1]
    first, second = read(pickle.dumps([inner, inner]))
    assert first is second
    assert first == [1]


# Bombs


def test_a_memo_index_takes_no_memory() -> None:
    """Attack: nine bytes made pickle reserve four gigabytes."""
    tracemalloc.start()
    try:
        told = too_much(b"Nr\xff\xff\xff\xff.")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert told == (
        "The pickle numbers a value above the limit of 2000000."
        " Split what it holds, or raise PickleLimits.memo."
    )
    assert "numbers a value" in too_much(b"Np99999999999999999999\n.")
    assert read(b"Np4\n.", limits=PickleLimits(memo=5)) is None
    assert too_much(b"Np5\n.", memo=5)


DOUBLES = {
    "list": b"(g%d\ng%d\nl",
    "tuple": b"(g%d\ng%d\nt",
    "dict": b"(I1\ng%d\nI2\ng%d\nd",
    "call": b"cm\nnote\n(g%d\ng%d\ntR",
}


@pytest.mark.parametrize("pair", DOUBLES.values(), ids=DOUBLES)
def test_a_value_that_doubles_forty_times_is_counted_and_not_built(pair: bytes) -> None:
    """Attack: each value holds the one before it, twice."""
    steps = b"".join((pair + b"p%d\n") % (level, level, level + 1) for level in range(40))
    assert too_much(b"((lp0\n" + steps + b"l.") == (
        "The pickle holds more than 1000000 values, written out."
        " Split what it holds, or raise PickleLimits.nodes."
    )
    assert CALLED == []


def test_a_value_that_doubles_by_appending_is_counted() -> None:
    data = b"(" + b"(lp0\n"
    for level in range(40):
        data += b"(lp%d\ng%d\nag%d\na" % (level + 1, level, level)
    assert "more than 1000000 values" in too_much(data + b"l.")


def test_text_that_is_referred_to_often_is_counted_often() -> None:
    data = b"(X" + struct.pack("<I", 1000) + b"a" * 1000 + b"q\x00" + b"h\x00" * 99 + b"l."
    assert read(data, limits=PickleLimits(text_bytes=100_000)) == ["a" * 1000] * 100
    assert too_much(data, text_bytes=99_999) == (
        "The pickle holds more than 99999 bytes of text, written out."
        " Split what it holds, or raise PickleLimits.text_bytes."
    )


def test_text_in_a_value_that_is_referred_to_often_is_counted_often() -> None:
    text = b"X" + struct.pack("<I", 1000) + b"a" * 1000
    data = b"((" + text + b"lq\x00" + b"h\x00" * 99 + b"t."
    assert len(read(data, limits=PickleLimits(text_bytes=100_000))) == 100
    assert "bytes of text" in too_much(data, text_bytes=99_999)


@pytest.mark.parametrize(
    "item", [b"C\x64" + b"a" * 100, b"\x8a\x64" + b"\x7f" * 100], ids=["bytes", "int"]
)
def test_bytes_and_integers_count_as_text(item: bytes) -> None:
    data = P4 + b"(" + item + b"\x94" + b"h\x00" * 99 + b"l."
    assert len(read(data, limits=PickleLimits(text_bytes=10_000))) == 100
    assert "bytes of text" in too_much(data, text_bytes=9_000)


def test_values_are_counted_exactly() -> None:
    """A list of three is four values."""
    assert read(b"(NNNl.", limits=PickleLimits(nodes=4)) == [None] * 3
    assert too_much(b"(NNNl.", nodes=3)
    assert too_much(b"(lNaNaNa.", nodes=3)


def test_values_that_nothing_holds_are_counted_too() -> None:
    assert "more than 5 values" in too_much(b"(l" * 6, nodes=5)
    assert "cut short" in refusal(b"(l" * 5, limits=PickleLimits(nodes=5))


def test_names_that_nothing_holds_take_no_memory() -> None:
    """Attack: five bytes for each, and as many as fit into the pickle."""
    tracemalloc.start()
    try:
        assert refusal(b"cm\nfloat32\n" * 50_000 + b"cm\nlist\n" * 50_000 + b".")
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("unit", [b"(", b"(I1\n"], ids=["lists", "tuples"])
def test_nesting_is_capped(unit: bytes) -> None:
    close = b"l" if unit == b"(" else b"t"
    assert read(unit * 64 + close * 64 + b".")
    assert too_much(unit * 65 + close * 65 + b".") == (
        "The pickle is nested deeper than 64 levels."
        " Save a flatter state, or raise PickleLimits.depth."
    )


def test_a_hundred_thousand_levels_end_as_a_refusal() -> None:
    for close in (b"l", b"t"):
        assert "deeper than 64" in too_much(b"(" * 100_000 + close * 100_000 + b".")
    data = b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."
    assert "deeper than 64" in too_much(data)


def test_a_raised_depth_is_built_without_recursion() -> None:
    limits = PickleLimits(depth=100_000)
    value = read(b"(" * 50_000 + b"l" * 50_000 + b".", limits=limits)
    depth = 0
    while value:
        (value,) = value
        depth += 1
    assert depth == 49_999


def test_the_stack_of_marks_is_bounded_by_the_instructions() -> None:
    assert "more than 100 instructions" in too_much(b"(" * 1000, opcodes=100)


def test_a_whole_pickle_that_is_too_large_is_not_looked_at() -> None:
    assert "larger than 10 bytes" in too_much(b"N." + b"x" * 9, data_bytes=10)


# Keys


@pytest.mark.parametrize(
    "data",
    [
        b"((lI1\nd.",
        b"((dI1\nd.",
        b"(((ltI1\nd.",
        b"((((dttI1\nd.",
        P4 + b"(]\x91.",
        P4 + b"\x8f(]\x90.",
        P4 + b"(\x8fK\x01d.",
        b"cm\nset\n(((lltR.",
    ],
)
def test_a_key_cannot_change(data: bytes) -> None:
    assert refusal(data) == (
        f"The pickle has a key that can change: a list, a dict or a set, or one within. {INTACT}"
    )


def test_a_key_that_a_function_made_has_to_be_one() -> None:
    assert refusal(b"(cm\nlist\n(tRI1\nd.") == f"The pickle has a key that cannot be one. {INTACT}"


@pytest.mark.parametrize(
    "data",
    [
        b"(I1\nI2\nI1\nI3\nd.",
        b"(dI1\nI2\nsI1\nI3\ns.",
        b"(I1\nI2\nF1.0\nI3\nd.",
        P4 + b"(K\x01K\x01\x91.",
        P4 + b"\x8f(K\x01K\x01\x90.",
        b"cm\nset\n((I1\nI1\nltR.",
        b"cm\ndict\n(tR(I1\nI2\nI1\nI3\nu.",
    ],
)
def test_a_key_comes_once(data: bytes) -> None:
    assert refusal(data) == f"The pickle has one key twice. {INTACT}"


@pytest.mark.parametrize("data", [b"(I1\nd.", b"(d(I1\nu."])
def test_a_key_has_a_value(data: bytes) -> None:
    assert "has a key without a value" in refusal(data)


def test_a_key_is_short() -> None:
    key = b"(" + b"N" * 63 + b"t"
    assert len(read(b"(" + key + b"Nd.")) == 1
    assert too_much(b"((" + b"N" * 64 + b"tNd.") == (
        "The pickle has a key of more than 64 values."
        " Use shorter keys, or raise PickleLimits.key_nodes."
    )


def test_nested_tuples_as_keys_cost_nothing() -> None:
    """Attack: a tuple of the same tuple, twice, forty times: its hash takes years."""
    data = b"((tp0\n" + b"".join(b"(g%d\ng%d\ntp%d\n" % (n, n, n + 1) for n in range(40))
    data = b"(" + data + b"tI1\nd."
    with pytest.raises(LimitExceeded):
        read(data)


P61 = 2**61 - 1


@pytest.mark.parametrize(
    "items",
    [
        [b"\x8a\x11" + (n * P61).to_bytes(17, "little") for n in range(1, 3000)],
        [b"G" + struct.pack(">d", 2.0**61 * n - n) for n in range(1, 3)]
        + [b"\x8a\x11" + (n * P61 + 7).to_bytes(17, "little") for n in range(3000)],
        [b"\x8a\x11" + (n * P61).to_bytes(17, "little") + b"\x85" for n in range(1, 3000)],
    ],
    ids=["integers", "numbers", "tuples"],
)
def test_keys_that_share_a_hash_are_refused_before_they_meet(items: list[bytes]) -> None:
    """Attack: each insertion is compared with all before it."""
    told = (
        "The pickle has more numbers as keys than can be told from an attack: more than 50000, or"
        " too many that share a hash. Save a list in place of a set, or raise"
        " PickleLimits.number_keys."
    )
    assert too_much(P4 + b"(" + b"".join(items) + b"\x91.") == told
    assert too_much(P4 + b"\x8f(" + b"".join(items) + b"\x90.") == told
    assert too_much(P4 + b"}(" + b"".join(item + b"N" for item in items) + b"u.") == told
    data = b"\x80\x02cm\nset\n](" + b"".join(items) + b"e\x85R."
    if b"G" not in data[:20]:
        assert too_much(data) == told


def test_many_small_groups_of_shared_hashes_do_not_add_up() -> None:
    """Attack: below a limit in each of many sets, above it in sum. Cost stays in proportion."""
    group = b"(" + b"".join(b"\x8a\x11" + (n * P61).to_bytes(17, "little") for n in range(1, 13))
    assert len(read(P4 + b"(" + (group + b"\x91") * 500 + b"l.")) == 500


def test_hashes_that_collide_by_nature_are_no_attack() -> None:
    """-1 and -2 share a hash, so a grid around zero has a pair in each row."""
    grid = {(x, y): 0 for x in range(-2, 40) for y in range(-2, 40)}
    assert read(pickle.dumps(grid)) == grid


def test_numbers_as_keys_are_capped_by_the_square() -> None:
    """Attack: hashes that differ, and send each key along the way of the others."""
    limits = PickleLimits(number_keys=100)
    assert read(pickle.dumps(set(range(100))), limits=limits)
    with pytest.raises(LimitExceeded, match="more than 100"):
        read(pickle.dumps(set(range(101))), limits=limits)
    with pytest.raises(LimitExceeded, match="more than 100"):
        read(pickle.dumps([set(range(80)), set(range(80))]), limits=limits)
    assert read(pickle.dumps([{n} for n in range(10_000)]), limits=limits)
    assert read(pickle.dumps({str(n) for n in range(1000)}), limits=limits)


# Form


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b".", "The pickle does not end with one value."),
        (b"NN.", "The pickle does not end with one value."),
        (b"(N.", "The pickle does not end with one value."),
        (b"N(.", "The pickle does not end with one value."),
        (b"N", "The pickle is cut short."),
        (b"", "The pickle is cut short."),
        (b"N.N.", "The pickle ends, and something else follows at byte 2."),
        (b"N.\n", "The pickle ends, and something else follows at byte 2."),
        (b"Na.", "APPEND at byte 1 of the pickle wants a value that is not there."),
        (b"NNa.", "APPEND at byte 2 of the pickle wants a list that is not there."),
        (b"(lNNs.", "SETITEM at byte 4 of the pickle wants a dict that is not there."),
        (b"l.", "LIST at byte 0 of the pickle wants a mark that is not there."),
        (b"(l(a.", "APPEND at byte 3 of the pickle wants a value that is not there."),
        (b"(N(p0\n.", "PUT at byte 3 of the pickle wants a value that is not there."),
        (
            b"\x80\x02N(\x85t\x86.",
            "TUPLE1 at byte 4 of the pickle wants a value that is not there.",
        ),
        (b"p0\n.", "PUT at byte 0 of the pickle wants a value that is not there."),
        (b"N(R.", "REDUCE at byte 2 of the pickle wants a value that is not there."),
        (b"g0\n.", "GET at byte 0 of the pickle gets what was never put."),
        (b"h\x00.", "BINGET at byte 0 of the pickle gets what was never put."),
        (b"Np0\np0\n.", "PUT at byte 4 of the pickle puts a second value in one place."),
        (P4 + b"(l(N\x90.", "ADDITEMS at byte 6 of the pickle wants a set that is not there."),
        (b"cm\nset\n(I1\ntR.", "REDUCE at byte 12 of the pickle gives m.set something else"),
        (b"cm\nset\n((I1\nttR.", "REDUCE at byte 14 of the pickle gives m.set something else"),
        (b"cm\nset\n((l(ltR.", "REDUCE at byte 13 of the pickle gives m.set something else"),
    ],
)
def test_what_no_pickler_writes_is_refused(data: bytes, told: str) -> None:
    assert refusal(data).startswith(told)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\x80\x02\x80\x02N.", "PROTO at byte 2 of the pickle is no beginning of protocol"),
        (b"N\x80\x02.", "PROTO at byte 1 of the pickle is no beginning of protocol"),
        (b"\x80\x00N.", "PROTO at byte 0 of the pickle is no beginning of protocol"),
        (b"\x80\x01N.", "PROTO at byte 0 of the pickle is no beginning of protocol"),
        (b"\x80\x06N.", "PROTO at byte 0 of the pickle is no beginning of protocol"),
        (b"\x80\xffN.", "PROTO at byte 0 of the pickle is no beginning of protocol"),
        (b"\x88.", "NEWTRUE at byte 0 of the pickle is newer than the pickle's protocol, 1."),
        (b"\x80\x02C\x00.", "SHORT_BINBYTES at byte 2 of the pickle is newer than the pickle's"),
        (b"\x80\x03\x8f.", "EMPTY_SET at byte 2 of the pickle is newer than the pickle's"),
    ],
)
def test_a_protocol_is_named_once_first_and_truly(data: bytes, told: str) -> None:
    assert refusal(data).startswith(told)


def frame(size: int) -> bytes:
    return b"\x95" + struct.pack("<Q", size)


def test_frames_are_what_they_say() -> None:
    assert read(P4 + frame(2) + b"N.") is None
    assert read(P4 + frame(2) + b"(N" + frame(2) + b"l.") == [None]
    assert read(P4 + b"(" + frame(1) + b"N" + b"l.") == [None]
    odd = "of the pickle does not fit into its frame"
    assert f"FRAME at byte 11 {odd}" in refusal(P4 + frame(11) + frame(2) + b"N.")
    assert f"BININT1 at byte 11 {odd}" in refusal(P4 + frame(1) + b"K\x01.")
    ends = f"The pickle ends before its last frame does. {INTACT}"
    assert refusal(P4 + frame(3) + b"N.") == ends
    assert refusal(P4 + frame(2**64 - 1) + b"N.") == ends
    assert refusal(P4 + b"N" + frame(2) + b".", whole=False) == ends


@pytest.mark.parametrize(
    "data", [b"V\\ud800\n.", b"X\x03\x00\x00\x00\xed\xa0\x80.", b"U\x01\xe9.", b"S'\\xe9'\n."]
)
def test_half_a_character_is_no_text(data: bytes) -> None:
    assert refusal(data) == (
        "The pickle holds text that is none: half a character, or bytes of Python 2."
        " Save it as bytes, or replace it, as with text.encode(errors='replace').decode()."
    )


# Several pickles


def test_a_file_of_several_pickles_is_read_one_by_one() -> None:
    data = pickle.dumps([1]) + pickle.dumps({"a": 2}, 0) + b"rest"
    first, end = run_at(data, 0, functions={})
    second, last = run_at(data, end, functions={})
    assert (first, second, data[last:]) == ([1], {"a": 2}, b"rest")


def test_the_bytes_of_one_pickle_count_and_not_those_behind_it() -> None:
    limits = PickleLimits(data_bytes=3)
    assert run_at(b"xxNNN" + b"(l.NNN", 5, functions={}, limits=limits) == ([], 8)
    assert run(b"N." + b"x" * 9, functions={}, limits=limits, whole=False) is None


def test_memo_and_protocol_of_one_pickle_are_not_those_of_the_next() -> None:
    data = P4 + b"\x8c\x01a\x94." + b"h\x00."
    _, end = run_at(data, 0, functions={})
    with pytest.raises(PickleRefused, match="never put"):
        run_at(data, end, functions={})


@pytest.mark.parametrize("data", ["N.", None, bytearray(b"N."), memoryview(b"N.")])
def test_a_pickle_is_bytes(data: Any) -> None:
    with pytest.raises(ConfigurationError) as refused:
        run(data, functions={})
    assert str(refused.value) == "A pickle is read from bytes. Give the content of the file."
