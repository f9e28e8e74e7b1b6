"""Walking: each node of a file in the scope that it belongs to. Annotations are left out."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from safepoint.lint.scopes import (
    Comprehension,
    Function,
    Scope,
    class_scope,
    comprehension_scope,
    function_scope,
)


class Walker(ast.NodeVisitor):
    """Visits nodes, and knows the scope of the one that it is at.

    Attributes:
        scope: where it is.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def each(self, nodes: Iterable[ast.AST]) -> None:
        """Visit one after another."""
        for node in nodes:
            self.visit(node)

    def inside(self, scope: Scope, nodes: Iterable[ast.AST]) -> None:
        """Visit nodes in a scope of their own."""
        before, self.scope = self.scope, scope
        self.each(nodes)
        self.scope = before

    def default(self, node: ast.expr, parameter: str, inner: Scope) -> None:
        """Visit the default of a parameter. It belongs to the scope around the function.

        Args:
            node: the default.
            parameter: the name that stands for it in the function.
            inner: the scope of the function.
        """
        del parameter, inner
        self.visit(node)

    def base(self, node: ast.expr, derived: ast.ClassDef) -> None:
        """Visit what a class is derived from."""
        del derived
        self.visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Visit a sum, however long: a thousand terms nest a thousand deep."""
        left: ast.expr = node
        while isinstance(left, ast.BinOp):
            self.visit(left.right)
            left = left.left
        self.visit(left)

    def visit_If(self, node: ast.If) -> None:
        """Visit an if, however often it goes on with elif."""
        rest: list[ast.stmt] = [node]
        while len(rest) == 1 and isinstance(rest[0], ast.If):
            inner = rest[0]
            self.each([inner.test, *inner.body])
            rest = inner.orelse
        self.each(rest)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Visit a function."""
        self.each(node.decorator_list)
        self._function(node, node.body)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        """Visit it as any other function."""
        self.each(node.decorator_list)
        self._function(node, node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """Visit it as any other function."""
        self._function(node, [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Visit a class."""
        self.each(node.decorator_list)
        for base in [*node.bases, *(keyword.value for keyword in node.keywords)]:
            self.base(base, node)
        self.inside(class_scope(node, self.scope), node.body)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        """Visit a comprehension."""
        self._comprehension(node)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        """Visit it as any other comprehension."""
        self._comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        """Visit it as any other comprehension."""
        self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        """Visit it as any other comprehension."""
        self._comprehension(node)

    def _function(self, node: Function, body: Iterable[ast.AST]) -> None:
        inner = function_scope(node, self.scope)
        arguments = node.args
        by_place = [*arguments.posonlyargs, *arguments.args]
        last = by_place[len(by_place) - len(arguments.defaults) :]
        pairs = [
            *zip(last, arguments.defaults, strict=True),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ]
        for parameter, default in pairs:
            if default is not None:
                self.default(default, parameter.arg, inner)
        self.inside(inner, body)

    def _comprehension(self, node: Comprehension) -> None:
        self.inside(comprehension_scope(node, self.scope), ast.iter_child_nodes(node))
