"""The victim's application on the top rung: a workflow that pays, at once or after a yes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from safepoint.attacks.runs import TOOLS, VERSION
from safepoint.gate import Gate
from safepoint.ledger import Ledger
from safepoint.tools import Tool
from safepoint.workflow import Ask, Call, Run, Step, Workflow


class Payments:
    """A process that runs payments.

    Args:
        gate: who may resume into what.
        bank: the keys of what was paid, in whatever process. It pays for each key once.
        asks: whether it asks people before it pays.
        request: what it asks them.
        tools: what this process has.
        version: the version of its code.

    Attributes:
        paid: the arguments of each payment, in this process.
    """

    def __init__(
        self,
        gate: Gate,
        bank: set[str],
        *,
        asks: bool,
        request: dict[str, Any] | None = None,
        tools: Iterable[Tool] = TOOLS,
        version: str = VERSION,
    ) -> None:
        self.paid: list[Any] = []
        self._bank = bank
        self._request = request
        name, steps = ("payment", self._asking()) if asks else ("errand", self._at_once())
        self.workflow = Workflow(name, steps, version=version, tools=tools, gate=gate)

    def begin(self, ledger: Ledger, thread: str, arguments: dict[str, Any]) -> None:
        """Begin a run that pays at once, and die before its first step."""
        self.workflow.begin(ledger, thread, arguments=arguments)

    def ask(self, ledger: Ledger, thread: str, *, again: bool) -> None:
        """Begin a run that asks, or go on with one that has paid and asks again."""
        if again:
            self.workflow.rehydrate(ledger, thread).step()
        else:
            self.workflow.start(ledger, thread)

    def go_on(self, run: Run) -> None:
        """Run up to the next payment, a pause or the end."""
        for _ in run:
            if self.paid:
                return

    def is_new(self, key: str) -> bool:
        """Tell whether the bank has not seen this key yet, and show it the key."""
        new = key not in self._bank
        self._bank.add(key)
        return new

    def _at_once(self) -> list[Step]:
        def pay(state: dict[str, Any], call: Call) -> None:
            if self.is_new(call.key):
                self.paid.append(state["arguments"])

        return [pay]

    def _asking(self) -> list[Step]:
        def ask(state: dict[str, Any]) -> Ask | None:
            del state
            return None if self._request is None else Ask("pay", self._request)

        def pay(state: dict[str, Any], call: Call) -> None:
            del state  # what to pay is what a person signed
            if call.was_approved and self.is_new(call.key):
                self.paid.append(call.approved.arguments)

        def ask_again(state: dict[str, Any]) -> Ask | None:
            return ask(state)

        def pay_again(state: dict[str, Any], call: Call) -> None:
            pay(state, call)

        return [ask, pay, ask_again, pay_again]
