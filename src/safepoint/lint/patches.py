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

_Kind = Literal["patch", "object", "multiple", "setattr"]

_MOCKS: Final = frozenset({"mock", "unittest"})
_CALLED: Final = frozenset({"new", "side_effect", "new_callable", "wraps"})
_DEEPEST: Final = 16
# These run text, or look up what a text says.
_RUN: Final = frozenset({"eval", "exec", "compile", "getattr", "__import__"})
_PLAIN: Final = frozenset(f"builtins.{name}" for name in {*dir(builtins)} - _RUN)


def put_by(call: ast.Call, functions: frozenset[str]) -> list[ast.expr]:
    """Return what a call puts in the place of something, if it is a patch."""
    if _kind_of(call.func, functions) is None:
        return []
    named = [each.value for each in call.keywords if each.arg in _CALLED - {"wraps"}]
    return [*call.args[1:], *named]


def unseen(call: ast.Call, functions: frozenset[str], names: Names, scope: Scope) -> Iterator[str]:
    """Yield the full names of what a call patches, if the file does not show with what.

    Args:
        call: any call.
        functions: the full names that its function may stand for.
        names: of the file.
        scope: where the call stands.
    """
    kind = _kind_of(call.func, functions)
    if kind is None:
        return
    for name, by, opaque in _patches(call, kind, names, scope):
        # One that wraps the very function is a spy.
        others = [each for each in by if names.of(each, scope) != {name}]
        if opaque or not all(_is_shown(each, names, scope) for each in others):
            yield name


class _Patch(NamedTuple):
    name: str
    by: list[ast.expr]
    opaque: bool


def _kind_of(function: ast.expr, names: frozenset[str]) -> _Kind | None:
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


def _patches(call: ast.Call, kind: _Kind, names: Names, scope: Scope) -> Iterator[_Patch]:
    named = {each.arg: each.value for each in call.keywords if each.arg is not None}
    places = call.args
    opaque = len(named) < len(call.keywords) or any(isinstance(x, ast.Starred) for x in places)
    target = places[0] if places else named.get("target")
    text = names.text(target, scope)
    bases = names.of(target, scope) if text is None else {text}
    called = _CALLED | {"value"} if kind == "setattr" else _CALLED
    by = [value for key, value in named.items() if key in called]
    if kind == "multiple":
        for key, value in named.items():
            yield from (_Patch(f"{base}.{key}", [value], False) for base in sorted(bases))
        return
    if kind == "patch" or (kind == "setattr" and text is not None):
        by += places[1:2]
        by += [named["name"]] if kind == "setattr" and "name" in named else []
        yield from (_Patch(base, by, opaque) for base in sorted(bases))
        return
    asked = places[1] if len(places) > 1 else named.get("attribute", named.get("name"))
    attribute = names.text(asked, scope)
    by += places[2:3]
    yield from (_Patch(f"{base}.{attribute}", by, opaque) for base in sorted(bases))


def _is_shown(node: ast.expr, names: Names, scope: Scope, depth: int = 0) -> bool:
    """Tell whether the file shows what an expression does when it is called."""
    if depth > _DEEPEST:
        return False
    match node:
        case ast.Constant() | ast.Lambda() | ast.List() | ast.Tuple() | ast.Dict():
            return True  # what is in a list is returned, one after another, and not called
        case ast.Call(func=function):
            return _makes_shown(node, names.of(function, scope), names, scope, depth)
        case ast.Name(id=name):
            owner = scope.owner(name)
            bound = owner.bindings.get(name, []) if owner is not None else []
            if bound:
                return all(
                    each.startswith(HERE)
                    if isinstance(each, str)
                    else each is not None and _is_shown(each[0], names, each[1], depth + 1)
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
    return all(_is_shown(each, names, scope, depth + 1) for each in called)
