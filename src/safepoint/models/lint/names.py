"""What a name in a file may stand for, such as `torch.load` for `th.load`, and what that does.

A name may have several bindings (`try: import cPickle as pickle`), and counts as each of them,
everywhere in the file: neither scopes nor the order of statements matter here. A name of which
nothing is known stands for itself: a fixture called `torch` is taken for the module.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import lru_cache
from typing import Final

from safepoint.rules import package_toml

DATA: Final = package_toml("models/lint/lint.toml")

_MOST: Final = 8_000_000  # characters of names that are looked up in a file, besides 80 for a node
_LIKE: Final = (f"(?P<{kind}>{'|'.join(like)})" for kind, like in DATA["kinds"].items())
_KIND: Final = re.compile(rf"(?:.*\.)?(?:{'|'.join(_LIKE)})")


@lru_cache(100_000)
def _kind_of(name: str) -> str | None:
    found = _KIND.fullmatch(name)
    return found and found.lastgroup


class Tangled(ValueError):
    """The aliases of a file are too many to follow."""

    msg = "too tangled"


class Names:
    """The nodes of a file, each with what is around it, and what its expressions stand for.

    Attributes:
        nodes: all but annotations, each after the one that it is part of.
        around: the node that each is part of.
        bindings: what each name is bound to: full names, and expressions.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.nodes: list[ast.AST] = [tree]
        self.around: dict[ast.AST, ast.AST] = {tree: tree}
        self.bindings: dict[str, list[str | ast.expr]] = defaultdict(list)
        self._stars: list[str] = []  # the modules of which every name was imported
        self._known: dict[str, set[str]] = {}
        self._found: dict[ast.expr, set[str]] = {}
        for node in self.nodes:
            self._bind(node)
            noted = getattr(node, "annotation", None), getattr(node, "returns", None)
            parts = [each for each in ast.iter_child_nodes(node) if each not in noted]
            self.around |= dict.fromkeys(parts, node)
            self.nodes += parts
        self._left = _MOST + 80 * len(self.nodes)
        for name in self.bindings:
            self._named(name)
        self._found.clear()  # what was found within a loop of names may lack some

    def known(self, node: ast.expr, *kinds: str) -> dict[str, str]:
        """Return what an expression may stand for that the tables know: all, or these kinds."""
        found = {name: _kind_of(name) for name in sorted(self.of(node))}
        return {name: kind for name, kind in found.items() if kind and (kind in kinds or not kinds)}

    def of(self, node: ast.expr) -> set[str]:
        """Return the full names that an expression may stand for, as far as the file tells.

        Raises:
            Tangled: there are too many.
        """
        if node not in self._found:
            self._found[node] = found = self._follow(node)
            self._left -= 1 + sum(map(len, found))
            if self._left < 0:
                raise Tangled
        return self._found[node]

    def _follow(self, node: ast.expr) -> set[str]:
        match node:
            case ast.Name(id=name):
                return self._named(name) or {name, *(f"{each}.{name}" for each in self._stars)}
            case ast.Attribute(value=value, attr=attr):
                return {f"{name}.{attr}" for name in self.of(value)} or {attr}
            case ast.IfExp() | ast.BoolOp() | ast.NamedExpr():
                parts = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
                return {name for each in parts for name in self.of(each)}
            case ast.Subscript(value=value, slice=key):
                return self._look_up(ast.Attribute(value, "get"), key)
            case ast.Call(func=function, args=[first, *rest]):
                return self._look_up(function, first, *rest)
        return set()

    def _look_up(self, function: ast.expr, first: ast.expr, *rest: ast.expr) -> set[str]:
        """Return what a function finds by a text: a module, or an attribute of its argument."""
        kinds = self.known(function, "importer", "attribute").values()
        if "importer" in kinds and (name := self.text(first)):
            return {name, name.partition(".")[0]}
        if "attribute" in kinds and rest and (attr := self.text(rest[0])):
            return {f"{name}.{attr}" for name in self.of(first)}
        return set()

    def _named(self, name: str) -> set[str]:
        """Return what a name is bound to."""
        if name not in self._known:
            self._known[name] = set()  # bound to itself, it stands for nothing more
            values = self.bindings.get(name, ())
            found = [{each} if isinstance(each, str) else self.of(each) for each in values]
            self._known[name] = set().union(*found)
        return self._known[name]

    def text(self, node: ast.expr | None) -> str | None:
        """Return the text that an expression is, if it is a literal or a name for one."""
        match self.bindings.get(node.id, ()) if isinstance(node, ast.Name) else [node]:
            case [ast.Constant(value=str(text))]:
                return text
        return None

    def _bind(self, node: ast.AST) -> None:
        """Bind the names that a node binds, if it does."""
        bind = self.bindings
        match node:
            case ast.Import(names=names):
                for alias in names:
                    top = alias.name.partition(".")[0]
                    bind[alias.asname or top].append(alias.name if alias.asname else top)
            case ast.ImportFrom(module=module, names=names, level=level):
                start = "." * level + (module or "")
                for alias in names:
                    if alias.name == "*":
                        self._stars.append(start)
                    else:
                        bind[alias.asname or alias.name].append(f"{start}.{alias.name}")
            case ast.arguments(posonlyargs=first, args=then, kwonlyargs=named):
                by_place = zip([*first, *then][::-1], node.defaults[::-1], strict=False)
                for each, default in [*by_place, *zip(named, node.kw_defaults, strict=True)]:
                    if default:
                        bind[each.arg].append(default)
            case ast.Name(id=name, ctx=ast.Store()):
                value = getattr(self.around[node], "value", None)
                if isinstance(value, ast.expr):
                    bind[name].append(value)
