"""What a name in a file may stand for, such as `torch.load` for `th.load`.

A name may have several bindings (`try: import cPickle as pickle`), and counts as each of them.
The order of statements does not matter here.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from safepoint.rules import package_toml

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
DATA: Final = package_toml("models/lint/lint.toml")
"""What is looked for, and the functions that load."""
HERE: Final = "this file's "
"""Stands before the name of a function or a class that the file defines."""
PARTIAL: Final = "partial of "
"""Stands before the name of a function that `functools.partial` has given arguments."""
PARTIALS: Final = {"functools.partial", "functools.partialmethod"}

_MOST: Final = 64  # names for one expression, and aliases in between
_STEPS: Final = 1_000_000  # expressions that are looked up in one file
_BY_NAME: Final = DATA["by_name"]
_IMPORTERS: Final = {*DATA["functions"]["importers"]}
# Each looks up a name in a dictionary, and some take what to return if it is not there.
_LOOKUPS: Final = ("get", "__getitem__", "pop", "setdefault")
_BUILTINS: Final = frozenset(dir(builtins))


class Tangled(Exception):
    """The aliases of a file are too many to follow."""


@dataclass(eq=False)
class Scope:
    """A module, a class, a function or a comprehension.

    Attributes:
        kind: the class of its node; a comprehension counts as a function.
        parent: the scope around it.
        bindings: what each name is bound to: a full name, an expression with the scope it stands
            in, or None for anything else.
        stars: the modules of which every name was imported.
        elsewhere: names that `global` or `nonlocal` hand to a scope around it.
        assigned: the targets whose values are known; any other may be anything.
    """

    kind: str
    parent: Scope | None = None
    bindings: dict[str, list[str | tuple[ast.expr, Scope] | None]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    elsewhere: dict[str, Scope] = field(default_factory=dict)
    assigned: set[ast.Name] = field(default_factory=set)

    def owner(self, name: str) -> Scope | None:
        """Return the scope that binds a name, as it is seen from here."""
        for scope in self._outwards():
            if name in scope.elsewhere:
                return scope.elsewhere[name]
            if name in scope.bindings and (scope is self or scope.kind != "class"):
                return scope
        return None

    def unbound(self, name: str) -> set[str]:
        """Return what a name may stand for that no statement binds."""
        found = {f"{module}.{name}" for scope in self._outwards() for module in scope.stars}
        return found | ({f"builtins.{name}"} if name in _BUILTINS else set())

    def _outwards(self) -> Iterator[Scope]:
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def bind(self, name: str, to: str | tuple[ast.expr, Scope] | None) -> None:
        """Add one thing that a name may stand for."""
        self.elsewhere.get(name, self).bindings.setdefault(name, []).append(to)

    def hand_out(self, node: ast.Global | ast.Nonlocal) -> None:
        """Take note of names that belong to a scope around it."""
        for name in node.names:
            for scope in self._outwards():
                own = scope is self or scope.kind != "function" or name not in scope.bindings
                if isinstance(node, ast.Nonlocal) and not own:
                    break
            if scope is not self:
                self.elsewhere[name] = scope

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        """Bind the names of a target to a value, as far as the two fit together."""
        if isinstance(target, ast.Name):
            self.bind(target.id, (value, self))
            self.assigned.add(target)
        elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            both = [*target.elts, *value.elts]
            starred = any(isinstance(each, ast.Starred) for each in both)
            if len(target.elts) == len(value.elts) and not starred:
                for each, its_value in zip(target.elts, value.elts, strict=True):
                    self.assign(each, its_value)

    def collect(self, node: ast.AST) -> None:
        """Bind the names that a node binds, if it does."""
        match node:
            case ast.Import(names=names):
                for alias in names:
                    top = alias.name.partition(".")[0]
                    self.bind(alias.asname or top, alias.name if alias.asname else top)
            case ast.ImportFrom(module=module, names=names, level=level):
                start = "." * level + (module or "")
                for alias in names:
                    if alias.name == "*":
                        self.stars.append(start)
                    else:
                        dot = "" if start.endswith(".") else "."
                        self.bind(alias.asname or alias.name, f"{start}{dot}{alias.name}")
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self.assign(target, value)
            case ast.NamedExpr(target=target, value=value):
                self.assign(target, value)
            case ast.AnnAssign(target=target, value=assigned) if assigned is not None:
                self.assign(target, assigned)
            case ast.Name(id=name, ctx=ast.Store()) if node not in self.assigned:
                self.bind(name, None)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                self.bind(name, None)
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                self.bind(name, None)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.bind(node.name, f"{HERE}{node.name}")


def scope_of(
    node: ast.Module | ast.ClassDef | Function | Comprehension, parent: Scope | None = None
) -> Scope:
    """Return the scope that a node opens: a parameter stands for its default, if it has one."""
    if isinstance(node, Comprehension):
        scope = Scope("function", parent)
        for each in (each for found in node.generators for each in ast.walk(found.target)):
            scope.collect(each)
        return scope
    if isinstance(node, Function):
        scope = Scope("function", parent)
        for name, default in parameters(node):
            scope.bind(name, (default, parent) if default and parent else None)
    else:
        scope = Scope("class" if isinstance(node, ast.ClassDef) else "module", parent)
    nodes = [*_within([node.body] if isinstance(node, ast.Lambda) else node.body)]
    for each in nodes:
        if isinstance(each, ast.Global | ast.Nonlocal):
            scope.hand_out(each)
    for each in nodes:
        scope.collect(each)
    return scope


def parameters(node: Function) -> list[tuple[str, ast.expr | None]]:
    """Return the parameters of a function, each with its default."""
    its = node.args
    by_place = [*its.posonlyargs, *its.args]
    defaults = [*[None] * (len(by_place) - len(its.defaults)), *its.defaults, *its.kw_defaults]
    pairs = zip([*by_place, *its.kwonlyargs], defaults, strict=True)
    rest = [(each.arg, None) for each in (its.vararg, its.kwarg) if each]
    return [*((each.arg, default) for each, default in pairs), *rest]


def _within(body: list[ast.stmt] | list[ast.expr]) -> Iterator[ast.AST]:
    """Yield the nodes that belong to the same scope, and those that open one, but not their own."""
    waiting: list[ast.AST] = [*reversed(body)]
    while waiting:
        found = waiting.pop()
        yield found
        if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            waiting += found.decorator_list
        elif isinstance(found, Comprehension):
            # A walrus in a comprehension binds in the scope around it.
            waiting += [each for each in ast.walk(found) if isinstance(each, ast.NamedExpr)]
        elif not isinstance(found, ast.Lambda):
            waiting += ast.iter_child_nodes(found)


class Names:
    """Looks up expressions, and remembers what it found.

    A name that is bound to itself, over other names, is left out where it comes up again. What was
    found on the way there is then not the whole and is not remembered.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Scope, str | ast.expr | None], frozenset[str]] = {}
        self._active: set[tuple[Scope, str]] = set()
        self._cut: set[tuple[Scope, str]] = set()
        self._steps = 0

    def of(self, node: ast.expr | None, scope: Scope) -> frozenset[str]:
        """Return the full names that an expression may stand for, as far as the file tells.

        Raises:
            Tangled: there are too many.
        """
        if (scope, node) not in self._known:
            self._steps += 1
            found = {each.removesuffix(".__call__") for each in self._of(node, scope)}
            if len(found) > _MOST or self._steps > _STEPS:
                raise Tangled
            if self._cut:
                return frozenset(found)
            self._known[scope, node] = frozenset(found)
        return self._known[scope, node]

    def _of(self, node: ast.expr | None, scope: Scope) -> set[str] | frozenset[str]:
        match node:
            case ast.Name(id=name):
                return self._named(name, scope)
            case ast.Attribute(value=value, attr=attr):
                bases = self.of(value, scope)
                return {f"{each}.{attr}" for each in bases} if bases else _by_name(attr)
            case ast.NamedExpr(value=value):
                return self.of(value, scope)
            case ast.IfExp(body=body, orelse=other):
                return self.of(body, scope) | self.of(other, scope)
            case ast.BoolOp(values=values):
                return self._all(values, scope)
            case ast.Subscript(value=value, slice=key):
                return self._item(value, self.text(key, scope), scope)
            case ast.Call():
                return self._made(node, scope)
        return set()

    def _all(self, nodes: list[ast.expr], scope: Scope) -> set[str]:
        return {name for node in nodes for name in self.of(node, scope)}

    def text(self, node: ast.expr | None, scope: Scope, depth: int = 0) -> str | None:
        """Return the text that an expression is, if it is a literal or a name for one."""
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.BinOp(left=left, op=ast.Add(), right=right) if depth < _MOST:
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
        if len(self._active) > _MOST:
            raise Tangled
        self._active.add(key)
        found: set[str] = set()
        for bound in owner.bindings.get(name, ()):
            if isinstance(bound, str):
                found.add(bound)
            else:
                found |= (self.of(*bound) if bound else frozenset()) or _by_name(name)
        self._active.remove(key)
        self._cut.discard(key)
        if not self._cut:
            self._known[key] = frozenset(found)
        return frozenset(found)

    def _item(self, value: ast.expr, key: str | None, scope: Scope) -> set[str]:
        """Return what is in a dictionary of names: `sys.modules`, or that of a module."""
        if key is None:
            return set()
        names = self.of(value, scope)
        found = {key for name in names if f".{name}".endswith(".sys.modules")}
        ends = ".__dict__"
        return found | {f"{name.removesuffix(ends)}.{key}" for name in names if name.endswith(ends)}

    def _made(self, call: ast.Call, scope: Scope) -> set[str]:
        """Return what a call stands for, if it is one of those that look up a name."""
        functions = self.of(call.func, scope)
        first = call.args[0] if call.args else None
        if functions & _IMPORTERS:
            return self._imported(call, functions, scope)
        if "builtins.getattr" in functions and len(call.args) > 1:
            attr = self.text(call.args[1], scope)
            found = {f"{each}.{attr}" for each in self.of(first, scope) if attr}
            return found | self._all(call.args[2:], scope)
        if isinstance(call.func, ast.Attribute) and call.func.attr in _LOOKUPS:
            items = self._item(call.func.value, self.text(first, scope), scope)
            return items | self._all(call.args[1:], scope)
        if "builtins.vars" in functions:
            return {f"{each}.__dict__" for each in self.of(first, scope)}
        if functions & PARTIALS:
            return {PARTIAL + each.removeprefix(PARTIAL) for each in self.of(first, scope)}
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
