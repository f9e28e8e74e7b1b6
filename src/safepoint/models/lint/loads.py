"""Which calls of a file load code, or keep what nothing seals: judged by what names stand for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from safepoint.models.lint.answers import Found, answers_in, threads_in
from safepoint.models.lint.names import DATA, Names, keywords, parameters

_VARIABLE: Final = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
_ON: Final = frozenset({"1", "y", "yes", "true"})  # its values that torch takes for a yes
_Judged = tuple[str, str]  # an id, and what stands there, as a sentence

_TORCH: Final = {name: kind for kind, names in DATA["torch"].items() for name in names}
_EXACT: Final = {name: kind for kind, names in DATA["exact"].items() for name in names}
_OFF: Final[dict[object, Any]] = DATA["off"]
_LOOSE: Final = {name: (kind, says) for name, (kind, says) in DATA["serializer"].items()}
_LIKE: Final = {kind: re.compile(like) for kind, like in DATA["like"].items()}
_SAYS: Final = {kind: (name, says) for kind, (name, says) in DATA["says"].items()}
_LOOKS: Final = frozenset(DATA["functions"]["looks"])
_MOCKS: Final = frozenset({"mock", "unittest", "inspect"})
_PARTIALS: Final = {"functools.partial", "functools.partialmethod"}
_SETTERS: Final = frozenset({"__setitem__", "putenv", "setdefault", "setenv", "setitem"})
_VALUES: Final = ast.Name | ast.Attribute | ast.Subscript | ast.Call
_NO: Final = ast.Constant(None)


def loader_of(name: str) -> str | None:
    """Say what a function does, by its full name: a key of the tables, or None if it loads nothing.

    Our own is a "checkpoint", and a class that unpickles an "unpickler".
    """
    first, *_ = parts = name.split(".")
    if first == "safepoint" and parts[-1] == "load_checkpoint":
        return "checkpoint"
    found = _EXACT.get(name)
    if found is None and "torch" in parts and first != "safetensors":  # whose load is no pickle
        found = _TORCH.get(".".join(parts[parts.index("torch") + 1 :]))
    if found is None and parts[-1] in DATA["anywhere"].get(".".join(parts[-2:-1]), ()):
        found = "unpickler" if parts[-1].endswith("Unpickler") else "pickle"
    if found is None:
        found = next((kind for kind, like in _LIKE.items() if like.fullmatch(name)), None)
    return found


def _given(call: ast.Call, name: str, place: int | None = None) -> ast.expr | None:
    """Return an argument of a call, by keyword or by its place."""
    by_place = call.args[place : place + 1] if place is not None else []
    starred = any(isinstance(each, ast.Starred) for each in call.args[: (place or 0) + 1])
    return keywords(call).get(name, None if starred or not by_place else by_place[0])


def _judge(loader: str, shown: str, call: ast.Call, skip: int = 0) -> _Judged | None:
    """Say what is wrong with a call. `skip` is 1 if its first argument is the function."""
    opaque = None in keywords(call)
    if loader == "numpy":
        allow = _given(call, "allow_pickle", skip + (1 if shown.endswith("read_array") else 2))
        starred = any(isinstance(each, ast.Starred) for each in call.args)
        hidden = allow is None and (opaque or starred)
        if not hidden and (allow is None or _is(allow, False) or _is(allow, None)):
            return None
        return "SL10", f"{shown} may get allow_pickle=True, and then runs what the file says."
    if loader in _SAYS and loader not in ("torch", "open"):
        kind, says = _SAYS[loader]
        return kind, f"{shown} {says}."
    if loader == "saver":
        return "SL12", f"{shown} stores checkpoints unsigned."
    if loader == "decode" and not opaque and _is(_given(call, "allowed_types") or _NO, None):
        return "SL08", f"{shown} without allowed_types unpickles anything."
    if loader in _LIKE:
        return next((_LOOSE[name] for name in _LOOSE if _is(_given(call, name), True)), None)
    name = "safe" if loader == "checkpoint" else "weights_only"
    flag, keys = _given(call, name), _given(call, "keys")
    if flag is None and not opaque and loader == "checkpoint":
        return None
    if _is(flag, True):
        return None  # with pickle_module beside it, torch raises
    if loader == "checkpoint" and keys and not _is(keys, None) and (not flag or _is(flag, False)):
        return None  # the seal is verified first
    if _is(flag, False):
        return "SL02", f"{shown} with {name}=False runs what the file says."
    module = _given(call, "pickle_module", skip + 2 if loader == "torch" else None)
    if module and not _is(module, None) and loader != "checkpoint":
        return "SL03", f"{shown} with pickle_module is a load without restriction."
    return "SL01", f"{shown} without a literal {name}=True may run what the file says."


def _is(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def found_in(tree: ast.Module) -> Iterator[Found]:
    """Yield each such call, and what code takes from anybody: its node, an id and a sentence.

    Raises:
        Tangled: the file has too many names for the same thing.
    """
    finder = _Finder(tree)
    found: dict[tuple[ast.AST, str], str] = {}
    for node in finder.names.nodes:
        for each, kind, what in finder.look(node):
            found.setdefault((each, kind), what)
    for (node, kind), what in found.items():
        yield node, kind, what


class _Finder:
    """Looks at each node, with what is around it."""

    def __init__(self, tree: ast.Module) -> None:
        self.names = Names(tree)
        names = (each for each in self.names.nodes if isinstance(each, ast.Name))
        self._used = {each.id for each in names if isinstance(each.ctx, ast.Load)}
        self._tried: dict[ast.Try | ast.TryStar, bool] = {}  # whether one loads with restriction
        # Where a store has tenants, a thread belongs to whoever the request is from.
        its = (each.arg for each in self.names.nodes if isinstance(each, ast.keyword))
        self._has_tenants = "tenant" in its

    def look(self, node: ast.AST) -> Iterator[Found]:
        """Yield what is wrong with a node."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from answers_in(node, self._asks)
                yield from () if self._has_tenants else threads_in(node)
            case ast.ClassDef():
                known = {name for base in node.bases for name in self._known(base, "unpickler")}
                if known:
                    yield node, "SL09", f"{node.name} subclasses {min(known)}."
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Subscript):
                        yield from self._variable(node, target.slice, value)
            case ast.Dict():
                for key, value in zip(node.keys, node.values, strict=True):
                    yield from self._variable(node, key, value)
            case ast.Call():
                yield from self._call(node)
        is_set = isinstance(node, ast.Call) and "builtins.setattr" in self.names.of(node.func)
        is_set = is_set or isinstance(getattr(node, "ctx", None), ast.Store)
        if isinstance(node, _VALUES) and is_set and not isinstance(node, ast.Name):
            for name in sorted(self._known(node, "torch")):
                yield node, "SL11", f"{name} is replaced for the whole process."
        if isinstance(node, _VALUES) and self._is_handed_on(node):
            for name, loader in sorted(self._known(node).items()):
                if loader in _SAYS:
                    kind, says = _SAYS[loader]
                    yield node, kind, f"{name} is handed on, and {says}."

    def _known(self, node: ast.expr, *kinds: str) -> dict[str, str]:
        """Return the loaders that an expression may stand for: all, or those of these kinds."""
        found = {name: loader_of(name) for name in self.names.of(node)}
        return {name: kind for name, kind in found.items() if kind and (kind in kinds or not kinds)}

    def _asks(self, node: ast.AST) -> bool:
        """Tell whether a node asks a person, by LangGraph's interrupt."""
        return isinstance(node, ast.Call) and bool(self._known(node.func, "question"))

    def _is_handed_on(self, node: ast.expr) -> bool:
        """Tell whether a value goes where nobody sees how it is called."""
        if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            return False
        part: ast.AST = node
        around = self.names.around[node]
        while isinstance(around, ast.IfExp | ast.BoolOp | ast.NamedExpr):
            around, part = self.names.around[around], around
        names: list[str] = []
        match around:
            case ast.Attribute() | ast.Expr() | ast.Compare() | ast.ClassDef():
                return False
            case ast.arguments():
                names = [name for name, default in parameters(around) if default is part]
            case ast.Assign(targets=[*targets]) | ast.AnnAssign(target=ast.Name() as targets):
                each = targets if isinstance(targets, list) else [targets]
                names = [target.id for target in each if isinstance(target, ast.Name)]
            case ast.keyword():
                around = self.names.around[around]
        if names:  # it is followed to where it is used, if this file does
            return self._used.isdisjoint(names)
        if not isinstance(around, ast.Call):
            return True
        functions = self.names.of(around.func)
        looks = functions & (_LOOKS | _PARTIALS) or _MOCKS & {e.split(".")[0] for e in functions}
        return part is not around.func and not looks

    def _call(self, node: ast.Call) -> Iterator[Found]:
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        for keyword in node.keywords:
            yield from self._variable(node, ast.Constant(keyword.arg), keyword.value)
        for name, value in keywords(node).items():
            is_on, functions, does = _OFF.get(name, (object, [], ""))
            if _is(value, is_on) and called in (functions or [called]):
                said = f"{name}={is_on}"
                yield node, "SL02", f"{called or 'a call'} with {said} {does}."
        if called in _SETTERS:
            for key, value in pairwise(node.args):
                yield from self._variable(node, key, value)
        is_partial = bool(self.names.of(node.func) & _PARTIALS and node.args)
        function = node.args[0] if is_partial else node.func
        for name, kind in sorted(self._known(function).items()):
            judged = None if self._is_copy(node, name) else _judge(kind, name, node, is_partial)
            if judged and judged[0] in ("SL01", "SL02", "SL03") and self._is_fallback(node):
                judged = "SL04", f"{name} without restriction, where a load before it has failed."
            if judged:
                yield node, *judged

    def _is_copy(self, node: ast.Call, name: str) -> bool:
        """Tell whether a call is `loads(dumps(x))`: no byte of it comes from elsewhere."""
        inner = node.args[0] if node.args else None
        dumps = f"{name.removesuffix('loads')}dumps"
        return isinstance(inner, ast.Call) and self.names.of(inner.func) == {dumps}

    def _is_fallback(self, node: ast.AST) -> bool:
        """Tell whether a load with restriction may have failed before."""
        around = self.names.around
        while node is not around[node]:
            outer = around[node]
            if isinstance(node, ast.ExceptHandler) and isinstance(outer, ast.Try | ast.TryStar):
                if outer not in self._tried:
                    tried = [each for line in outer.body for each in ast.walk(line)]
                    calls = [each.func for each in tried if isinstance(each, ast.Call)]
                    known = (self._known(each, "torch", "open", "checkpoint") for each in calls)
                    self._tried[outer] = any(known)
                if self._tried[outer]:
                    return True
            node = outer
        return False

    def _variable(self, node: ast.AST, key: ast.expr | None, value: ast.expr) -> Iterator[Found]:
        if self.names.text(key) == _VARIABLE:
            text = self.names.text(value)
            if text is None or text.lower() in _ON:
                says = "lets every load without a flag run what the file says"
                yield node, "SL06", f"{_VARIABLE} {says}."
