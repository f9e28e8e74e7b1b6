"""What code keeps that nothing seals, and what it takes from anybody: savers, answers, threads.

A false alarm is worse than a miss: a name counts if this file imports it from where it is defined.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

Found = tuple[ast.AST, str, str]

_SAVER: Final = re.compile(
    r"langgraph\.checkpoint\.(memory|sqlite|postgres)(\.\w+)?\.(Async)?"
    r"(InMemory|Memory|Sqlite|Postgres|ShallowPostgres)Saver(\.from_conn_string)?"
    r"|agent_framework(\.\w+)*\.(File|InMemory)CheckpointStorage"
)
_SERDE: Final = re.compile(r"langgraph\.checkpoint\.serde\.jsonplus\.JsonPlusSerializer")
_ASKS: Final = re.compile(r"langgraph\.types\.interrupt")
_ROUTES: Final = ("get", "post", "put", "patch", "delete", "route", "api_route", "websocket")
_DOTTED: Final = (ast.Name, ast.Attribute, ast.expr_context)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def savers_in(tree: ast.Module) -> Iterator[Found]:
    """Yield each such place: its node, an id and a sentence."""
    names = _imported(tree)
    nodes = [*ast.walk(tree)]
    for call in (each for each in nodes if isinstance(each, ast.Call)):
        name = _full(call.func, names)
        pickles = (each for each in call.keywords if each.arg == "pickle_fallback")
        if _SAVER.fullmatch(name):
            yield call, "SL12", f"{ast.unparse(call.func)} keeps state that nothing seals."
        elif _SERDE.fullmatch(name) and any(_is_on(each.value) for each in pickles):
            yield call, "SL13", "A row of this saver may choose pickle, and then runs what it says."
    # Where a store has tenants, a thread belongs to whoever the request is from.
    scoped = any(isinstance(each, ast.keyword) and each.arg == "tenant" for each in nodes)
    for function in (each for each in nodes if isinstance(each, Function)):
        yield from _answers(function, names)
        yield from () if scoped else _threads(function)


def _imported(tree: ast.Module) -> dict[str, str]:
    """Return what each name stands for that an import of the file binds."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {each.asname or each.name: each.name for each in node.names}
    return found


def _full(node: ast.expr, names: dict[str, str]) -> str:
    """Return the full name of what is called, "" if no import of the file says it."""
    if not all(isinstance(each, _DOTTED) for each in ast.walk(node)):
        return ""
    whole = known = ast.unparse(node)
    while known and known not in names:
        known = known.rpartition(".")[0]
    return names[known] + whole[len(known) :] if known else ""


def _is_on(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is True


def _answers(function: Function, names: dict[str, str]) -> Iterator[Found]:
    """Find where the answer of an interrupt decides whether something is called."""

    def asks(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and bool(_ASKS.fullmatch(_full(node.func, names)))

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
            said = any(asks(e) or ast.unparse(e) in answers for e in _expressions(node.test))
            if said and any(isinstance(e, ast.Call) for each in body for e in ast.walk(each)):
                yield node.test, "SL14", "The answer of interrupt decides a call: nobody signed it."


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Name | ast.Call))


def _threads(function: Function) -> Iterator[Found]:
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
                yield value, "SL15", f"{shown} comes from a client, and says which thread it is."


def _root(node: ast.expr) -> str:
    """Return the parameter that a value is read from, as `body` in `body.thread_id`."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value) | ast.Subscript(value=value) | ast.Await(value=value):
            return _root(value)
        case ast.Call(func=ast.Attribute(attr="get" | "json", value=value)):
            return _root(value)
    return ""
