"""Names: the full names that an expression may stand for, such as `torch.load` for `th.load`."""

from __future__ import annotations

import ast
from typing import Final

from safepoint.lint.scopes import Scope

PARTIAL: Final = "partial of "
"""Stands before the name of a function that `functools.partial` has given arguments."""
MOST: Final = 64
"""One expression stands for so many names at most, and so many aliases lie in between."""
STEPS: Final = 1_000_000
"""So many expressions are looked up in one file."""

# Where a variable, a parameter or an attribute with one of these names comes from is not always to
# be seen: a fixture, a lazy import, a function that imports. It is taken for the module then.
_BY_NAME: Final = {
    **{name: name for name in ("torch", "pickle", "_pickle", "cPickle", "dill", "cloudpickle")},
    **{name: name for name in ("joblib", "jsonpickle", "numpy", "sys")},
    "np": "numpy",
}
_IMPORTERS: Final = {
    "importlib.import_module",
    "importlib.__import__",
    "builtins.__import__",
    "pytest.importorskip",
}
# Each looks up a name in a dictionary, and some take what to return if it is not there.
_LOOKUPS: Final = ("get", "__getitem__", "pop", "setdefault")
PARTIALS: Final = {"functools.partial", "functools.partialmethod"}


class Tangled(Exception):
    """The aliases of a file are too many to follow."""


class Names:
    """Looks up expressions, and remembers what it found.

    A name that is bound to itself, over other names, is left out where it comes up again. What was
    found on the way there is then not the whole, and is not remembered.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Scope, str | ast.expr], frozenset[str]] = {}
        self._active: set[tuple[Scope, str]] = set()
        self._cut: set[tuple[Scope, str]] = set()
        self._steps = 0

    def of(self, node: ast.expr | None, scope: Scope) -> frozenset[str]:
        """Return the full names that an expression may stand for, as far as the file tells.

        Raises:
            Tangled: there are too many.
        """
        if node is None:
            return frozenset()
        if (scope, node) not in self._known:
            found = self._of(node, scope)
            if self._cut:
                return found
            self._known[scope, node] = found
        return self._known[scope, node]

    def _of(self, node: ast.expr, scope: Scope) -> frozenset[str]:
        self._steps += 1
        found: set[str] = set()
        match node:
            case ast.Name(id=name):
                found.update(self._named(name, scope))
            case ast.Attribute(value=value, attr=attr):
                bases = self.of(value, scope)
                found.update(f"{each}.{attr}" for each in bases)
                if not bases and attr in _BY_NAME:
                    found.add(_BY_NAME[attr])
            case ast.NamedExpr(value=value):
                found.update(self.of(value, scope))
            case ast.IfExp(body=body, orelse=other):
                found.update(self.of(body, scope), self.of(other, scope))
            case ast.BoolOp(values=values):
                found.update(*(self.of(value, scope) for value in values))
            case ast.Subscript(value=value, slice=key):
                found.update(self._item(value, self.text(key, scope), scope))
            case ast.Call():
                found.update(self._made(node, scope))
        if any(each.endswith(".__call__") for each in found):
            found = {each.removesuffix(".__call__") for each in found}
        if len(found) > MOST or self._steps > STEPS:
            raise Tangled
        return frozenset(found)

    def text(self, node: ast.expr | None, scope: Scope, depth: int = 0) -> str | None:
        """Return the text that an expression is, if it is a literal or a name for one."""
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.BinOp(left=left, op=ast.Add(), right=right) if depth < MOST:
                first = self.text(left, scope, depth + 1)
                second = self.text(right, scope, depth + 1)
                return None if first is None or second is None else first + second
            case ast.Name(id=name):
                owner = scope.owner(name)
                match owner.bindings.get(name) if owner else None:
                    case [(ast.Constant(value=str(text)), _)]:
                        return text
        return None

    def _named(self, name: str, scope: Scope) -> frozenset[str]:
        owner = scope.owner(name)
        if owner is None:
            return frozenset(scope.unbound(name) or _by_name(name))
        key = (owner, name)
        if key in self._known:
            return self._known[key]
        if key in self._active:
            self._cut.add(key)
            return frozenset()
        if len(self._active) > MOST:
            raise Tangled
        self._active.add(key)
        found: set[str] = set()
        for bound in owner.bindings.get(name, ()):
            if isinstance(bound, str):
                found.add(bound)
            else:
                known = self.of(*bound) if bound is not None else frozenset()
                found.update(known or _by_name(name))
        self._active.remove(key)
        self._cut.discard(key)
        if not self._cut:
            self._known[key] = frozenset(found)
        return frozenset(found)

    def _item(self, value: ast.expr, key: str | None, scope: Scope) -> set[str]:
        if key is None:
            return set()
        found = set()
        for name in self.of(value, scope):
            if f".{name}".endswith(".sys.modules"):
                found.add(key)
            elif name.endswith(".__dict__"):
                found.add(f"{name.removesuffix('.__dict__')}.{key}")
        return found

    def _made(self, call: ast.Call, scope: Scope) -> set[str]:
        """Return what a call stands for, if it is one of those that look up a name."""
        functions = self.of(call.func, scope)
        first = call.args[0] if call.args else None
        if functions & _IMPORTERS:
            return self._imported(call, functions, scope)
        if "builtins.getattr" in functions and len(call.args) > 1:
            attr = self.text(call.args[1], scope)
            found = {f"{each}.{attr}" for each in self.of(first, scope) if attr}
            return found.union(*(self.of(each, scope) for each in call.args[2:]))
        if isinstance(call.func, ast.Attribute) and call.func.attr in _LOOKUPS:
            items = self._item(call.func.value, self.text(first, scope), scope)
            return items.union(*(self.of(each, scope) for each in call.args[1:]))
        if "builtins.vars" in functions:
            return {f"{each}.__dict__" for each in self.of(first, scope)}
        if functions & PARTIALS:
            whole = self.of(first, scope)
            return {each if each.startswith(PARTIAL) else PARTIAL + each for each in whole}
        return set()

    def _imported(self, call: ast.Call, functions: frozenset[str], scope: Scope) -> set[str]:
        named = {each.arg: each.value for each in call.keywords}
        by_keyword = named.get("name", named.get("modname"))
        name = self.text(call.args[0] if call.args else by_keyword, scope)
        if name is None:
            return set()
        if name.startswith("."):
            package = call.args[1] if len(call.args) > 1 else named.get("package")
            return {f"{self.text(package, scope) or ''}.{name.lstrip('.')}"}
        if any(each.endswith("__import__") for each in functions):
            return {name, name.partition(".")[0]}  # the first with fromlist, the second without
        return {name}


def _by_name(name: str) -> set[str]:
    return {_BY_NAME[name]} if name in _BY_NAME else set()
