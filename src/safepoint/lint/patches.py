"""Patches: what `mock.patch` and `monkeypatch.setattr` put in the place of something.

A test that gives torch.load a stand-in is as it should be, so a patch is told only if the file does
not show what it puts there. What a stand-in loads is told where it does.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from safepoint.lint.names import Names
from safepoint.lint.scopes import HERE, Scope

Kind = Literal["patch", "object", "multiple", "setattr"]

_MOCKS: Final = frozenset({"mock", "unittest"})
_CALLED: Final = frozenset({"new", "side_effect", "new_callable", "wraps"})
_DEEPEST: Final = 16
# These run text, or look up what a text says.
_RUN: Final = frozenset({"eval", "exec", "compile", "getattr", "__import__"})
_PLAIN: Final = frozenset(f"builtins.{name}" for name in {*dir(builtins)} - _RUN)


class Patch(NamedTuple):
    """One thing that a call replaces.

    Attributes:
        name: its full name.
        by: what may be called in its place.
        opaque: whether there may be more than one can see.
    """

    name: str
    by: list[ast.expr]
    opaque: bool


def kind_of(function: ast.expr, names: frozenset[str]) -> Kind | None:
    """Say how a function patches, or None if it does not.

    Args:
        function: what is called.
        names: the full names that it may stand for.
    """
    match function:
        case ast.Attribute(attr="setattr"):
            return "setattr"
        case ast.Attribute(attr="patch"):
            return "patch"
        case ast.Attribute(value=ast.Attribute(attr="patch"), attr=("object" | "multiple") as how):
            return "object" if how == "object" else "multiple"
    for name in names:
        if name.endswith(".patch"):
            return "patch"
        if name.endswith(".patch.object"):
            return "object"
        if name.endswith(".patch.multiple"):
            return "multiple"
    return None


def patches(call: ast.Call, kind: Kind, names: Names, scope: Scope) -> Iterator[Patch]:
    """Yield what a call replaces, and by what."""
    named = {each.arg: each.value for each in call.keywords if each.arg is not None}
    places = call.args
    opaque = len(named) < len(call.keywords) or any(isinstance(x, ast.Starred) for x in places)
    target = places[0] if places else named.get("target")
    text = names.text(target, scope)
    bases = names.of(target, scope) if text is None else {text}
    by = [value for key, value in named.items() if key in _CALLED]
    if kind == "multiple":
        for key, value in named.items():
            yield from (Patch(f"{base}.{key}", [value], False) for base in sorted(bases))
        return
    if kind == "patch" or (kind == "setattr" and text is not None):
        by += places[1:2]
        by += [named[key] for key in ("name", "value") if kind == "setattr" and key in named]
        yield from (Patch(base, by, opaque) for base in sorted(bases))
        return
    asked = places[1] if len(places) > 1 else named.get("attribute", named.get("name"))
    attribute = names.text(asked, scope)
    by += places[2:3]
    by += [named[key] for key in ("value",) if kind == "setattr" and key in named]
    yield from (Patch(f"{base}.{attribute}", by, opaque) for base in sorted(bases))


def is_shown(node: ast.expr, names: Names, scope: Scope, depth: int = 0) -> bool:
    """Tell whether the file shows what an expression does when it is called."""
    if depth > _DEEPEST:
        return False
    match node:
        case ast.Constant() | ast.Lambda():
            return True
        case ast.List(elts=inner) | ast.Tuple(elts=inner):
            return all(is_shown(each, names, scope, depth + 1) for each in inner)
        case ast.Call(func=function):
            return _makes_shown(node, names.of(function, scope), names, scope, depth)
        case ast.Name(id=name):
            owner = scope.owner(name)
            bound = owner.bindings.get(name, []) if owner is not None else []
            if bound:
                return all(
                    each.startswith(HERE)
                    if isinstance(each, str)
                    else each is not None and is_shown(each[0], names, each[1], depth + 1)
                    for each in bound
                )
    found = names.of(node, scope)
    return bool(found) and found <= _PLAIN


def _makes_shown(
    call: ast.Call, functions: frozenset[str], names: Names, scope: Scope, depth: int
) -> bool:
    if functions and all(each.startswith(HERE) or each in _PLAIN for each in functions):
        return True
    if not functions or any(each.partition(".")[0] not in _MOCKS for each in functions):
        return False
    called = [*call.args[1:], *(key.value for key in call.keywords if key.arg in _CALLED)]
    if any(key.arg is None for key in call.keywords):
        return False
    return all(is_shown(each, names, scope, depth + 1) for each in called)
