"""Which calls of a file load code, or keep what nothing seals: judged by what names stand for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from safepoint.models.lint.answers import Found, answers_in, threads_in
from safepoint.models.lint.names import DATA, Names

_VARIABLE: Final = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
_ON: Final = frozenset({"1", "y", "yes", "true"})  # its values that torch takes for a yes
_SETTERS: Final = frozenset({"__setitem__", "putenv", "setdefault", "setenv", "setitem"})
_OFF: Final[dict[str | None, Any]] = DATA["off"]
_SAYS: Final[dict[str, tuple[str, str]]] = DATA["says"]
_VALUES: Final = ast.Name | ast.Attribute | ast.Subscript | ast.Call
_NO: Final = ast.Constant(None)


def _judge(kind: str, name: str, call: ast.Call, args: list[ast.expr]) -> tuple[str, str] | None:
    """Say what is wrong with a call: an id, and what stands there, as a sentence."""
    named = {each.arg: each.value for each in call.keywords}
    more = named.get(None, _NO)
    match kind:
        case "numpy":
            rest = [*args[2:], *(each for each in args if isinstance(each, ast.Starred)), more]
            flag = named.get("allow_pickle", rest[0])
            if not _is(flag, False) and not _is(flag, None):
                does = "may get allow_pickle=True, and then runs what the file says"
                return "SL10", f"{name} {does}."
        case "saver":
            return "SL12", f"{name} stores checkpoints unsigned."
        case "decode" if _is(named.get("allowed_types", more), None):
            return "SL08", f"{name} without allowed_types unpickles anything."
        case "checkpoint" if named.keys().isdisjoint({"safe", None}):
            return None  # its default is restricted
        case "checkpoint" if not _is(named.get("keys", _NO), None):
            return None  # the seal is verified first
        case "torch" | "checkpoint":
            word = "weights_only" if kind == "torch" else "safe"
            flag = named.get(word, more)
            if _is(flag, True):
                return None  # with pickle_module beside it, torch raises
            if _is(flag, False):
                return "SL02", f"{name} with {word}=False runs what the file says."
            if not _is(named.get("pickle_module", _NO), None):
                return "SL03", f"{name} with pickle_module is a load without restriction."
            return "SL01", f"{name} without a literal {word}=True may run what the file says."
        case _ if kind in _SAYS:
            return _SAYS[kind][0], f"{name} {_SAYS[kind][1]}."
    return None


def _is(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


class Finder:
    """Looks at each node of a file, with what is around it."""

    def __init__(self, tree: ast.Module) -> None:
        self._names = names = Names(tree)
        used = {each.id for each in names.nodes if isinstance(each, ast.Name) and _is_read(each)}
        # What has a name in this file is followed to where it is used.
        self._followed = {value for name in used for value in names.bindings.get(name, ())}
        self._fallbacks: set[ast.AST] = set()  # what runs where a load with restriction failed

    def find(self) -> Iterator[Found]:
        """Yield each load that can run code, and what code takes from anybody.

        Raises:
            Tangled: the file has too many names for the same thing.
        """
        known = self._names.known
        # Where a store has tenants, a thread belongs to whoever the request is from.
        words = {each.arg for each in self._names.nodes if isinstance(each, ast.keyword)}
        for node in self._names.nodes:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    yield from answers_in(node, self._names)
                    yield from () if "tenant" in words else threads_in(node)
                case ast.ClassDef(bases=bases):
                    for base in bases:
                        for name in known(base, "unpickler"):
                            yield base, "SL09", f"{node.name} subclasses {name}."
                case ast.Try() | ast.TryStar():
                    tried = [each for line in node.body for each in ast.walk(line)]
                    calls = [each.func for each in tried if isinstance(each, ast.Call)]
                    if any(known(each, "torch", "checkpoint") for each in calls):
                        self._fallbacks |= {e for each in node.handlers for e in ast.walk(each)}
                case ast.Attribute(ctx=ast.Store()):
                    for name in known(node, "torch"):
                        yield node, "SL11", f"{name} is replaced for the whole process."
                case ast.Call():
                    yield from self._judge_call(node)
            for key, value in _pairs(node):
                if self._names.text(key) == _VARIABLE:
                    text = self._names.text(value)
                    if text is None or text.lower() in _ON:
                        says = "lets every load without a flag run what the file says"
                        yield value, "SL06", f"{_VARIABLE} {says}."
            if isinstance(node, _VALUES):
                for name, kind in known(node, *_SAYS).items():
                    if self._is_handed_on(node):
                        yield node, _SAYS[kind][0], f"{name} is handed on, and {_SAYS[kind][1]}."

    def _judge_call(self, call: ast.Call) -> Iterator[Found]:
        called = _called(call)
        for each in call.keywords:
            kind, is_on, functions, does = _OFF.get(each.arg, ("", object, [], ""))
            if _is(each.value, is_on) and called in (functions or [called]):
                yield call, kind, f"{called} with {each.arg}={is_on} {does}."
        function, args = call.func, call.args
        if args and self._names.known(function, "partial"):
            function, *args = args
        for name, kind in self._names.known(function).items():
            judged = None if self._is_copy(name, args) else _judge(kind, name, call, args)
            if judged and judged[0] in ("SL01", "SL02", "SL03") and call in self._fallbacks:
                judged = "SL04", f"{name} without restriction, where a load before it has failed."
            if judged:
                yield call, *judged

    def _is_copy(self, name: str, args: list[ast.expr]) -> bool:
        """Tell whether a call is `loads(dumps(x))`: no byte of it comes from elsewhere."""
        match args:
            case [ast.Call(func=inner), *_]:
                return self._names.of(inner) == {f"{name.removesuffix('loads')}dumps"}
        return False

    def _is_handed_on(self, node: ast.expr) -> bool:
        """Tell whether a value goes where nobody sees how it is called."""
        part: ast.AST = node
        around = self._names.around[part]
        while isinstance(around, ast.IfExp | ast.BoolOp | ast.NamedExpr | ast.keyword):
            part, around = around, self._names.around[around]
        if isinstance(around, ast.Call):
            asks = self._names.known(around.func, "looks", "partial", "attribute")
            return part is not around.func and not asks
        unused = isinstance(around, ast.Attribute | ast.Expr | ast.Compare | ast.ClassDef)
        return _is_read(node) and part not in self._followed and not unused


def _is_read(node: ast.expr) -> bool:
    return isinstance(getattr(node, "ctx", ast.Load()), ast.Load)


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", "a call"))


def _pairs(node: ast.AST) -> list[tuple[ast.expr | None, ast.expr]]:
    """Return what a node sets, if it does: keys, each with its value."""
    match node:
        case ast.Assign(targets=[ast.Subscript(slice=key), *_], value=value):
            return [(key, value)]
        case ast.Dict(keys=keys, values=values):
            return [*zip(keys, values, strict=True)]
        case ast.Call(args=args, keywords=keywords):
            by_place = pairwise(args) if _called(node) in _SETTERS else ()
            return [*by_place, *((ast.Constant(each.arg), each.value) for each in keywords)]
    return []
