"""Scopes: what a name in a file may stand for, by the imports and assignments that reach it.

A name may have several bindings (`try: import cPickle as pickle`), and counts as each of them.
The order of statements does not matter here.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
HERE: Final = "this file's "
"""Stands before the name of a function or a class that the file defines."""
_BLOCKS: Final = (
    *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith),
    *(ast.Try, ast.TryStar, ast.ExceptHandler),
)
_BUILTINS: Final = frozenset(dir(builtins))


@dataclass(eq=False)
class Scope:
    """A module, a class, a function or a comprehension.

    Attributes:
        kind: which of them; a comprehension counts as a function.
        parent: the scope around it.
        bindings: what each name is bound to: a full name, an expression with the scope it stands
            in, or None for anything else.
        stars: the modules of which every name was imported.
        elsewhere: names that `global` or `nonlocal` hand to a scope around it.
        walrus: whether the file has a `:=` somewhere, so that expressions may bind names too.
    """

    kind: Literal["module", "class", "function"]
    parent: Scope | None = None
    bindings: dict[str, list[str | tuple[ast.expr, Scope] | None]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    elsewhere: dict[str, Scope] = field(default_factory=dict)
    walrus: bool = True

    def inner(self, kind: Literal["class", "function"]) -> Scope:
        """Return a new scope within this one."""
        return Scope(kind, self, walrus=self.walrus)

    def bind(self, name: str, to: str | tuple[ast.expr, Scope] | None) -> None:
        """Add one thing that a name may stand for."""
        self.elsewhere.get(name, self).bindings.setdefault(name, []).append(to)

    def owner(self, name: str) -> Scope | None:
        """Return the scope that binds a name, as it is seen from here."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.elsewhere:
                return scope.elsewhere[name]
            if name in scope.bindings and (scope is self or scope.kind != "class"):
                return scope
            scope = scope.parent
        return None

    def unbound(self, name: str) -> set[str]:
        """Return what a name may stand for that no statement binds."""
        found = {f"builtins.{name}"} if name in _BUILTINS else set()
        scope: Scope | None = self
        while scope is not None:
            found.update(f"{module}.{name}" for module in scope.stars)
            scope = scope.parent
        return found

    def outer(self, kind: Literal["module", "function"], name: str) -> Scope:
        """Return the scope that `global` or `nonlocal` means."""
        scope = self
        while scope.parent is not None:
            scope = scope.parent
            if kind == "function" and scope.kind == "function" and name in scope.bindings:
                return scope
        return scope


def module_scope(tree: ast.Module, *, walrus: bool = True) -> Scope:
    """Return the scope of a file. One without any `:=` is looked through faster."""
    scope = Scope("module", walrus=walrus)
    _collect(tree.body, scope)
    return scope


def class_scope(node: ast.ClassDef, parent: Scope) -> Scope:
    """Return the scope of a class body."""
    scope = parent.inner("class")
    _collect(node.body, scope)
    return scope


def function_scope(node: Function, parent: Scope) -> Scope:
    """Return the scope of a function: a parameter stands for its default, if it has one."""
    scope = parent.inner("function")
    arguments = node.args
    by_place = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(by_place) - len(arguments.defaults))
    pairs = [
        *zip(by_place, [*defaults, *arguments.defaults], strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        *((rest, None) for rest in (arguments.vararg, arguments.kwarg) if rest),
    ]
    for argument, default in pairs:
        scope.bind(argument.arg, None if default is None else (default, parent))
    _collect([node.body] if isinstance(node, ast.Lambda) else node.body, scope)
    return scope


def comprehension_scope(node: Comprehension, parent: Scope) -> Scope:
    """Return the scope of a comprehension."""
    scope = parent.inner("function")
    for generator in node.generators:
        _bind(generator.target, None, scope)
    return scope


def _collect(body: Iterable[ast.AST], scope: Scope) -> None:
    nodes = [
        each for node in body for each in (_within(node) if scope.walrus else _statements(node))
    ]
    for node in nodes:
        if isinstance(node, ast.Global | ast.Nonlocal):
            kind: Literal["module", "function"] = (
                "module" if isinstance(node, ast.Global) else "function"
            )
            for name in node.names:
                if scope.parent is not None:
                    scope.elsewhere[name] = scope.outer(kind, name)
    for node in nodes:
        _collect_one(node, scope)


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that belong to the same scope, and those that open one, but not their own."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            waiting += found.decorator_list
        elif isinstance(found, ast.Lambda):
            pass
        elif isinstance(found, Comprehension):
            # A walrus in a comprehension binds in the scope around it.
            inner = [each for each in ast.walk(found) if isinstance(each, ast.NamedExpr)]
            waiting += inner
        else:
            waiting += ast.iter_child_nodes(found)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what `_within` does, without expressions."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        if isinstance(found, ast.Match):
            for case in found.cases:
                waiting += case.body
                yield from ast.walk(case.pattern)
        elif isinstance(found, _BLOCKS):
            for name in ("body", "orelse", "handlers", "finalbody"):
                waiting += getattr(found, name, ())


def _collect_one(node: ast.AST, scope: Scope) -> None:
    match node:
        case ast.Import(names=names):
            for alias in names:
                top = alias.name.partition(".")[0]
                scope.bind(alias.asname or top, alias.name if alias.asname else top)
        case ast.ImportFrom(module=module, names=names, level=level):
            start = "." * level + (module or "")
            for alias in names:
                if alias.name == "*":
                    scope.stars.append(start)
                else:
                    dot = "" if start.endswith(".") else "."
                    scope.bind(alias.asname or alias.name, f"{start}{dot}{alias.name}")
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                _bind(target, value, scope)
        case ast.AnnAssign(target=target, value=assigned) if assigned is not None:
            _bind(target, assigned, scope)
        case ast.NamedExpr(target=target, value=value):
            _bind(target, value, scope)
        case ast.AugAssign(target=target) | ast.For(target=target) | ast.AsyncFor(target=target):
            _bind(target, None, scope)
        case ast.With(items=items) | ast.AsyncWith(items=items):
            for item in items:
                if item.optional_vars is not None:
                    _bind(item.optional_vars, None, scope)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            scope.bind(name, None)
        case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            scope.bind(name, None)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            scope.bind(name, f"{HERE}{name}")


def _bind(target: ast.expr, value: ast.expr | None, scope: Scope) -> None:
    match target:
        case ast.Name(id=name):
            scope.bind(name, None if value is None else (value, scope))
        case ast.Starred(value=inner):
            _bind(inner, None, scope)
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            values: list[ast.expr | None] = [None] * len(targets)
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(targets):
                starred = any(isinstance(each, ast.Starred) for each in [*targets, *value.elts])
                values = values if starred else [*value.elts]
            for each, its_value in zip(targets, values, strict=True):
                _bind(each, its_value, scope)
