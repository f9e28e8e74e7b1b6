"""Which calls of a file load code, or keep what nothing seals: judged by what names stand for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Final

from safepoint.models.lint.answers import answers_in, threads_in
from safepoint.models.lint.names import (
    DATA,
    HERE,
    PARTIAL,
    PARTIALS,
    Names,
    Scope,
    parameters,
    scope_of,
)

VARIABLE: Final = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
VARIABLE_WHAT: Final = f"{VARIABLE} lets every load without a flag run what the file says."
ON: Final = frozenset({"1", "y", "yes", "true"})
"""The values of the variable that torch takes for a yes."""

Judged = tuple[str, str]  # an id, and what stands there, as a sentence

_TORCH: Final = {name: kind for kind, names in DATA["torch"].items() for name in names}
_EXACT: Final = {name: kind for kind, names in DATA["exact"].items() for name in names}
_OFF: Final = {name: (is_on, re.compile(f), do) for name, (is_on, f, do) in DATA["off"].items()}
_LOOSE: Final = {name: (kind, says) for name, (kind, says) in DATA["serializer"].items()}
_LIKE: Final = {kind: re.compile(like) for kind, like in DATA["like"].items()}


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


# --- what the arguments say ---------------------------------------------------------------------

_SAYS: Final = {kind: (name, says) for kind, (name, says) in DATA["says"].items()}


class _Arguments:
    """The arguments of a call, with those of a literal `**{...}` among them.

    Attributes:
        opaque: whether there may be more keywords than one can see.
        starred: whether there may be more arguments by place.
    """

    def __init__(self, places: list[ast.expr], keywords: list[ast.keyword]) -> None:
        stars = [i for i, each in enumerate(places) if isinstance(each, ast.Starred)]
        self._places = places[: stars[0]] if stars else places
        self.starred = bool(stars)
        self.opaque = False
        self._named: dict[str, ast.expr] = {}
        for each in keywords:
            self._named |= {each.arg: each.value} if each.arg else self._unpacked(each.value)

    def _unpacked(self, value: ast.expr) -> dict[str, ast.expr]:
        if not isinstance(value, ast.Dict):
            self.opaque = True
            return {}
        found: dict[str, ast.expr] = {}
        for key, each in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                found[key.value] = each
            elif key is None and isinstance(each, ast.Dict):
                found |= self._unpacked(each)
            else:  # the last one wins, and this may be any of those before it
                self.opaque = True
                found.clear()
        return found

    def get(self, name: str, place: int | None = None) -> ast.expr | None:
        """Return an argument, by keyword or by its place."""
        if name in self._named or place is None or place >= len(self._places):
            return self._named.get(name)
        return self._places[place]


def _judge(loader: str, shown: str, given: _Arguments, *, bound: bool) -> Judged | None:
    """Say what is wrong with a call. That of a `partial` was judged where it was made."""
    if loader == "numpy":
        allow = given.get("allow_pickle", 1 if shown.endswith("read_array") else 2)
        hidden = allow is None and (given.opaque or given.starred)
        if not hidden and (allow is None or _is(allow, False) or _is(allow, None)):
            return None
        return "SL10", f"{shown} may get allow_pickle=True, and then runs what the file says."
    if loader in _SAYS and loader not in ("torch", "open"):
        kind, says = _SAYS[loader]
        return None if bound else (kind, f"{shown} {says}.")
    if loader == "saver":
        return "SL12", f"{shown} stores checkpoints unsigned."
    if loader in _LIKE:
        return next((_LOOSE[name] for name in _LOOSE if _is(given.get(name), True)), None)
    name = "safe" if loader == "checkpoint" else "weights_only"
    flag, keys = given.get(name), given.get("keys")
    if flag is None and not given.opaque and (bound or loader == "checkpoint"):
        return None
    if _is(flag, True):
        return None  # with pickle_module beside it, torch raises
    if loader == "checkpoint" and keys and not _is(keys, None) and (not flag or _is(flag, False)):
        return None  # the seal is verified first
    if _is(flag, False):
        return "SL02", f"{shown} with {name}=False runs what the file says."
    module = given.get("pickle_module", 2 if loader == "torch" else None)
    if module and not _is(module, None) and loader != "checkpoint":
        return "SL03", f"{shown} with pickle_module is a load without restriction."
    return "SL01", f"{shown} without a literal {name}=True may run what the file says."


def _handed_on(loader: str, shown: str) -> Judged | None:
    kind, says = _SAYS.get(loader, ("", ""))
    return (kind, f"{shown} is handed on, and {says}.") if kind else None


def _is(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


# --- the walk -----------------------------------------------------------------------------------

_PLAIN: Final = (ast.Name, ast.Attribute)
_LOOKS: Final = frozenset(DATA["functions"]["looks"])
_MOCKS: Final = frozenset({"mock", "unittest"})
_SETTERS: Final = frozenset({"__setitem__", "putenv", "setdefault", "setenv", "setitem"})
# What mock calls. A list of values is returned, one after another, and not called.
_CALLED: Final = frozenset({"new", "side_effect", "new_callable", "wraps"})
_SHOWN: Final = (HERE, "mock.", "unittest.", "builtins.")
_NEVER: Final = re.compile(r"(?!)")
_PATCHES: Final = re.compile(r".*\.(setattr|patch|patch\.(object|multiple))")


def found_in(tree: ast.Module) -> Iterator[tuple[ast.AST, str, str]]:
    """Yield each such call, and what code takes from anybody: its node, an id and a sentence.

    Raises:
        Tangled: the file has too many names for the same thing.
    """
    walk = _Finder(tree)
    for (node, kind), what in walk.found.items():
        yield node, kind, what
    for key, (alias, (kind, what)) in walk.aliases.items():
        if key not in walk.used:
            yield alias, kind, what


class _Finder:
    """Looks at each node in the scope that it belongs to. Annotations are left out.

    Attributes:
        found: what is wrong, by node and id.
        aliases: names of a module, a class or a parameter that stand for a loader.
        used: names that something in the file uses.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.found: dict[tuple[ast.AST, str], str] = {}
        self.aliases: dict[tuple[Scope, str], tuple[ast.expr, Judged]] = {}
        self.used: set[tuple[Scope | None, str]] = set()
        self._names = Names()
        self._scope = scope_of(tree)
        self._falling_back = False  # whether a load with restriction may have failed before
        self._waiting: list[tuple[ast.AST, Scope, bool]] = []
        # Where a store has tenants, a thread belongs to whoever the request is from.
        keywords = (each.arg for each in ast.walk(tree) if isinstance(each, ast.keyword))
        self._has_tenants = "tenant" in keywords
        self._later(tree.body)
        while self._waiting:
            node, self._scope, self._falling_back = self._waiting.pop()
            self._look(node)

    def _later(
        self, nodes: Iterable[ast.AST], scope: Scope | None = None, falling_back: bool = False
    ) -> None:
        falling = falling_back or self._falling_back
        self._waiting += [(node, scope or self._scope, falling) for node in reversed([*nodes])]

    def _look(self, node: ast.AST) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                self._function(node)
            case ast.ClassDef():
                self._class(node)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self._later(ast.iter_child_nodes(node), scope_of(node, self._scope))
            case ast.Try() | ast.TryStar():
                tried = [each for line in node.body for each in ast.walk(line)]
                calls = [each.func for each in tried if isinstance(each, ast.Call)]
                restricted = {"torch", "open", "checkpoint"}
                failed = any(restricted & {*self._known(each).values()} for each in calls)
                self._later([*node.orelse, *node.finalbody])
                self._later(node.handlers, falling_back=failed)
                self._later(node.body)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Subscript):
                        self._set_variable(node, target.slice, value)
                self._assign(targets, value)
            case ast.AnnAssign(target=target, value=assigned):
                if assigned is not None:
                    self._assign([target], assigned)
            case ast.Expr(value=value):
                self._later([] if isinstance(value, _PLAIN) else [value])  # it does nothing alone
            case ast.Compare(left=left, comparators=others):
                self._later(each for each in [left, *others] if not isinstance(each, _PLAIN))
            case ast.Call():
                self._call(node)
            case ast.Name():
                self._value(node)
            case ast.Attribute():
                if not self._value(node):
                    self._rest(node)
            case ast.Subscript():
                if not self._value(node):
                    self._later(ast.iter_child_nodes(node))
            case _:
                if isinstance(node, ast.Dict):
                    for key, value in zip(node.keys, node.values, strict=True):
                        self._set_variable(node, key, value)
                self._later(ast.iter_child_nodes(node))

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        self._later(getattr(node, "decorator_list", ()))
        inner = scope_of(node, self._scope)
        if not isinstance(node, ast.Lambda):
            asks = partial(self._asks, inner)
            taken = () if self._has_tenants else threads_in(node)
            self.found |= {(each, kind): s for each, kind, s in (*answers_in(node, asks), *taken)}
        for name, default in parameters(node):
            if default is not None and self._is_alias(default):
                self._alias(default, inner, name)
            elif default is not None:
                self._later([default])
        self._later([node.body] if isinstance(node, ast.Lambda) else node.body, inner)

    def _asks(self, scope: Scope, node: ast.AST) -> bool:
        """Tell whether a node asks a person, by LangGraph's interrupt."""
        known = self._names.of(node.func, scope) if isinstance(node, ast.Call) else ()
        return any(loader_of(name) == "question" for name in known)

    def _class(self, node: ast.ClassDef) -> None:
        self._later(node.decorator_list)
        for base in [*node.bases, *(keyword.value for keyword in node.keywords)]:
            known = self._known(base)
            if "unpickler" in known.values():
                self._add(node, ("SL09", f"{node.name} is a {min(known)} of its own."))
            else:
                self._later([base])
        self._later(node.body, scope_of(node, self._scope))

    def _assign(self, targets: list[ast.expr], value: ast.expr) -> None:
        alias = self._is_alias(value)
        for target in targets:
            if isinstance(target, ast.Attribute | ast.Subscript):
                for name in sorted(self._names.of(target, self._scope)):
                    self._replaced(target, name)
            if not isinstance(target, ast.Name):
                self._later([target])
            elif alias:
                owner = self._scope.owner(target.id)
                # In a function a name is followed to its end. One of a module or a class that
                # nobody uses here is there for others.
                if owner is not None and owner.kind != "function":
                    self._alias(value, owner, target.id)
        if alias and all(isinstance(target, ast.Name) for target in targets):
            self._mark(value)
        else:
            self._later([value])

    def _call(self, node: ast.Call) -> None:
        names = self._names.of(node.func, self._scope)
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        for keyword in node.keywords:
            self._set_variable(node, ast.Constant(keyword.arg), keyword.value)
            is_on, function, does = _OFF.get(keyword.arg or "", (None, _NEVER, ""))
            if _is(keyword.value, is_on) and function.fullmatch(called):
                said = f"{keyword.arg}={is_on}"
                self._add(node, ("SL02", f"{called or 'a call'} with {said} {does}."))
        if called in _SETTERS:
            for key, value in pairwise(node.args):
                self._set_variable(node, key, value)
        if not self._is_copy(node):
            self._called(node, node.func, node.args)
        if all(name.startswith(PARTIAL) for name in self._known(node.func)):
            self._rest(node.func)
        self._value(node)
        rest = [*node.args, *(keyword.value for keyword in node.keywords)]
        if names & PARTIALS and node.args and self._known(node.args[0]):
            self._called(node, rest.pop(0), node.args[1:])
        put = self._patch(node, names)
        modules = {name.partition(".")[0] for name in names}
        if names & _LOOKS or modules & {*_MOCKS, "inspect"}:
            rest = [each for each in rest if each in put or not isinstance(each, _PLAIN)]
        self._later(rest)

    def _called(self, node: ast.Call, function: ast.expr, places: list[ast.expr]) -> None:
        self._mark(function)
        given = _Arguments(places, node.keywords)
        for name, loader in sorted(self._known(function).items()):
            shown, bound = name.removeprefix(PARTIAL), name.startswith(PARTIAL)
            self._add(node, _judge(loader, shown, given, bound=bound))

    def _is_copy(self, node: ast.Call) -> bool:
        """Tell whether a call is `loads(dumps(x))`: no byte of it comes from elsewhere."""
        if not (node.args and isinstance(node.args[0], ast.Call)):
            return False
        known = self._known(node.func)
        dumped = self._names.of(node.args[0].func, self._scope)
        pairs = {f"{name.removesuffix('dumps')}loads" for name in dumped if name.endswith("dumps")}
        return bool(known) and known.keys() <= pairs

    def _value(self, node: ast.expr) -> bool:
        """Judge a loader that is handed on, and tell whether it is one."""
        if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return False
        self._mark(node)
        known = self._known(node)
        for name, loader in sorted(known.items()):
            if not name.startswith(PARTIAL):
                self._add(node, _handed_on(loader, name))
        return bool(known)

    def _rest(self, node: ast.expr) -> None:
        """Look at what an attribute is read from, unless that is a loader itself."""
        if isinstance(node, ast.Attribute):
            if not (isinstance(node.value, _PLAIN) and self._known(node.value)):
                self._later([node.value])
        elif not isinstance(node, ast.Name):
            self._later([node])

    def _alias(self, value: ast.expr, scope: Scope, name: str) -> None:
        for each, loader in sorted(self._known(value).items()):
            judged = _handed_on(loader, each)
            if judged is not None:
                self.aliases[scope, name] = (value, judged)

    def _is_alias(self, value: ast.expr) -> bool:
        if not isinstance(value, ast.Name | ast.Attribute | ast.Subscript | ast.Call):
            return False
        known = self._known(value)
        return bool(known) and not any(name.startswith(PARTIAL) for name in known)

    def _replaced(self, node: ast.AST, name: str) -> None:
        if loader_of(name) == "torch":
            self._add(node, ("SL11", f"{name} is another function for the whole process."))

    def _known(self, node: ast.expr) -> dict[str, str]:
        names = self._names.of(node, self._scope)
        found = ((name, loader_of(name.removeprefix(PARTIAL))) for name in names)
        return {name: loader for name, loader in found if loader is not None}

    def _mark(self, node: ast.expr) -> None:
        if isinstance(node, ast.Name):
            self.used.add((self._scope.owner(node.id), node.id))

    def _set_variable(self, node: ast.AST, key: ast.expr | None, value: ast.expr) -> None:
        if self._names.text(key, self._scope) == VARIABLE:
            text = self._names.text(value, self._scope)
            if text is None or text.lower() in ON:
                self._add(node, ("SL06", VARIABLE_WHAT))

    def _add(self, node: ast.AST, judged: Judged | None) -> None:
        if judged is None:
            return
        kind, what = judged
        if self._falling_back and kind in ("SL01", "SL02", "SL03"):
            loader, kind = what.partition(" ")[0], "SL04"
            what = f"{loader} without restriction, where a load before it has failed."
        self.found.setdefault((node, kind), what)

    # A test that gives torch.load a stand-in is as it should be, so a patch is told only if what
    # it puts there is another file's. What a stand-in of this file loads is told where it does.

    def _patch(self, call: ast.Call, functions: frozenset[str]) -> list[ast.expr]:
        """Judge `setattr`, `mock.patch` and their like, and return what they put in a place."""
        if not any(map(_PATCHES.fullmatch, {_dotted(call.func), *functions})):
            return []
        named = {each.arg: each.value for each in call.keywords if each.arg is not None}
        texts = [*call.args[1:2], *(named[key] for key in ("attribute", "name") if key in named)]
        ends = {self._names.text(each, self._scope) for each in texts} | named.keys()
        target = call.args[0] if call.args else named.get("target")
        text = self._names.text(target, self._scope)
        bases = self._names.of(target, self._scope) if text is None else {text}
        names = {*bases, *(f"{base}.{end}" for base in bases for end in ends)}
        # In monkeypatch.setattr("torch.load", name=f) the name is the value.
        named_value = text is not None and _dotted(call.func).endswith(".setattr")
        puts = {*_CALLED, "value", "load", *(["name"] if named_value else [])}
        called = [*call.args[1:], *(value for key, value in named.items() if key in puts)]
        given = [name for each in called for name in self._names.of(each, self._scope)]
        foreign = [each for each in given if not each.startswith(_SHOWN)]
        for name in sorted(name for name in names if loader_of(name) == "torch"):
            if {*foreign} - {name} or "builtins.setattr" in functions:  # one that wraps it is a spy
                what = f"{name} is patched with a function of another file."
                self._add(call, ("SL11", what))
        return [*call.args[1:], *(named[key] for key in named if key in _CALLED - {"wraps"})]


def _dotted(function: ast.expr) -> str:
    """Return how a function is called here: mocker.patch.object."""
    names = []
    while isinstance(function, ast.Attribute):
        names.append(function.attr)
        function = function.value
    return ".".join(["", *reversed(names)])
