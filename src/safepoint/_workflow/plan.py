"""Plan: what a workflow is made of. How it runs and resumes is said elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from safepoint._workflow.asking import Ask, Call
from safepoint._workflow.migration import Migration, Migrations
from safepoint.errors import ConfigurationError, WorkflowError, quoted
from safepoint.gate import Gate
from safepoint.ids import check_name
from safepoint.tools import Tool, ToolSet

Step = Callable[..., Mapping[str, Any] | Ask | None]
"""A function of the state, or of the state and a `Call`."""


class Plan:
    """The name, steps, version, tools, migrations and gate that a `Workflow` was given."""

    def __init__(
        self,
        name: str,
        steps: Iterable[Step],
        *,
        version: str = "",
        tools: ToolSet | Iterable[Tool] = (),
        migrations: Iterable[Migration] = (),
        gate: Gate | None = None,
        anchor_before: Iterable[Step] = (),
    ) -> None:
        self.name = check_name("workflow", name)
        named = [(_step_name(step), step) for step in _listed(steps, "steps")]
        self.steps = dict(named)
        if not named or len(self.steps) != len(named):
            raise WorkflowError(
                f"The workflow {name} needs one or more steps with different names.",
                "Give each step a function of its own.",
            )
        self._told = frozenset(name for name, step in named if _is_told(name, step))
        irrevocable = _listed(anchor_before, "anchor_before")
        self.anchor_before = frozenset(_step_name(step) for step in irrevocable)
        if not self.anchor_before <= set(self.steps):
            raise WorkflowError(
                f"The workflow {name} has no step to anchor before.",
                "Name steps of this workflow in anchor_before.",
            )
        self._tools = tools if isinstance(tools, ToolSet) else ToolSet(tools)
        self.migrations = Migrations(migrations, version)
        if not isinstance(gate, (Gate, type(None))):
            raise ConfigurationError(
                f"The workflow {name} was given {type(gate).__name__} as gate.",
                'Write gate=Gate(approvers=Approvers({"dana": key})).',
            )
        self._gate = gate or Gate()

    @property
    def version(self) -> str:
        """The version of the steps."""
        return self.migrations.version

    @property
    def tools(self) -> ToolSet:
        """What the run can use."""
        return self._tools

    @property
    def gate(self) -> Gate:
        """Who may resume into what."""
        return self._gate

    @property
    def app(self) -> str:
        """What its checkpoints say wrote them: the name, and the version if there is one."""
        return f"{self.name}@{self.version}" if self.version else self.name

    def call(self, name: str, state: dict[str, Any], call: Call) -> Mapping[str, Any] | Ask | None:
        """Run one step, and return what it returned."""
        step = self.steps[name]
        return step(state, call) if name in self._told else step(state)


def _listed(steps: Iterable[Step], name: str) -> list[Step]:
    if not isinstance(steps, Iterable):
        raise WorkflowError(
            f"The {name} of a workflow are a list of functions, not {type(steps).__name__}.",
            f"Write {'[first, second]' if name == 'steps' else 'anchor_before=[pay]'}.",
        )
    return list(steps)


def _step_name(step: Step) -> str:
    name = getattr(step, "__name__", "")
    if not isinstance(name, str) or not name.isidentifier():
        raise WorkflowError(
            f"{quoted(name)} cannot name a step.", "Use functions that were defined with def."
        )
    if inspect.iscoroutinefunction(step):
        raise WorkflowError(
            f"The step {name} is async.", "Steps are plain functions: call asyncio.run inside it."
        )
    return str(name)


def _is_told(name: str, step: Step) -> bool:
    """Tell whether a step takes a `Call` besides the state."""
    try:
        signature = inspect.signature(step)
    except (TypeError, ValueError):
        return False  # some built-in functions do not say
    for arguments in ((None, None), (None,)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        required = [
            parameter
            for parameter in signature.parameters.values()
            if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        ]
        return len(arguments) == 2 and len(required) > 1
    raise WorkflowError(
        f"The step {name} takes other arguments than a step does.",
        "Define it as def step(state), or def step(state, call).",
    )
