"""What a name in a file may stand for, such as `torch.load` for `th.load`.

A name may have several bindings (`try: import cPickle as pickle`), and counts as each of them,
everywhere in the file: neither scopes nor the order of statements matter here.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from typing import Final

from safepoint.rules import package_toml

DATA: Final = package_toml("models/lint/lint.toml")

_MOST: Final = 100_000  # names that are looked up in one file, besides four for each node
_DOTS: Final = 8  # in one name
_BY_NAME: Final = DATA["by_name"]
_IMPORTERS: Final = {*DATA["functions"]["importers"]}
_BUILTINS: Final = frozenset(dir(builtins))


class Tangled(Exception):
    """The aliases of a file are too many to follow."""


class Names:
    """The nodes of a file, each with what is around it, and what its expressions stand for.

    Attributes:
        nodes: all but annotations, from top to bottom.
        around: the node that each is part of.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.nodes: list[ast.AST] = []
        self.around: dict[ast.AST, ast.AST] = {tree: tree}
        # What each name is bound to: full names, and expressions; None for a parameter.
        self._bindings: dict[str, list[str | ast.expr | None]] = defaultdict(list)
        self._stars: list[str] = []  # the modules of which every name was imported
        self._known: dict[str, set[str]] = defaultdict(set)
        self._found: dict[ast.expr, set[str]] | None = None
        waiting: list[ast.AST] = [tree]
        while waiting:
            node = waiting.pop()
            self.nodes.append(node)
            self._bind(node)
            noted = getattr(node, "annotation", None), getattr(node, "returns", None)
            parts = [each for each in ast.iter_child_nodes(node) if each not in noted]
            self.around |= dict.fromkeys(parts, node)
            waiting += reversed(parts)
        self._left = _MOST + 4 * len(self.nodes)
        for guess in (False, True):  # by name alone, where nothing else is known
            while self._learns(guess=guess):
                pass
        self._found = {}

    def _learns(self, *, guess: bool) -> bool:
        """Look once at what all names are bound to, and tell whether that was new."""
        before = sum(map(len, self._known.values()))
        for name, values in self._bindings.items():
            for value in values:
                found = {value} if isinstance(value, str) else self.of(value)
                self._known[name] |= found or (_by_name(name) if guess else set())
        return sum(map(len, self._known.values())) > before

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
                found = self._known[name] if name in self._bindings else self._unbound(name)
            case ast.Attribute(value=value, attr=attr):
                found = _attributes(self.of(value), attr) or _by_name(attr)
                found = {each.removesuffix(".__call__") for each in found}
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

    def _unbound(self, name: str) -> set[str]:
        """Return what a name may stand for that no statement binds."""
        found = {f"builtins.{name}"} if name in _BUILTINS else set()
        return found | {f"{module}.{name}" for module in self._stars} or _by_name(name)

    def text(self, node: ast.expr | None) -> str | None:
        """Return the text that an expression is, if it is a literal or a name for one."""
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name(id=name):
                match self._bindings.get(name):
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
            return _attributes(self.of(first), name) if name else set()
        return _item({each[:-4] for each in functions if each.endswith((".get", ".pop"))}, name)

    def _bind(self, node: ast.AST) -> None:
        """Bind the names that a node binds, if it does."""
        bind = self._bindings
        match node:
            case ast.Import(names=names):
                for alias in names:
                    top = alias.name.partition(".")[0]
                    bind[alias.asname or top].append(alias.name if alias.asname else top)
            case ast.ImportFrom(module=module, names=names, level=level):
                start = "." * level + (f"{module}." if module else "")
                for alias in names:
                    if alias.name == "*":
                        self._stars.append(start.removesuffix("."))
                    else:
                        bind[alias.asname or alias.name].append(f"{start}{alias.name}")
            case ast.arguments():
                for name, default in parameters(node):
                    bind[name].append(default)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, value)
            case (
                ast.AnnAssign(target=target, value=ast.expr() as value)
                | ast.NamedExpr(target=target, value=value)
            ):
                self._assign(target, value)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                bind[node.name].append(f"this file's {node.name}")

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        """Bind the names of a target to a value, as far as the two fit together."""
        pairs: list[tuple[ast.expr, ast.expr]] = [(target, value)]
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            pairs = [*zip(target.elts, value.elts, strict=False)]
        for each, its_value in pairs:
            if isinstance(each, ast.Name):
                self._bindings[each.id].append(its_value)


def parameters(its: ast.arguments) -> list[tuple[str, ast.expr | None]]:
    """Return the parameters of a function, each with its default."""
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
    """Return what a key of `sys.modules` stands for."""
    is_modules = any(f".{each}".endswith(".sys.modules") for each in names)
    return {key} if key and is_modules else set()


def _attributes(names: set[str], attr: str) -> set[str]:
    """Add an attribute. Where a name has it, as in `node = node.left`, it ends there again."""
    short = (name for name in names if name.count(".") < _DOTS)
    return {f".{name}.{attr}.".partition(f".{attr}.")[0][1:] + f".{attr}" for name in short}


def _by_name(name: str) -> set[str]:
    return {_BY_NAME[name]} if name in _BY_NAME else set()
