"""What the site knows, as JSON: rules, attacks, examples, errors, checks, evidence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from publish import advisories, attacks
from publish.machine import examples
from publish.project import Project
from safepoint.audit.catalogue import CHECKS
from safepoint.shared.explanations import EXPLANATIONS
from tests.harness.evidence import RESULTS

FORMAT: Final = 1
"""Grows when a field is taken away or changes its meaning, and not when one is added."""


def documents(
    project: Project, counts: Mapping[str, int] | None = None
) -> dict[str, dict[str, Any]]:
    """Return every document by its name: `rules` is served as `data/rules.json`."""
    parts = {
        "rules": {"rules": _rules(project)},
        "attacks": {"attacks": _attacks(project)},
        "examples": {"examples": examples.described(project)},
        "errors": {"errors": _errors(project)},
        "checks": {"checks": [asdict(each) | {"anchor": each.address} for each in CHECKS.values()]},
        "advisories": {"advisories": _advisories(project)},
        "evidence": _evidence(project) | ({"shown": dict(counts)} if counts is not None else {}),
    }
    return {name: {"format": FORMAT, **part} for name, part in parts.items()}


def dump(document: Mapping[str, Any]) -> str:
    """Return a document as text, always the same for the same content."""
    return json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def _place(src: str | None, project: Project) -> dict[str, str | None]:
    """Return where a page is read, and where its twin is."""
    page = project.pages.get(src or "")
    return {"page": page.url if page else None, "markdown": page.twin if page else None}


def _section(src: str, project: Project) -> str:
    """Return where a section of a page is read."""
    name, mark, section = src.partition("#")
    page = project.pages.get(name)
    return f"{page.url if page else name}{mark}{section}"


def _fields(each: object, *names: str) -> dict[str, Any]:
    """Return some attributes; JSON has lists for tuples."""
    return {name: getattr(each, name) for name in names}


def _rules(project: Project) -> list[dict[str, Any]]:
    return [
        {
            **_fields(rule, "id", "theme", "title", "severity", "source", "callout", "missing"),
            "legs": {leg: list(names) for leg, names in rule.legs.items()},
            "anchor": f"rules/#{rule.id.lower()}",
            **_place(rule.page, project),
        }
        for rule in project.rules.values()
    ]


def _attacks(project: Project) -> list[dict[str, Any]]:
    return [
        {
            **_fields(each, "id", "group", "rules", "command", "rung"),
            "text": each.story,
            "detected": each.seen,
            "anchor": f"attacks/#{each.id}",
        }
        for each in attacks.listed(project)
    ]


def _errors(project: Project) -> list[dict[str, Any]]:
    return [
        {
            **_fields(entry, "name", "says", "means", "causes", "first", "rules"),
            "kind_of": entry.parent,
            "pages": [_section(src, project) for src in entry.pages],
            "anchor": entry.address,
        }
        for _, entry in sorted(EXPLANATIONS.items())
    ]


def _advisories(project: Project) -> list[dict[str, Any]]:
    return [{**asdict(each), **_place(each.page, project)} for each in advisories.read(project)]


def _evidence(project: Project) -> dict[str, Any]:
    evidence = project.evidence
    if evidence.run is None:
        return {"state": evidence.state}
    return {
        "state": evidence.state,
        "commit": evidence.run.commit,
        "started": evidence.run.started.isoformat(),
        "totals": dict(evidence.counts),
        "versions": dict(evidence.versions),
        "changed": list(evidence.changed),
        "run": {
            "whole": not evidence.partial,
            "status": evidence.status,
            **{name: evidence.totals[name] for name in RESULTS},
            "deep": evidence.run.deep,
            "failures": evidence.failures,
            "exit": evidence.run.exit,
        },
        "blocks": [
            entry._asdict() | {"test": entry.test} for entry in evidence.entries if entry.block
        ],
        "proofs": [proof._asdict() for proof in evidence.proofs],
    }
