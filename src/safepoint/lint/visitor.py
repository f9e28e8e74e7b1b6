"""The visitor: judges each load in a file by what its names stand for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from safepoint.lint.calls import Arguments, Judged, handed_on, judge
from safepoint.lint.environment import WHAT, set_by
from safepoint.lint.loaders import TAKES_FLAG, Loader, loader_of
from safepoint.lint.names import PARTIAL, PARTIALS, Names
from safepoint.lint.patches import put_by, unseen
from safepoint.lint.scopes import Scope, module_scope
from safepoint.lint.walking import Walker

# Whoever asks these about a function does not call it.
_LOOKS: Final = frozenset(
    f"builtins.{name}"
    for name in (
        "callable",
        "getattr",
        "hasattr",
        "id",
        "isinstance",
        "issubclass",
        "repr",
        "str",
        "type",
    )
)
_LOOKS_IN: Final = frozenset({"inspect", "mock", "unittest"})
_NAMES: Final = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
_RESTRICTED: Final = TAKES_FLAG | {Loader.CHECKPOINT}
_OPENS_UP: Final = frozenset({"SL01", "SL02", "SL03"})


class Visitor(Walker, ast.NodeVisitor):
    """Collects what it finds: a node, an id and a sentence each."""

    def __init__(self, tree: ast.Module, *, walrus: bool = True) -> None:
        super().__init__(module_scope(tree, walrus=walrus))
        self._names = Names()
        self._found: dict[tuple[ast.AST, str], str] = {}
        self._aliases: dict[tuple[Scope, str], tuple[ast.expr, Judged]] = {}
        self._used: set[tuple[Scope | None, str]] = set()
        self._falling_back = False
        self.each(tree.body)

    def found(self) -> Iterator[tuple[ast.AST, str, str]]:
        """Yield what was found."""
        for (node, kind), what in self._found.items():
            yield node, kind, what
        for key, (node, judged) in self._aliases.items():
            if key not in self._used:
                yield node, judged.id, judged.what

    def base(self, node: ast.expr, derived: ast.ClassDef) -> None:
        """Look for a class that is derived from an Unpickler."""
        known = self._known(node)
        if Loader.UNPICKLER in known.values():
            self._add(derived, Judged("SL09", f"{derived.name} is a {min(known)} of its own."))
        else:
            self.visit(node)

    def default(self, node: ast.expr, parameter: str, inner: Scope) -> None:
        """Take a parameter for an alias of its default."""
        if self._is_alias(node):
            self._alias(node, inner, parameter)
        else:
            self.visit(node)

    def visit_Try(self, node: ast.Try) -> None:
        """Remember in the handlers whether a load with restriction may have failed."""
        self._try(node)

    def visit_TryStar(self, node: ast.TryStar) -> None:
        """Visit it as any other try."""
        self._try(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Look for a loader that gets another name, or another place."""
        self._environment(node)
        self._assign(node.targets, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Visit it as any other assignment, without the annotation."""
        if node.value is not None:
            self._assign([node.target], node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        """Visit what is more than a name: one that stands alone does nothing."""
        if not isinstance(node.value, ast.Name | ast.Attribute):
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Visit what is compared, if it is more than a name."""
        both = [node.left, *node.comparators]
        self.each(each for each in both if not isinstance(each, ast.Name | ast.Attribute))

    def visit_Dict(self, node: ast.Dict) -> None:
        """Look for the environment variable among the keys."""
        self._environment(node)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """Judge a loader that is used as a value."""
        self._value(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Judge a loader that is used as a value; one of which an attribute is read is not."""
        if not self._value(node):
            self._rest(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Judge a loader that is looked up by its name."""
        if not self._value(node):
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Judge a call by what its function may stand for."""
        self._environment(node)
        names = self._names.of(node.func, self.scope)
        known = self._known(node.func)
        if not self._is_copy(node):
            self._called(node, node.func, node.args)
        if all(name.startswith(PARTIAL) for name in known):
            self._rest(node.func)
        self._value(node)
        self._setattr(node, names)
        rest = [*node.args, *(keyword.value for keyword in node.keywords)]
        if names & PARTIALS and node.args and self._known(node.args[0]):
            self._called(node, rest.pop(0), node.args[1:])
        self._patch(node, names)
        if names & _LOOKS or any(name.partition(".")[0] in _LOOKS_IN for name in names):
            put = put_by(node, names)
            rest = [
                each
                for each in rest
                if each in put or not isinstance(each, ast.Name | ast.Attribute)
            ]
        self.each(rest)

    def _called(self, node: ast.Call, function: ast.expr, places: list[ast.expr]) -> None:
        self._mark(function)
        for name, loader in sorted(self._known(function).items()):
            shown, bound = name.removeprefix(PARTIAL), name.startswith(PARTIAL)
            self._add(node, judge(loader, shown, Arguments(places, node.keywords), bound=bound))

    def _is_copy(self, node: ast.Call) -> bool:
        """Tell whether a call is `loads(dumps(x))`: no byte of it comes from elsewhere."""
        if not (node.args and isinstance(node.args[0], ast.Call)):
            return False
        known = self._known(node.func)
        dumped = self._names.of(node.args[0].func, self.scope)
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
                self._add(node, handed_on(loader, name))
        return bool(known)

    def _rest(self, node: ast.expr) -> None:
        """Visit what an attribute is read from, unless that is a loader itself."""
        if isinstance(node, ast.Attribute):
            inner = node.value
            if not (isinstance(inner, ast.Name | ast.Attribute) and self._known(inner)):
                self.visit(inner)
        elif not isinstance(node, ast.Name):
            self.visit(node)

    def _assign(self, targets: list[ast.expr], value: ast.expr) -> None:
        alias = self._is_alias(value)
        for target in targets:
            if isinstance(target, ast.Attribute | ast.Subscript):
                for name in sorted(self._names.of(target, self.scope)):
                    self._replaced(target, name)
            if not isinstance(target, ast.Name):
                self.visit(target)
            elif alias:
                owner = self.scope.owner(target.id)
                # In a function a name is followed to its end. One of a module or a class that
                # nobody uses here is there for others.
                if owner is not None and owner.kind != "function":
                    self._alias(value, owner, target.id)
        if alias and all(isinstance(target, ast.Name) for target in targets):
            self._mark(value)
        else:
            self.visit(value)

    def _alias(self, value: ast.expr, scope: Scope, name: str) -> None:
        for each, loader in sorted(self._known(value).items()):
            judged = handed_on(loader, each)
            if judged is not None:
                self._aliases[scope, name] = (value, judged)

    def _is_alias(self, value: ast.expr) -> bool:
        known = self._known(value) if isinstance(value, _NAMES) else {}
        return bool(known) and not any(name.startswith(PARTIAL) for name in known)

    def _setattr(self, node: ast.Call, names: frozenset[str]) -> None:
        if "builtins.setattr" in names and len(node.args) > 1:
            attr = self._names.text(node.args[1], self.scope)
            for name in sorted(self._names.of(node.args[0], self.scope)):
                self._replaced(node, f"{name}.{attr}")

    def _patch(self, node: ast.Call, names: frozenset[str]) -> None:
        for name in unseen(node, names, self._names, self.scope):
            if loader_of(name) is Loader.TORCH:
                what = f"{name} is patched with what cannot be seen in this file."
                self._add(node, Judged("SL11", what))

    def _replaced(self, node: ast.AST, name: str) -> None:
        if loader_of(name) is Loader.TORCH:
            self._add(node, Judged("SL11", f"{name} is another function for the whole process."))

    def _try(self, node: ast.Try | ast.TryStar) -> None:
        self.each(node.body)
        before = self._falling_back
        calls = (each for line in node.body for each in ast.walk(line))
        self._falling_back = before or any(
            isinstance(call, ast.Call)
            and not _RESTRICTED.isdisjoint(self._known(call.func).values())
            for call in calls
        )
        self.each(node.handlers)
        self._falling_back = before
        self.each([*node.orelse, *node.finalbody])

    def _known(self, node: ast.expr) -> dict[str, Loader]:
        found = {}
        for name in self._names.of(node, self.scope):
            loader = loader_of(name.removeprefix(PARTIAL))
            if loader is not None:
                found[name] = loader
        return found

    def _mark(self, node: ast.expr) -> None:
        if isinstance(node, ast.Name):
            self._used.add((self.scope.owner(node.id), node.id))

    def _environment(self, node: ast.AST) -> None:
        if set_by(node, lambda value: self._names.text(value, self.scope)):
            self._add(node, Judged("SL06", WHAT))

    def _add(self, node: ast.AST, judged: Judged | None) -> None:
        if judged is None:
            return
        if self._falling_back and judged.id in _OPENS_UP:
            shown = judged.what.partition(" ")[0]
            what = f"{shown} without restriction, where a load before it has failed."
            judged = Judged("SL04", what)
        self._found.setdefault((node, judged.id), judged.what)
