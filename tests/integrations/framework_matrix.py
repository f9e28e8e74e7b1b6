"""The framework matrix, as it stands on its page: computed from the attacks, never typed.

Run `python -m tests.integrations.framework_matrix` to run the attacks and write the tables into
the page, between their markers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any, Final

from safepoint.attacks import ATTACKS, Attack, Outcome
from safepoint.attacks.ladder import in_a_process
from safepoint.attacks.models import MODEL_ATTACKS, CarefulModels, ModelTarget
from safepoint.rules import RULES
from tests.harness.blocks import ROOT
from tests.harness.ladder import MARKS
from tests.harness.postgres import quick_server
from tests.integrations.framework_models import Safetensors, TorchUnrestricted, TorchWeightsOnly
from tests.integrations.framework_runs import RUN_ATTACKS
from tests.integrations.framework_stores import (
    AgentFramework,
    AgentFrameworkSealed,
    LangGraph,
    LangGraphEncrypted,
    LangGraphPostgres,
    LangGraphSealed,
    LangGraphStrict,
    Run,
)

PAGE: Final = ROOT / "docs/frameworks.md"
Row = dict[str, Outcome]

OURS: Final = {"AF<br>sealed", "LG<br>sealed", "Safepoint"}

STORES: Final[Mapping[str, type[Run]]] = {
    "AF<br>files": AgentFramework,
    "AF<br>sealed": AgentFrameworkSealed,
    "LG<br>SQLite": LangGraph,
    "LG<br>strict": LangGraphStrict,
    "LG<br>AES": LangGraphEncrypted,
    "LG<br>PG": LangGraphPostgres,
    "LG<br>sealed": LangGraphSealed,
}
"""The columns, with what stands above them."""

MODELS: Final[Mapping[str, type[ModelTarget]]] = {
    "torch<br>False": TorchUnrestricted,
    "torch<br>True": TorchWeightsOnly,
    "safetensors": Safetensors,
    "Safepoint": CarefulModels,
}

ON_STORES: Final = (
    "edit-state",
    "plant-record",
    "swap-threads",
    "replay-old-on-top",
    "torn-record",
    "cut-newest",
    "restore-snapshot",
    "delete-thread",
    "undelete-thread",
    "pickle-payload",
    "unknown-type",
    "traverse-id",
    "open-folder",
    "guess-thread",
)
"""What fits a store of anybody's as it is, and is by design or public. What only exhausts memory
or the stack is left out, and so is what depends on how the adapter here names threads."""

NOT_APPLICABLE: Final[Mapping[tuple[str, str], str]] = {
    ("unknown-type", "LG<br>strict LG<br>AES"): "It imports nothing but refuses nothing: the"
    " arguments of the class become the value.",
    ("traverse-id", "AF<br>sealed LG<br>sealed"): "Any text is a name here. It is mapped to one"
    " that has no way out of the folder.",
    ("traverse-id open-folder", "LG<br>SQLite LG<br>strict LG<br>AES LG<br>PG"): "Its store"
    " is one database, not a folder of records.",
    ("dropped-write attached-write", "AF<br>files AF<br>sealed"): "Pending writes are part of the"
    " checkpoint, not a record of their own: editing them is `edit-state`.",
}
"""Why a cell is empty: by attacks and columns."""

ON_MODELS: Final = ("model-payload", "model-swapped", "model-edited", "model-disguised")
"""Without model-allow-list: PyTorch refuses the module of the one function that our payload calls,
whoever allows it, and that says nothing about functions of other modules."""


@cache
def on_stores() -> dict[str, Row]:
    """Run every attack on every store, each in a process of its own."""
    with quick_server() as LangGraphPostgres.server:
        return _outcomes({name: ATTACKS[name] for name in ON_STORES} | RUN_ATTACKS, STORES)


@cache
def on_models() -> dict[str, Row]:
    """Run every attack on models on every loader, each in a process of its own."""
    import_module("safetensors.torch")
    return _outcomes({name: MODEL_ATTACKS[name] for name in ON_MODELS}, MODELS)


@cache
def on_ours() -> dict[str, Row]:
    """Run every attack on what this package makes."""
    import_module("safetensors.torch")
    stores = {name: ATTACKS[name] for name in ON_STORES} | RUN_ATTACKS
    kinds = {head: kind for head, kind in STORES.items() if head in OURS}
    models = {name: MODEL_ATTACKS[name] for name in ON_MODELS}
    return _outcomes(stores, kinds) | _outcomes(models, {"Safepoint": CarefulModels})


def _outcomes(attacks: Mapping[str, Attack], kinds: Mapping[str, Any]) -> dict[str, Row]:
    return {
        name: {head: _isolated(partial(_run, attack, kind)) for head, kind in kinds.items()}
        for name, attack in attacks.items()
    }


def _run(attack: Attack, kind: type[Any], folder: str) -> Outcome:
    return attack.run(kind(folder))


def _isolated(strike: Callable[[str], Outcome]) -> Outcome:
    logging.disable(logging.CRITICAL)  # the frameworks log what they skip
    try:
        return in_a_process(strike, Outcome.CRASHED)
    finally:
        logging.disable(logging.NOTSET)


def why(attack: str, head: str) -> str:
    """Return the reason for an empty cell, or ""."""
    for (attacks, heads), reason in NOT_APPLICABLE.items():
        if attack in attacks.split() and head in heads.split():
            return reason
    return ""


def _table(outcomes: Mapping[str, Row], kinds: Mapping[str, Attack], heads: Sequence[str]) -> str:
    lines = [f"| attack | {' | '.join(heads)} |", f"|:---|{':---:|' * len(heads)}"]
    notes: list[str] = []
    for attack, row in outcomes.items():
        cells = " | ".join(_cell(attack, head, outcome, notes) for head, outcome in row.items())
        rule = RULES[kinds[attack].rule]
        link = f"[{rule.id}]({rule.page or f'rules.md#{rule.id.lower()}'})"
        name = f"`{attack}`" if attack in RUN_ATTACKS else f"[`{attack}`](attacks.md#{attack})"
        lines.append(f"| {name} {link}<br> {kinds[attack].story} | {cells} |")
    style = "ladder ladder--short" if len(heads) == len(MODELS) else "ladder ladder--stores"
    table = f'<div class="{style}" markdown>\n\n' + "\n".join(lines) + "\n\n</div>"
    said = [f"<sup>{number}</sup> {note}" for number, note in enumerate(notes, 1)]
    return "\n\n".join([table, *said])


def _cell(attack: str, head: str, outcome: Outcome, notes: list[str]) -> str:
    """Return a mark, with the number of the note that says why it is an empty one."""
    mark = MARKS[outcome]
    if outcome == Outcome.NOT_APPLICABLE and (reason := why(attack, head)):
        notes += [] if reason in notes else [reason]
        mark += f"<sup>{notes.index(reason) + 1}</sup>"
    return f"**{mark}**{{ .{outcome.replace(' ', '-')} }}"


def _part(names: Sequence[str]) -> dict[str, Row]:
    return {name: row for name, row in on_stores().items() if name in names}


CONTENTS: Final[Mapping[str, Callable[[], str]]] = {
    "stores": lambda: _table(_part(ON_STORES), ATTACKS, list(STORES)),
    "runs": lambda: _table(_part([*RUN_ATTACKS]), RUN_ATTACKS, list(STORES)),
    "models": lambda: _table(on_models(), MODEL_ATTACKS, list(MODELS)),
}


def filled(text: str) -> str:
    """Return the page with the tables as they are computed now."""
    for name, content in CONTENTS.items():
        start, end = f"<!-- matrix {name} -->\n", f"<!-- /matrix {name} -->\n"
        before, rest = text.split(start)
        text = f"{before}{start}{content()}\n{end}{rest.split(end)[1]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
