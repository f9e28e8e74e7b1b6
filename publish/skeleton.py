"""The skeleton of a rule: which files it makes, and what it adds to those that are there."""

from __future__ import annotations

import ast
import builtins
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Final

import yaml

RULES: Final = "src/safepoint/rules.toml"
CATALOGUE: Final = "src/safepoint/attacks/catalogue.py"
CHECKS: Final = "src/safepoint/audit/__init__.py"
REFERENCE: Final = "docs/reference/audit.md"
EXAMPLES: Final = "docs/examples.md"
NAVIGATION: Final = "mkdocs.yml"

_TEMPLATES: Final = Path(__file__).with_name("templates")
_SECTION: Final = re.compile(r"^ +- [^:]+:$")
_ENTRY: Final = re.compile(r"^(?P<indent> +)- [^:]+: (?P<page>security/\S+\.md)$")
_EXAMPLE: Final = re.compile(r"^\| \[`[^`]+`\]\(examples/\S+\) \|.*\[SP\d\d\]\(security/\S+\) \|$")
_EXPORTED: Final = re.compile(r'^    "check_\w+",$')
_MEMBER: Final = re.compile(r"^(?P<indent> +)- check_\w+$")


class Unfit(ValueError):
    """The project is not as it has to be, or the rule is not: what, and what to do."""


def class_name(page: str) -> str:
    """Return the name of the class of a page's attack."""
    return "".join(part.capitalize() for part in page.split("-"))


@dataclass(frozen=True)
class NewRule:
    """What is known about a rule before it is written."""

    id: str
    title: str
    severity: str
    theme: str
    page: str

    @property
    def module(self) -> str:
        """The name of its modules, its snippet and its tests."""
        return self.page.replace("-", "_")

    @property
    def name(self) -> str:
        """The name of its attack's class."""
        return class_name(self.page)

    @property
    def label(self) -> str:
        """What the navigation calls its page. In quotes if YAML reads it as no text, as No."""
        label = self.page.replace("-", " ").capitalize()
        return label if yaml.safe_load(label) == label else f'"{label}"'


@dataclass(frozen=True)
class Skeleton:
    """What to write: new files, and files as they are and as they become, by their paths."""

    made: dict[str, str]
    changed: dict[str, tuple[str, str]]


def rules_of(root: Path) -> list[dict[str, Any]]:
    """Return the rules of a project, as they are written down.

    Raises:
        Unfit: they cannot be read.
    """
    try:
        rules: list[dict[str, Any]] = tomllib.loads(_read(root, RULES))["rule"]
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise Unfit(f"{RULES} cannot be read ({error}). Mend it first.") from None
    return rules


def taken_names(root: Path) -> set[str]:
    """Return what means something else where an attack's class is written or listed.

    Raises:
        Unfit: the list of attacks cannot be read.
    """
    written = (_TEMPLATES / "attack.py.txt").read_text(encoding="utf-8").replace("$", "")
    nodes = [
        node for text in (written, _read(root, CATALOGUE)) for node in ast.walk(ast.parse(text))
    ]
    imported = {node.asname or node.name for node in nodes if isinstance(node, ast.alias)}
    return imported | {node.id for node in nodes if isinstance(node, ast.Name)} | set(dir(builtins))


def skeleton(root: Path, rule: NewRule) -> Skeleton:
    """Return what makes a rule, without writing anything.

    Raises:
        Unfit: a file of the project has no place for it.
    """
    module = rule.module
    made = {
        f"docs/security/{rule.page}.md": "page.md.txt",
        f"src/safepoint/attacks/{module}.py": "attack.py.txt",
        f"snippets/{module}.py": "snippet.py.txt",
        f"tests/attacks/test_{module}.py": "test.py.txt",
        f"src/safepoint/audit/{module}.py": "check.py.txt",
    }
    added: dict[str, Callable[[str], str]] = {
        RULES: lambda text: text.rstrip("\n") + "\n" + _filled("rule.toml.txt", rule),
        CATALOGUE: lambda text: _in_catalogue(text, rule),
        CHECKS: lambda text: _in_checks(text, rule),
        REFERENCE: lambda text: _after_last(
            text, _MEMBER, f"{{indent}}- check_{module}", REFERENCE
        ),
        EXAMPLES: lambda text: _after_last(text, _EXAMPLE, _example(rule), EXAMPLES),
        NAVIGATION: lambda text: _in_navigation(text, rule, _pages(root, rule.theme)),
    }
    old = {path: _read(root, path) for path in added}
    return Skeleton(
        {path: _filled(template, rule) for path, template in made.items()},
        {path: (old[path], add(old[path])) for path, add in added.items()},
    )


def _read(root: Path, path: str) -> str:
    try:
        return (root / path).read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise Unfit(f"{path} cannot be read ({error}). Mend it first.") from None


def _filled(template: str, rule: NewRule) -> str:
    text = (_TEMPLATES / template).read_text(encoding="utf-8")
    return Template(text).substitute(
        id=rule.id,
        title=rule.title,
        severity=rule.severity,
        theme=rule.theme,
        page=rule.page,
        module=rule.module,
        name=rule.name,
    )


def _pages(root: Path, theme: str) -> set[str]:
    return {rule["page"] for rule in rules_of(root) if rule["theme"] == theme and "page" in rule}


def _example(rule: NewRule) -> str:
    what = f"TODO({rule.id}): what it gives you"
    file = f"{rule.module}.py"
    page = f"security/{rule.page}.md#what-to-write"
    return f"| [`{file}`](examples/{file}) | {what} | [{rule.id}]({page}) |"


def _after_last(text: str, pattern: re.Pattern[str], added: str, path: str) -> str:
    """Put a line after the last that looks like it."""
    lines = text.split("\n")
    places = [index for index, line in enumerate(lines) if pattern.match(line)]
    if not places:
        raise Unfit(f"{path} has no list for this any more. Teach publish/skeleton.py the new one.")
    found = pattern.match(lines[places[-1]])
    indent = found.groupdict().get("indent", "") if found else ""
    lines.insert(places[-1] + 1, added.replace("{indent}", indent))
    return "\n".join(lines)


def _in_navigation(text: str, rule: NewRule, neighbours: set[str]) -> str:
    """Put the page after the last of its theme, in the section that has most of them."""
    lines = text.split("\n")
    sections: dict[int, list[int]] = {}
    section = 0
    for index, line in enumerate(lines):
        entry = _ENTRY.match(line)
        if _SECTION.match(line):
            section = index
        elif entry and entry["page"] in neighbours:
            sections.setdefault(section, []).append(index)
    if not sections:
        raise Unfit(f"{NAVIGATION} lists no page of {rule.theme}. Teach publish/skeleton.py where.")
    last = max(sections.values(), key=len)[-1]
    indent = lines[last][: len(lines[last]) - len(lines[last].lstrip())]
    lines.insert(last + 1, f"{indent}- {rule.label}: security/{rule.page}.md")
    return "\n".join(lines)


def _in_catalogue(text: str, rule: NewRule) -> str:
    """Import the attack, and list it after the others."""
    module = f"safepoint.attacks.{rule.module}"
    places = [
        node.value.elts[-1].end_lineno
        for node in ast.parse(text).body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id == "_ALL"
        and isinstance(node.value, ast.Tuple)
    ]
    if not places or places[0] is None:
        raise Unfit(f"{CATALOGUE} has no list _ALL. Teach publish/skeleton.py the new one.")
    lines = text.split("\n")
    lines.insert(places[0], f"    {rule.name},")
    return _with_import("\n".join(lines), module, rule.name, CATALOGUE)


def _in_checks(text: str, rule: NewRule) -> str:
    """Import the check, and export it."""
    check = f"check_{rule.module}"
    lines = text.split("\n")
    exported = {line[5:-2]: index for index, line in enumerate(lines) if _EXPORTED.match(line)}
    if not exported:
        raise Unfit(f"{CHECKS} exports no checks. Teach publish/skeleton.py the new place.")
    after = (index for name, index in exported.items() if name > check)
    lines.insert(next(after, max(exported.values()) + 1), f'    "{check}",')
    return _with_import("\n".join(lines), f"safepoint.audit.{rule.module}", check, CHECKS)


def _with_import(text: str, module: str, name: str, path: str) -> str:
    """Import a name where the order of imports has its place."""
    package = module.rpartition(".")[0]
    others = list(_imports(ast.parse(text), package))
    if not others:
        raise Unfit(f"{path} imports nothing from {package}. Teach publish/skeleton.py why.")
    line = next((first - 1 for other, first, _ in others if other > module), others[-1][2])
    lines = text.split("\n")
    lines.insert(line, f"from {module} import {name}")
    return "\n".join(lines)


def _imports(tree: ast.Module, package: str) -> Iterator[tuple[str, int, int]]:
    """Yield each module of a package that is imported, with its first and its last line."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}."):
            yield node.module or "", node.lineno, node.end_lineno or node.lineno
