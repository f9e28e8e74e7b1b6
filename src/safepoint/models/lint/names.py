"""What a name in a file may stand for, such as `torch.load` for `th.load`.

A name may have several bindings (`try: import cPickle as pickle`), and counts as each of them.
The order of statements does not matter here.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from safepoint.rules import package_toml

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
DATA: Final = package_toml("models/lint/lint.toml")
"""What is looked for, and the functions that load."""
HERE: Final = "this file's "
"""Stands before the name of a function or a class that the file defines."""

_MOST: Final = 64  # names for one expression, and rounds until all of them are known
_DOTS: Final = 8  # in one name
_STEPS: Final = 1_000_000  # expressions that are looked up in one file
_BY_NAME: Final = DATA["by_name"]
_IMPORTERS: Final = {*DATA["functions"]["importers"]}
_BUILTINS: Final = frozenset(dir(builtins))


class Tangled(Exception):
    """The aliases of a file are too many to follow."""


@dataclass(eq=False)
class Scope:
    """A module, a class, a function or a comprehension.

    Attributes:
        kind: the class of its node.
        parent: the scope around it.
        bindings: what each name is bound to: full names, and expressions; None for anything else.
        stars: the modules of which every name was imported.
        elsewhere: names that `global` or `nonlocal` hand to a scope around it.
    """

    kind: type[ast.AST]
    parent: Scope | None = None
    bindings: dict[str, list[str | ast.expr | None]] = field(
        default_factory=lambda: defaultdict(list)
    )
    stars: list[str] = field(default_factory=list)
    elsewhere: dict[str, Scope] = field(default_factory=dict)

    def owner(self, name: str) -> Scope | None:
        """Return the scope that binds a name, as it is seen from here."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.elsewhere and name in scope.elsewhere[name].bindings:
                return scope.elsewhere[name]
            if name in scope.bindings and (scope is self or scope.kind is not ast.ClassDef):
                return scope
            scope = scope.parent
        return None

    def bind(self, name: str, to: str | ast.expr | None = None) -> None:
        """Add one thing that a name may stand for."""
        self.elsewhere.get(name, self).bindings[name].append(to)

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        """Bind the names of a target to a value, as far as the two fit together."""
        pairs: list[tuple[ast.expr, ast.expr]] = [(target, value)]
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            pairs = [*zip(target.elts, value.elts, strict=False)]
        for each, its_value in pairs:
            if isinstance(each, ast.Name):
                self.bind(each.id, its_value)


class Names:
    """The nodes of a file, each with what is around it, and what its expressions stand for.

    Attributes:
        nodes: all but annotations, from top to bottom.
        around: the node that each is part of.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.nodes: list[ast.AST] = []
        self.around: dict[ast.AST, ast.AST] = {}
        self._scopes: dict[ast.AST, Scope] = {}
        self._module = Scope(ast.Module)
        self._all = [self._module]
        self._known: dict[tuple[Scope, str], set[str]] = defaultdict(set)
        self._found: dict[ast.expr, set[str]] | None = None
        self._steps = 0
        self._collect(tree)
        for guess in (False, True):  # by name alone, where nothing else is known
            while self._learns(guess=guess):
                self._steps += _STEPS // _MOST
        self._found = {}

    def _collect(self, tree: ast.Module) -> None:
        waiting: list[tuple[ast.AST, ast.AST, Scope]] = [(tree, tree, self._module)]
        while waiting:
            node, around, scope = waiting.pop()
            self.nodes.append(node)
            self.around[node], self._scopes[node] = around, scope
            _bind(node, around, scope)
            inner = scope
            if isinstance(node, _Function | ast.ClassDef | _Comprehension):
                inner = Scope(type(node), scope)
                self._all.append(inner)
            parts: list[tuple[ast.AST, Scope]] = []
            if isinstance(node, _Function):
                for name, default in parameters(node):
                    inner.bind(name, default)
                    parts += [(default, scope)] if default else []
                body = [node.body] if isinstance(node, ast.Lambda) else node.body
                parts += [(each, inner) for each in body]
            elif isinstance(node, ast.ClassDef):
                heads = [*node.bases, *node.keywords]
                parts = [*((each, scope) for each in heads), *((each, inner) for each in node.body)]
            elif isinstance(node, ast.AnnAssign):
                parts = [(each, scope) for each in (node.target, node.value) if each]
            else:
                parts = [(each, inner) for each in ast.iter_child_nodes(node)]
            parts += [(each, scope) for each in getattr(node, "decorator_list", ())]
            waiting += [(each, node, its_scope) for each, its_scope in reversed(parts)]

    def _learns(self, *, guess: bool) -> bool:
        """Look once at what all names are bound to, and tell whether that was new."""
        before = sum(map(len, self._known.values()))
        for scope in self._all:
            for name, values in scope.bindings.items():
                known = self._known[scope, name]
                for value in values:
                    found = {value} if isinstance(value, str) else self._of(value, scope)
                    known |= found or (_by_name(name) if guess else set())
                if len(known) > _MOST:
                    raise Tangled
        return sum(map(len, self._known.values())) > before

    def of(self, node: ast.expr) -> set[str]:
        """Return the full names that an expression may stand for, as far as the file tells.

        Raises:
            Tangled: there are too many.
        """
        return self._of(node, self._scopes[node])

    def _of(self, node: ast.expr | None, scope: Scope) -> set[str]:
        if self._found is not None and node in self._found:
            return self._found[node]
        self._steps += 1
        if self._steps > _STEPS:
            raise Tangled
        found: set[str] = set()
        match node:
            case ast.Name(id=name):
                owner = scope.owner(name)
                found = self._known[owner, name] if owner else self._unbound(name, scope)
            case ast.Attribute(value=value, attr=attr):
                bases = self._of(value, scope)
                found = {f"{each}.{attr}" for each in bases if each.count(".") < _DOTS}
                found = {each.removesuffix(".__call__") for each in found or _by_name(attr)}
            case ast.NamedExpr(value=value):
                found = self._of(value, scope)
            case ast.IfExp(body=body, orelse=other):
                found = self._of(body, scope) | self._of(other, scope)
            case ast.BoolOp(values=values):
                found = {name for each in values for name in self._of(each, scope)}
            case ast.Subscript(value=value, slice=key):
                found = self._item(value, key, scope)
            case ast.Call(args=[first, *rest]):
                found = self._made(node, first, rest, scope)
        if len(found) > _MOST:
            raise Tangled
        if self._found is not None and node is not None:
            self._found[node] = found
        return found

    def _unbound(self, name: str, scope: Scope) -> set[str]:
        """Return what a name may stand for that no statement binds."""
        found = {f"builtins.{name}"} if name in _BUILTINS else set()
        around: Scope | None = scope
        while around is not None:
            found |= {f"{module}.{name}" for module in around.stars}
            around = around.parent
        return found or _by_name(name)

    def text(self, node: ast.expr | None) -> str | None:
        """Return the text that an expression is, if it is a literal or a name for one."""
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name(id=name):
                owner = self._scopes[node].owner(name)
                match owner.bindings.get(name) if owner else None:
                    case [ast.Constant(value=str(text))]:
                        return text
        return None

    def _item(self, value: ast.expr, key: ast.expr, scope: Scope) -> set[str]:
        """Return what is in `sys.modules`."""
        name = self.text(key)
        is_modules = name and any(f".{e}".endswith(".sys.modules") for e in self._of(value, scope))
        return {name} if name and is_modules else set()

    def _made(
        self, call: ast.Call, first: ast.expr, rest: list[ast.expr], scope: Scope
    ) -> set[str]:
        """Return what a call stands for, if it is one of those that look up a name."""
        functions = self._of(call.func, scope)
        name = self.text(first)
        if functions & _IMPORTERS:
            if name and any(each.endswith("__import__") for each in functions):
                return {name, name.partition(".")[0]}  # with fromlist, and without
            return {name} if name else set()
        if "builtins.getattr" in functions and rest:
            attr = self.text(rest[0])
            return {f"{each}.{attr}" for each in self._of(first, scope) if attr}
        if isinstance(call.func, ast.Attribute) and call.func.attr == "get":
            return self._item(call.func.value, first, scope)
        return set()


def _bind(node: ast.AST, around: ast.AST, scope: Scope) -> None:
    """Bind the names that a node binds, if it does."""
    match node:
        case ast.Import(names=names):
            for alias in names:
                top = alias.name.partition(".")[0]
                scope.bind(alias.asname or top, alias.name if alias.asname else top)
        case ast.ImportFrom(module=module, names=names, level=level):
            start = "." * level + (f"{module}." if module else "")
            for alias in names:
                if alias.name == "*":
                    scope.stars.append(start.removesuffix("."))
                else:
                    scope.bind(alias.asname or alias.name, f"{start}{alias.name}")
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                scope.assign(target, value)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            scope.assign(target, value)
        case ast.NamedExpr(target=target, value=value):  # in a comprehension, for what is around it
            is_inner = scope.parent and issubclass(scope.kind, _Comprehension)
            (scope.parent if is_inner and scope.parent else scope).assign(target, value)
        case ast.Name(id=name, ctx=ast.Store()):
            if not isinstance(around, ast.Assign | ast.AnnAssign | ast.NamedExpr):
                scope.bind(name)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            scope.bind(name)
        case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            scope.bind(name)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            scope.bind(name, f"{HERE}{name}")
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            outer: Scope | None = scope.parent
            while isinstance(node, ast.Global) and outer is not None and outer.parent is not None:
                outer = outer.parent
            scope.elsewhere |= dict.fromkeys(names, outer) if outer else {}


def parameters(node: _Function) -> list[tuple[str, ast.expr | None]]:
    """Return the parameters of a function, each with its default."""
    its = node.args
    by_place = [*its.posonlyargs, *its.args]
    defaults = [*[None] * (len(by_place) - len(its.defaults)), *its.defaults, *its.kw_defaults]
    pairs = zip([*by_place, *its.kwonlyargs], defaults, strict=True)
    rest = [(each.arg, None) for each in (its.vararg, its.kwarg) if each]
    return [*((each.arg, default) for each, default in pairs), *rest]


def _by_name(name: str) -> set[str]:
    return {_BY_NAME[name]} if name in _BY_NAME else set()
