"""What code takes from anybody: an unsigned answer that decides, and a client's thread id."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Final

from safepoint.models.lint.names import Names

Found = tuple[ast.expr, str, str]  # where, the id, and what stands there, as a sentence
Function = ast.FunctionDef | ast.AsyncFunctionDef

_ROUTES: Final = ("get", "post", "put", "patch", "delete", "route", "api_route", "websocket")


def answers_in(function: Function, names: Names) -> Iterator[Found]:
    """Find where the answer of an interrupt decides whether something is called."""
    nodes = [*ast.walk(function)]
    calls = (each for each in nodes if isinstance(each, ast.Call))
    asking = {each for each in calls if names.known(each.func, "question")}
    kept = (each for each in nodes if isinstance(each, ast.Assign) and each.value in asking)
    answers = {getattr(target, "id", None) for each in kept for target in each.targets} - {None}
    for node in nodes:
        if isinstance(node, ast.If | ast.IfExp):
            test = ast.walk(node.test)
            body = node.body if isinstance(node.body, list) else [node.body]
            is_answer = any(each in asking or getattr(each, "id", "") in answers for each in test)
            if is_answer and any(isinstance(e, ast.Call) for each in body for e in ast.walk(each)):
                yield node.test, "SL14", "The answer of interrupt decides a call: nobody signed it."


def threads_in(function: Function) -> Iterator[Found]:
    """Find a thread id that a handler of requests takes as it is, and looks at nowhere else."""
    routes = [each.func for each in function.decorator_list if isinstance(each, ast.Call)]
    if not any(isinstance(each, ast.Attribute) and each.attr in _ROUTES for each in routes):
        return
    given = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
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
        case (
            ast.Attribute(value=value)
            | ast.Subscript(value=value)
            | ast.Await(value=value)
            | ast.Call(func=ast.Attribute(attr="get" | "json", value=value))
        ):
            return _root(value, left - 1) if left else ""
    return ""
