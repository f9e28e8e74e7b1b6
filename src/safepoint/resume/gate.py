"""Gate: decides who must approve a resume, by the checkpoint, the version and the tools.

A decision is a pure function of the verified checkpoint, the program that resumes it, and a policy.
Nothing here reads, writes or asks anyone: a gate only names the place of people's answers.

A tool set has one spelling, canonical JSON, and so one digest. The digest is sealed into every
checkpoint; the description says, at the next resume, what became more.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from safepoint.core.codec import write_json
from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    ResumeRefused,
    Unsafe,
    quoted,
)
from safepoint.core.keys import Keyring
from safepoint.core.names import Head, digest_of, is_digest
from safepoint.core.record import Checkpoint
from safepoint.resume.approval import Approvers, Question, Reason

if TYPE_CHECKING:
    from safepoint.resume.answers import Answers

_NAME: Final = re.compile(r"[A-Za-z0-9._:/-]{1,128}")
_VERSION: Final = re.compile(r"[A-Za-z0-9._:/+-]{0,128}")
_MOST: Final = 16 * 1024 * 1024
MAX_APPROVERS: Final = 16
MAX_LIFETIME: Final = timedelta(days=90)
_STRICT: Final[Mapping[Reason, int | None]] = {
    Reason.OLD_CHECKPOINT: 1,
    Reason.VERSION_CHANGED: 0,
    Reason.NO_MIGRATION: None,
    Reason.TOOLS_ADDED: 1,
    Reason.TOOL_CHANGED: 1,
    Reason.PERMISSIONS_WIDENED: 1,
    Reason.ASKED: 1,
}


@dataclass(init=False, repr=False)
class Tool:
    """One tool: its name, its version, what it is allowed, and the arguments it takes.

    ```python
    from safepoint import Tool

    mail = Tool("mail", version="2", permissions=["send", "read"])
    print(mail.described)
    #> {'name': 'mail', 'permissions': ['read', 'send'], 'schema': None, 'version': '2'}
    ```

    Args:
        name: 1 to 128 of A-Z, a-z, 0-9 and `. _ : / -`.
        version: up to 128 of the same and `+`.
        permissions: what the tool is allowed, each spelled like a name. They are compared as
            words: nothing in them is a wildcard.
        schema: the arguments that it takes, as JSON: dicts, lists, text and numbers. Only
            its digest is kept.

    Raises:
        ConfigurationError: an argument is outside its grammar or of another kind.
    """

    name: str
    permissions: tuple[str, ...]
    schema: str | None
    version: str

    def __init__(
        self, name: str, *, version: str = "", permissions: Iterable[str] = (), schema: Any = None
    ) -> None:
        _check("the name of a tool", name, _NAME)
        _check(f"a version of the tool {name}", version, _VERSION)
        # A text is its letters and a mapping its keys, {"send": False} included: neither was meant.
        if isinstance(permissions, (str, bytes, Mapping)):
            raise ConfigurationError(
                f"The permissions of the tool {name} are {type(permissions).__name__}, and must be"
                " a list.",
                'Write permissions=["read", "send"].',
            )
        words = list(permissions)
        for word in words:
            _check(f"the name of a permission of the tool {name}", word, _NAME)
        try:
            digest = None if schema is None else digest_of(write_json(schema, _MOST))
        except CheckpointError as error:
            raise ConfigurationError(
                f"The schema of the tool {name} cannot be encoded.",
                "Give it as plain values, for example a JSON schema as a dict.",
            ) from error
        self.name = str.__str__(name)
        self.permissions = tuple(sorted(set(map(str.__str__, words))))
        self.schema = digest
        self.version = str.__str__(version)

    @property
    def described(self) -> dict[str, Any]:
        """The tool as plain values, a new dict each time. Of the schema there is the digest."""
        return {**vars(self), "permissions": list(self.permissions)}

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"


def _check(what: str, value: object, grammar: re.Pattern[str]) -> None:
    if not isinstance(value, str) or not grammar.fullmatch(value):
        raise ConfigurationError(
            f"{quoted(value)} is not {what}.",
            "Use up to 128 of A-Z, a-z, 0-9 and . _ : / - in a text, and + in a version.",
        )


class ToolSet:
    """The tools of a run, each name once. It does not change after it was made.

    Going through it gives the tools by name; `"mail" in tools` and `tools["mail"]` find one.

    ```python
    from safepoint import Tool, ToolSet

    tools = ToolSet([Tool("mail", permissions=["read"]), Tool("bank")])
    print([tool.name for tool in tools], tools["mail"].permissions)
    #> ['bank', 'mail'] ('read',)
    ```

    Attributes:
        digest: of the canonical description: equal for equal tool sets, and only those.

    Raises:
        ConfigurationError: two tools have one name.
        LimitExceeded: there are more than a state could hold.
    """

    __slots__ = ("_tools", "digest")

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in sorted(tools, key=lambda tool: tool.name):
            if tool.name in self._tools:
                raise ConfigurationError(
                    f"Two tools are named {tool.name}.", "Give each tool a name of its own."
                )
            self._tools[tool.name] = tool
        self.digest: Final = digest_of(write_json(self.described, _MOST))

    @classmethod
    def from_described(cls, value: Any) -> ToolSet:
        """Return the tool set whose `described` is `value`, exactly.

        Raises:
            ConfigurationError: there is none.
        """
        try:
            found = [Tool(**{**each, "schema": None}) for each in value]
            for tool, each in zip(found, value, strict=True):
                tool.schema = each["schema"]  # it is a digest already
            tools = cls(found)
            if tools.described == value and all(
                tool.schema is None or is_digest(tool.schema) for tool in tools
            ):
                return tools
        except (CheckpointError, TypeError, KeyError):
            pass
        raise ConfigurationError(
            "This is not the description of a tool set.",
            "Give from_described what ToolSet.described gave.",
        )

    @property
    def described(self) -> list[dict[str, Any]]:
        """The tools as plain values, sorted by name, a new list each time."""
        return [tool.described for tool in self]

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __repr__(self) -> str:
        return f"<ToolSet {', '.join(self._tools) or 'empty'}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToolSet) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@dataclass(frozen=True, slots=True)
class May:
    """How many people must approve an action, up to an amount: its argument `amount`.

    Attributes:
        up_to: the highest amount that they may approve, or None for any.
        people: how many people must approve.

    Raises:
        ConfigurationError: it is not a number of people, or not an amount.
    """

    up_to: int | Decimal | None = None
    people: int = 1

    def __post_init__(self) -> None:
        is_limit = self.up_to is None or _is_amount(self.up_to)
        if not is_limit or type(self.people) is not int or not 1 <= self.people <= MAX_APPROVERS:
            raise ConfigurationError(
                f"{quoted(self)} is not a limit.",
                "Give an int or a Decimal of 0 or more, or None for any amount, and from 1 to"
                f" {MAX_APPROVERS} people.",
            )

    def covers(self, amount: Any) -> bool:
        """Tell whether an amount is within the limit."""
        return self.up_to is None or amount <= self.up_to


class Policy:
    """How many people must approve for each reason. Other reasons keep their strict default.

    ```python
    from safepoint import Policy
    from safepoint.resume.approval import Reason

    policy = Policy({Reason.PERMISSIONS_WIDENED: 2, Reason.OLD_CHECKPOINT: None})
    print(policy.needs(Reason.PERMISSIONS_WIDENED), policy.needs(Reason.OLD_CHECKPOINT))
    #> 2 None
    ```

    `may` says how many people must approve a step's action, by its amount. The amount is read from
    the question that they sign:

    ```python
    from safepoint import Policy
    from safepoint.resume.gate import May

    policy = Policy(may={"pay": [May(up_to=1_000), May(up_to=50_000, people=2)]})
    ```

    Args:
        people: for a reason, the number of distinct people who must approve; 0 if the resume
            needs no approval, or None if nobody can approve it.
        lifetime: the maximum validity of an approval, up to 90 days.
        may: for an action, a list of `May`, one of which must cover the amount. Nobody can approve
            an action that is not named here. Without `may`, an action needs as many people as its
            reasons.

    Raises:
        ConfigurationError: a reason is unknown, or a number is not valid: `ASKED` always needs
            approval.
    """

    __slots__ = ("_needs", "lifetime", "may")

    def __init__(
        self,
        people: Mapping[Reason, int | None] | None = None,
        *,
        lifetime: timedelta = timedelta(hours=24),
        may: Mapping[str, Iterable[May]] | None = None,
    ) -> None:
        for reason, number in (people or {}).items():
            if reason not in _STRICT:  # or a misspelled one would ask for fewer people
                raise ConfigurationError(
                    f"{quoted(reason)} is not a reason.", f"The reasons are {', '.join(Reason)}."
                )
            least = 1 if reason == Reason.ASKED else 0
            right = type(number) is int and least <= number <= MAX_APPROVERS
            if number is not None and not right:
                raise ConfigurationError(
                    f"The number of people for {reason} cannot be {quoted(number)}.",
                    f"Give a whole number from {least} to {MAX_APPROVERS}, or None for never.",
                )
        if not timedelta(0) < lifetime <= MAX_LIFETIME:
            raise ConfigurationError(
                f"The lifetime of an approval is {quoted(lifetime)}, and must be a timedelta above"
                f" 0 and of at most {MAX_LIFETIME.days} days.",
                "Write lifetime=timedelta(hours=24).",
            )
        self._needs = {**_STRICT, **(people or {})}
        self.lifetime: Final = lifetime
        self.may: Final = (
            None if may is None else {action: tuple(limits) for action, limits in may.items()}
        )

    @property
    def most(self) -> int:
        """The most people that it wants for anything."""
        limits = (each for limits in (self.may or {}).values() for each in limits)
        return max(*(number or 0 for number in self._needs.values()), *(m.people for m in limits))

    def needs(self, *reasons: Reason) -> int | None:
        """Return how many people must approve a resume: 0 if none, None if nobody can."""
        found = [self._needs[reason] for reason in reasons]
        return None if None in found else max((number or 0 for number in found), default=0)


def _is_amount(value: object) -> bool:
    """Tell whether a value can be compared with a limit: an int or a finite Decimal, 0 or more."""
    if type(value) is int:
        return value >= 0
    return type(value) is Decimal and value.is_finite() and value >= 0


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision of the gate.

    Attributes:
        reasons: every reason, in the order of `Reason`, even if it needs no approval.
        people: how many distinct people must approve; 0 if it is allowed, None if nobody can
            approve it.
        details: one sentence for each concrete finding.
    """

    reasons: tuple[Reason, ...]
    people: int | None
    details: tuple[str, ...]


class Gate:
    """A policy and the people who can approve.

    Without approvers it still decides, but a resume that needs approval is refused.

    Args:
        policy: how many people must approve for each reason and action.
        approvers: the people who may approve.
        answers: where they store signed answers, so that nobody in between can drop a denial. A
            worker looks there before it continues.
        operators: the people who may hold and release a run. Their orders are stored there as well.

    Raises:
        ConfigurationError: the policy asks for more people than there are, or there are operators
            and no place for their orders.
        Unsafe: an operator has the key of an approver.
    """

    __slots__ = ("answers", "approvers", "operators", "policy")

    def __init__(
        self,
        policy: Policy | None = None,
        approvers: Approvers | None = None,
        *,
        answers: Answers | None = None,
        operators: Approvers | None = None,
    ) -> None:
        self.policy: Final = policy or Policy()
        self.approvers: Final = Approvers({}) if approvers is None else approvers
        self.answers: Final = answers
        self.operators: Final = Approvers({}) if operators is None else operators
        if approvers is not None and self.policy.most > len(approvers):
            raise ConfigurationError(
                f"The policy needs {self.policy.most} approvers, and the gate has"
                f" {len(approvers)}.",
                "Require fewer in the policy, or add people to Approvers.",
            )
        if self.operators.keys and answers is None:
            raise ConfigurationError(
                "The gate has operators but no place where their orders are stored.",
                "Write Gate(..., answers=Answers(storage, anchor)).",
            )
        for key_id in self.operators.keys.keys() & self.approvers.keys.keys():
            raise Unsafe(
                f"Key {key_id} is an operator's and an approver's.",
                "Give each person a key for each of their tasks.",
            )

    def check_apart(self, keyring: Keyring) -> None:
        """Refuse people whose keys are also on a ledger's keyring.

        Raises:
            Unsafe: one is: anyone who writes the store could approve what they wrote.
        """
        self.approvers.check_apart(keyring)
        self.operators.check_apart(keyring)

    def lacks(self, question: Question, names: Collection[str], needed: int) -> str:
        """Return how many people must approve, as words, or "" if these people are enough.

        Args:
            question: the question that they approved. Its arguments contain the amount.
            names: the people who approved it.
            needed: how many people its reasons need.

        Raises:
            ResumeRefused: nobody may approve it.
        """
        if self.policy.may is None or not question.action:
            return "" if len(names) >= needed else _people(needed)
        limits, amount = self.policy.may.get(question.action, ()), question.arguments.get("amount")
        right = all(each.up_to is None for each in limits) or _is_amount(amount)
        fitting = [each for each in limits if right and each.covers(amount)]
        if not fitting:
            raise ResumeRefused(
                f"Nobody may approve {question.action} with these arguments.",
                "The policy names the amounts up to which people may approve it. Missing, negative"
                " or of another type than int and Decimal, an amount is refused.",
            )
        wanted = min(max(each.people, needed) for each in fitting)
        return "" if len(names) >= wanted else _people(wanted)

    def decide(
        self,
        checkpoint: Checkpoint,
        head: Head,
        *,
        had: ToolSet,
        has: ToolSet,
        app: str,
        migrates_from: Collection[str] = (),
        asked: bool = False,
    ) -> Decision:
        """Decide how many people must approve a resume: the highest number of any reason.

        ```python
        from safepoint import Gate, InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
        from safepoint import Tool, ToolSet
        from safepoint.core.names import Head, digest_of, is_digest

        keys = Keyring(SigningKey.generate())
        ledger = Ledger(InMemoryCheckpointStorage(), store="agents", keys=keys)
        last = ledger.save("run-1", {}, app="agent@1")
        head, more = Head(last.sequence, last.digest), ToolSet([Tool("bank")])
        decision = Gate().decide(last, head, had=ToolSet(), has=more, app="agent@1")
        print(decision.people, *decision.details)
        #> 1 The tool bank is new.
        ```

        Args:
            checkpoint: the verified checkpoint to resume from.
            head: the thread's newest state, verified.
            had: the tools at the checkpoint.
            has: the tools that the run would have.
            app: the program that resumes it: "name" or "name@version".
            migrates_from: the versions that can be migrated to this version.
            asked: whether the run paused there for a person's answer.
        """
        found = list(_find(checkpoint, head, app, migrates_from))
        found += [(reason, said) for reason, _, said in compare(has, had)]
        if asked:
            said = f"The run paused at #{checkpoint.sequence} for a person's answer."
            found.append((Reason.ASKED, said))
        found.sort(key=lambda finding: list(Reason).index(finding[0]))
        reasons = tuple(dict.fromkeys(reason for reason, _ in found))
        details = tuple(said for _, said in found)
        return Decision(reasons, self.policy.needs(*reasons), details)


def _find(
    checkpoint: Checkpoint, head: Head, app: str, migrates_from: Collection[str]
) -> Iterator[tuple[Reason, str]]:
    """Yield each difference in the place and the version, with its reason."""
    if checkpoint.sequence < head.sequence:
        said = f"The run would go back from {head} to #{checkpoint.sequence}."
        yield Reason.OLD_CHECKPOINT, said
    before, now = (text.partition("@")[2] for text in (checkpoint.app, app))
    if before != now:
        old, new = (_version(text, "an unnamed version") for text in (before, now))
        said = f"The checkpoint was written by {old}, and would be resumed by {new}."
        yield Reason.VERSION_CHANGED, said
        if before not in migrates_from:
            yield Reason.NO_MIGRATION, f"No migration leads from {old} to {new}."


def compare(now: ToolSet, before: ToolSet) -> Iterator[tuple[Reason, str, str]]:
    """Yield what a run would get besides: the reason, the tool, and a sentence."""
    for new in now:
        name = new.name
        if name not in before:
            yield Reason.TOOLS_ADDED, name, f"The tool {name} is new."
            if words := new.permissions:
                yield Reason.TOOLS_ADDED, name, f"The tool {name} comes with {_listed(words)}."
            continue
        old = before[name]
        if old.version != new.version:
            has, had = (_version(tool.version, "no version") for tool in (new, old))
            yield Reason.TOOL_CHANGED, name, f"The tool {name} has {has}, and had {had}."
        if old.schema != new.schema:
            yield Reason.TOOL_CHANGED, name, f"The tool {name} has another schema."
        if more := set(new.permissions).difference(old.permissions):
            yield Reason.PERMISSIONS_WIDENED, name, f"The tool {name} gains {_listed(more)}."


def _people(number: int) -> str:
    return "one person" if number == 1 else f"{number} people"


def _version(text: str, otherwise: str) -> str:
    return f"version {text!a}" if text else otherwise


def _listed(permissions: Iterable[str]) -> str:
    words = sorted(permissions)
    return f"the permission{'s' * (len(words) > 1)} {', '.join(words)}"
