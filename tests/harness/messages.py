"""Every refusal of the package, as a person reads it: `python -m tests.harness.messages` writes it.

`tests/messages.txt` has one line for each place in the source that makes an error of the tree:
what happened and what to do, with `{thread}` for what is known when it happens. Constants are
filled in, and so is what a function is called with if it makes the error of that.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from safepoint.explain import EXPLANATIONS
from tests.harness.blocks import ROOT

SNAPSHOT: Final = ROOT / "tests" / "messages.txt"
SOURCE: Final = ROOT / "src" / "safepoint"
HEAD: Final = "Every refusal, by module and error. Written by `make fix`; read what changed.\n"
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Message(NamedTuple):
    """What one place says: file and lines, the error, what happened, and what to do."""

    module: str
    lines: range
    error: str
    what: str
    do: str

    def __str__(self) -> str:
        return f"{self.what} {self.do}"


class Made(NamedTuple):
    """An error that a call makes: its class, and what it is made of."""

    error: str
    said: tuple[ast.expr | None, ast.expr | None]
    known: Mapping[str, ast.expr]


@dataclass
class Module:
    """A module: its texts, the functions that make an error of what they get, and its imports."""

    name: str
    tree: ast.Module
    texts: dict[str, ast.expr] = field(default_factory=dict)
    makers: dict[str, tuple[_Function, Made]] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)


def messages(source: Path = SOURCE) -> list[Message]:
    """Read them from the source; one that passes on what another said is none of its own."""
    modules = {module.name: module for module in map(_read, sorted(source.rglob("*.py")))}
    for _ in range(3):  # a maker may be called by another
        found = [said for module in modules.values() for said in _in_module(module, modules)]
    prose = {said for said in found if re.search("[a-z]{3}", re.sub(r"\{[^{}]*\}", "", str(said)))}
    return sorted(prose, key=lambda said: (said.module, said.error, str(said)))


def _read(file: Path) -> Module:
    name = ".".join(file.relative_to(ROOT / "src").with_suffix("").parts)
    module = Module(name.removesuffix(".__init__"), ast.parse(file.read_text(encoding="utf-8")))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            for each in node.names:
                module.imported[each.asname or each.name] = node.module or "", each.name
    for statement in module.tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if isinstance(statement.value, ast.Constant | ast.JoinedStr | ast.BinOp):
                module.texts |= {t.id: statement.value for t in targets if isinstance(t, ast.Name)}
    return module


def _in_module(module: Module, modules: Mapping[str, Module]) -> Iterator[Message]:
    for function, call in _calls(module.tree, None):
        made = _made(call, module, modules)
        if made is None:
            continue
        names = {each.arg for each in _arguments(function)} if function else set()
        if function and any(isinstance(e, ast.Name) and e.id in names for e in made.said):
            module.makers[function.name] = function, made  # its callers say it
            continue
        what, do = (_text(each, made.known, module, modules) for each in made.said)
        lines = range(call.lineno, (call.end_lineno or call.lineno) + 1)
        yield Message(module.name, lines, made.error, what, do)


def _calls(
    node: ast.AST, function: _Function | None
) -> Iterator[tuple[_Function | None, ast.Call]]:
    """Yield each call with the function that it stands in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield function, child
        yield from _calls(child, child if isinstance(child, _Function) else function)


def _made(call: ast.Call, module: Module, modules: Mapping[str, Module]) -> Made | None:
    name: str = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name in EXPLANATIONS:
        given = {each.arg: each.value for each in call.keywords if each.arg}
        args = [*call.args, given.get("what"), given.get("do")]
        if isinstance(args[0], ast.Starred):
            pairs = (each.elts for each in ast.walk(args[0]) if isinstance(each, ast.Tuple))
            args = [*next(pairs, [None])]
        return Made(name, (args[0], args[1]), {}) if args[0] is not None else None
    home = module.imported.get(name, (module.name, name))
    maker = modules[home[0]].makers.get(home[1]) if home[0] in modules else None
    if maker is None:
        return None
    function, made = maker
    names = [each.arg for each in _arguments(function)]
    is_method = isinstance(call.func, ast.Attribute) and names[:1] in (["self"], ["cls"])
    bound = dict(zip(names[is_method:], call.args, strict=False))
    bound |= {each.arg: each.value for each in call.keywords if each.arg}
    said = (_bound(made.said[0], bound), _bound(made.said[1], bound))
    return Made(made.error, said, {**made.known, **bound})


def _bound(expr: ast.expr | None, known: Mapping[str, ast.expr]) -> ast.expr | None:
    return known.get(expr.id, expr) if isinstance(expr, ast.Name) else expr


def _arguments(function: _Function) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _text(
    expr: ast.expr | None,
    known: Mapping[str, ast.expr],
    module: Module,
    modules: Mapping[str, Module],
) -> str:
    """Write an expression as a template."""

    def write(node: ast.expr | None, depth: int = 0) -> str:
        match node:
            case None:
                return ""
            case ast.Constant(value=value):
                return str(value)
            case ast.JoinedStr(values=values):
                return "".join(write(each, depth) for each in values)
            case ast.FormattedValue(value=value):
                return write(value, depth)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return write(left, depth) + write(right, depth)
            case ast.IfExp(body=body, orelse=orelse):
                return f"({write(body, depth)} | {write(orelse, depth)})"
            case ast.Name(id=name):
                home, there = module.imported.get(name, (module.name, name))
                constant = modules[home].texts.get(there) if home in modules else None
                value = known.get(name, constant)
                return write(value, depth + 1) if value and depth < 4 else f"{{{name}}}"
            case ast.Attribute(attr=name):
                return f"{{{name}}}"
            case ast.Call(func=ast.Attribute(value=value), args=[ast.Constant()]):
                return write(value, depth)
            case ast.Call(args=[value]) if not isinstance(value, ast.GeneratorExp):
                return write(value, depth)
            case _:
                return f"{{{ast.unparse(node)[:40]}}}"

    return write(expr)


def snapshot(found: list[Message]) -> str:
    """Write them down, grouped, and then those that several places say."""
    lines, places = [HEAD], defaultdict(set)
    for module in dict.fromkeys(said.module for said in found):
        here = [said for said in found if said.module == module]
        for error in dict.fromkeys(said.error for said in here):
            lines.append(f"\n{module}: {error}\n")
            texts = sorted({str(said) for said in here if said.error == error})
            lines += [f"  {text}\n" for text in texts]
            for text in texts:
                places[text].add(f"{module}: {error}")
    twice = {text: where for text, where in places.items() if len(where) > 1}
    lines.append(f"\nSaid in more than one module, or by more than one error: {len(twice)}\n")
    lines += [f"  {text}\n    {', '.join(sorted(where))}\n" for text, where in twice.items()]
    return "".join(lines)


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot(messages()), encoding="utf-8")
