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

_MOST: Final = 100_000  # names that are looked up in one file, besides four for each node
_DOTS: Final = 8  # in one name
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
        self._known: dict[tuple[Scope, str], set[str]] = defaultdict(set)
        self._found: dict[ast.expr, set[str]] | None = None
        self._collect(tree)
        self._left = _MOST + 4 * len(self.nodes)
        for guess in (False, True):  # by name alone, where nothing else is known
            while self._learns(guess=guess):
                pass
        self._found = {}

    def _collect(self, tree: ast.Module) -> None:
        waiting: list[tuple[ast.AST, ast.AST, Scope]] = [(tree, tree, Scope(ast.Module))]
        while waiting:
            node, around, scope = waiting.pop()
            self.nodes.append(node)
            self.around[node], self._scopes[node] = around, scope
            _bind(node, around, scope)
            inner = scope
            if isinstance(node, _Function | ast.ClassDef | _Comprehension):
                inner = Scope(type(node), scope)
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
            elif isinstance(node, ast.comprehension) and isinstance(around, _Comprehension):
                first = self._scopes[around] if node is around.generators[0] else scope
                parts = [(node.target, scope), (node.iter, first)]
                parts += [(each, scope) for each in node.ifs]
            elif isinstance(node, ast.AnnAssign):
                parts = [(each, scope) for each in (node.target, node.value) if each]
            else:
                parts = [(each, inner) for each in ast.iter_child_nodes(node)]
            parts += [(each, scope) for each in getattr(node, "decorator_list", ())]
            waiting += [(each, node, its_scope) for each, its_scope in reversed(parts)]

    def _learns(self, *, guess: bool) -> bool:
        """Look once at what all names are bound to, and tell whether that was new."""
        before = sum(map(len, self._known.values()))
        for scope in dict.fromkeys(self._scopes.values()):
            for name, values in scope.bindings.items():
                known = self._known[scope, name]
                for value in values:
                    found = {value} if isinstance(value, str) else self.of(value)
                    known |= found or (_by_name(name) if guess else set())
        return sum(map(len, self._known.values())) > before

    def owned(self, name: str, node: ast.AST) -> tuple[Scope | None, str]:
        """Return a name with the scope that binds it, as it is seen from a node."""
        return self._scopes[node].owner(name), name

    def of(self, node: ast.expr | None) -> set[str]:
        """Return the full names that an expression may stand for, as far as the file tells.

        Raises:
            Tangled: there are too many.
        """
        if self._found is not None and node in self._found:
            return self._found[node]
        found: set[str] = set()
        match node:
            case ast.Name(id=name):
                owner = self._scopes[node].owner(name)
                found = self._known[owner, name] if owner else self._unbound(node)
            case ast.Attribute(value=value, attr=attr):
                bases = self.of(value)
                found = {_attribute(each, attr) for each in bases if each.count(".") < _DOTS}
                found = {each.removesuffix(".__call__") for each in found or _by_name(attr)}
            case ast.NamedExpr(value=value):
                found = self.of(value)
            case ast.IfExp(body=body, orelse=other):
                found = self.of(body) | self.of(other)
            case ast.BoolOp(values=values):
                found = {name for each in values for name in self.of(each)}
            case ast.Subscript(value=value, slice=key):
                found = _item(self.of(value), self.text(key))
            case ast.Call():
                found = self._made(node)
        self._left -= 1 + len(found)
        if self._left < 0:
            raise Tangled
        if self._found is not None and node is not None:
            self._found[node] = found
        return found

    def _unbound(self, node: ast.Name) -> set[str]:
        """Return what a name may stand for that no statement binds."""
        found = {f"builtins.{node.id}"} if node.id in _BUILTINS else set()
        around: Scope | None = self._scopes[node]
        while around is not None:
            found |= {f"{module}.{node.id}" for module in around.stars}
            around = around.parent
        return found or _by_name(node.id)

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

    def _made(self, call: ast.Call) -> set[str]:
        """Return what a call stands for, if it is one of those that look up a name."""
        functions = self.of(call.func)
        named = keywords(call)
        by_name = (named[each] for each in ("name", "modname") if each in named)
        first, attr, *_ = *call.args, *by_name, None, None
        name = self.text(first)
        if functions & _IMPORTERS:
            if name and any(each.endswith("__import__") for each in functions):
                return {name, name.partition(".")[0]}  # with fromlist, and without
            return {name} if name else set()
        if functions & {"builtins.getattr", "builtins.setattr"}:
            name = self.text(attr)
            return {f"{each}.{name}" for each in self.of(first) if name}
        if "builtins.vars" in functions:
            return {f"{each}.__dict__" for each in self.of(first)}
        return _item({each[:-4] for each in functions if each.endswith((".get", ".pop"))}, name)


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
            scope.bind(name, f"this file's {name}")
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


def keywords(call: ast.Call) -> dict[object, ast.expr]:
    """Return the keywords of a call, and those of a literal `**{}`; None stands for any others."""
    found: dict[object, ast.expr] = {}
    for each in call.keywords:
        its = each.value if each.arg is None and isinstance(each.value, ast.Dict) else None
        names = [key.value for key in its.keys if isinstance(key, ast.Constant)] if its else []
        if its and len(names) == len(its.keys):
            found |= zip(names, its.values, strict=True)
        else:
            found[each.arg] = each.value
    return found


def _item(names: set[str], key: str | None) -> set[str]:
    """Return what a key of `sys.modules` stands for, or one of the `__dict__` of a module."""
    found = {f"{each[:-9]}.{key}" for each in names if key and each.endswith(".__dict__")}
    is_modules = any(f".{each}".endswith(".sys.modules") for each in names)
    return found | {key} if key and is_modules else found


def _attribute(name: str, attr: str) -> str:
    """Add an attribute. Where the name has it, as in `node = node.left`, it ends there again."""
    return f".{name}.{attr}.".partition(f".{attr}.")[0][1:] + f".{attr}"


def _by_name(name: str) -> set[str]:
    return {_BY_NAME[name]} if name in _BY_NAME else set()
