"""What code takes from anybody: an unsigned answer that decides, and a client's thread id."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

Found = tuple[ast.AST, str, str]
Function = ast.FunctionDef | ast.AsyncFunctionDef

_ROUTES: Final = ("get", "post", "put", "patch", "delete", "route", "api_route", "websocket")


def answers_in(function: Function, asks: Callable[[ast.AST], bool]) -> Iterator[Found]:
    """Find where the answer of an interrupt decides whether something is called."""
    nodes = [*ast.walk(function)]
    answers = {
        ast.unparse(target)
        for node in nodes
        if isinstance(node, ast.Assign) and asks(node.value)
        for target in node.targets
    }
    for node in nodes:
        if isinstance(node, ast.If | ast.IfExp):
            body = node.body if isinstance(node.body, list) else [node.body]
            tested = (each for each in ast.walk(node.test) if isinstance(each, ast.Name | ast.Call))
            said = any(asks(each) or getattr(each, "id", "") in answers for each in tested)
            if said and any(isinstance(e, ast.Call) for each in body for e in ast.walk(each)):
                yield node.test, "SL14", "The answer of interrupt decides a call: nobody signed it."


def threads_in(function: Function) -> Iterator[Found]:
    """Find a thread id that a handler of requests takes as it is, and looks at nowhere else."""
    routes = [each.func for each in function.decorator_list if isinstance(each, ast.Call)]
    if not any(isinstance(each, ast.Attribute) and each.attr in _ROUTES for each in routes):
        return
    its = function.args
    given = {each.arg for each in (*its.posonlyargs, *its.args, *its.kwonlyargs)}
    nodes = [each for line in function.body for each in ast.walk(line)]
    its_own = (each for each in nodes if isinstance(each, ast.expr) and _root(each) in given)
    uses = Counter(map(ast.unparse, its_own))
    for node in (each for each in nodes if isinstance(each, ast.Dict)):
        for key, value in zip(node.keys, node.values, strict=True):
            named = isinstance(key, ast.Constant) and key.value == "thread_id"
            if named and _root(value) in given and uses[shown := ast.unparse(value)] == 1:
                yield value, "SL15", f"{shown} comes from the request and selects the thread."


def _root(node: ast.expr, left: int = 16) -> str:
    """Return the parameter that a value is read from, in so many steps: `body.thread_id` has one.

    To spell each of many steps takes as long as their square.
    """
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value) | ast.Subscript(value=value) | ast.Await(value=value):
            return _root(value, left - 1) if left else ""
        case ast.Call(func=ast.Attribute(attr="get" | "json", value=value)):
            return _root(value, left - 1) if left else ""
    return ""
