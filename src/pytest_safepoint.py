"""`pytest --safepoint-target MODULE:FACTORY`: each attack on a store of yours is a test.

Every pytest beside an installed safepoint imports this module. So it stands outside the package,
and imports nothing of it before the option is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from safepoint.attacks import Attack

_RAN = pytest.StashKey[list[bool]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("safepoint").addoption(
        "--safepoint-target",
        metavar="MODULE:FACTORY",
        help="attack the store that this opens in a folder: one test for each attack",
    )


@pytest.hookimpl(tryfirst=True)  # so that -k chooses among them, too
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Add the attacks to the tests."""
    named = session.config.getoption("--safepoint-target")
    if named is None:
        return
    from safepoint.attacks import ATTACKS, own
    from safepoint.core.errors import CheckpointError
    from safepoint.shared.terminal import imported

    try:
        factory = imported(named, "app.storage:open_store")
        own.check(named, factory)
    except CheckpointError as error:
        raise pytest.UsageError(str(error)) from None
    session.stash[_RAN] = []
    store: Attacks = Attacks.from_parent(session, name="safepoint", nodeid="safepoint")
    tests: list[pytest.Item] = [
        AttackTest.from_parent(store, name=name, factory=factory, attack=attack)
        for name, attack in ATTACKS.items()
    ]
    report = pytest.CollectReport(store.nodeid, "passed", None, [*tests])
    session.ihook.pytest_collectreport(report=report)  # they are counted, too
    items += tests


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let it not end well if no attack could be run."""
    ran = session.stash.get(_RAN, [])
    if ran and not any(ran) and not session.exitstatus:
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


class Attacks(pytest.Collector):
    """The attacks on one store."""

    def collect(self) -> list[pytest.Item]:
        """Return none: they are added to what was collected."""
        return []


class AttackTest(pytest.Item):
    """One attack: it fails if something got through, and is skipped if it could not be run."""

    def __init__(self, *, factory: Any, attack: Attack, **named: Any) -> None:
        super().__init__(**named)
        self.factory, self.attack = factory, attack

    def runtest(self) -> None:
        """Attack, in a process and a temporary folder of its own."""
        from safepoint.attacks import Outcome, own

        outcome, _ = own.strike(self.factory, self.name)
        self.session.stash[_RAN].append(outcome is not Outcome.NOT_APPLICABLE)
        if outcome is Outcome.NOT_APPLICABLE:
            pytest.skip("it takes more than this store has, or had no effect")
        if outcome.succeeded:
            raise GotThrough(outcome)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Say what got through, against which rule, and what to read."""
        if not isinstance(excinfo.value, GotThrough):
            return super().repr_failure(excinfo, style)
        from safepoint.rules import RULES

        rule = RULES[self.attack.rule]
        return (
            f"{excinfo.value}: {self.attack.story}\n{rule.id}: {rule.title}\n"
            f"Read: safepoint explain {rule.id} (on the site: attacks/#{self.name})"
        )

    def reportinfo(self) -> tuple[str, None, str]:
        """Say which it is."""
        return "safepoint", None, f"safepoint::{self.name}"


class GotThrough(Exception):
    """The attacker got something."""
