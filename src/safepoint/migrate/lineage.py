"""The order of checkpoints that name the one before them, told without a clock.

A file says which checkpoint it is and which one it follows. Those links are the order. Times are
not asked: two may be equal, and a clock may be set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from safepoint.errors import Conflict, quoted, shell

_SHOWN: Final = 3
_BRANCH: Final = (
    "Nothing of this thread was sealed. Decide which one counts, copy it with all that it follows"
    " to a folder of its own, and migrate that."
)
_LOOK: Final = "Nothing of this thread was sealed. Look who wrote these files."


@dataclass(frozen=True, slots=True)
class Link:
    """What a file says about its place.

    Attributes:
        source: the file's name.
        identity: which checkpoint it is.
        previous: which one it follows, None if it is the first.
        iteration: how many steps its run had taken. It begins again at 0 in a new run.
        workflow: the name of the workflow that wrote it.
    """

    source: str
    identity: str
    previous: str | None
    iteration: int
    workflow: str


@dataclass(frozen=True, slots=True)
class Chain:
    """Files that belong together.

    Attributes:
        links: each one, in order if there is one.
        refusal: why there is no order that these files agree on.
    """

    links: tuple[Link, ...]
    refusal: Conflict | None = None


def chains(links: Iterable[Link], *, allow_missing_past: bool = False) -> list[Chain]:
    """Put files in order: a chain for each first checkpoint, by the names of the files.

    Args:
        links: what each file says.
        allow_missing_past: take a checkpoint for the first if the one that it follows is gone.
    """
    given = sorted(links, key=lambda link: link.source)
    named: dict[str, list[Link]] = {}
    followers: dict[str, list[Link]] = {}
    for link in given:
        named.setdefault(link.identity, []).append(link)
        if link.previous is not None:
            followers.setdefault(link.previous, []).append(link)
    found: list[Chain] = []
    beginnings = [link for link in given if link.previous is None or link.previous not in named]
    seen: set[str] = set()
    twins = dict(named)
    for link in (*beginnings, *given):
        if link.source not in seen:
            belong = _belonging(link, twins, followers, seen)
            problems = _refusals(belong, named, allow_missing_past)
            found.append(Chain(belong, next(problems, None)))
    return sorted(found, key=lambda chain: chain.links[0].source)


def _belonging(
    first: Link, twins: dict[str, list[Link]], followers: dict[str, list[Link]], seen: set[str]
) -> tuple[Link, ...]:
    """Return the file, those with its identity, and all that follow any of them, nearest first.

    What was looked up is taken out: a name that every file has is not looked up for each of them.
    """
    found = [first]
    seen.add(first.source)
    for link in found:  # it grows
        same = twins.pop(link.identity, ())
        following = followers.pop(link.identity, ())
        beside = followers.pop(link.previous, ()) if link.previous is not None else ()
        for each in (*same, *following, *beside):
            if each.source not in seen:
                seen.add(each.source)
                found.append(each)
    return tuple(found)


def _refusals(
    links: tuple[Link, ...], named: dict[str, list[Link]], without_past: bool
) -> Iterator[Conflict]:
    for link in links:
        if len(named[link.identity]) > 1:
            shown = _shown(named[link.identity])
            yield Conflict(f"{shown} say that they are the same checkpoint.", _LOOK)
    first = links[0]
    if first.previous in named:
        shown = _shown(sorted(links, key=lambda link: link.source))
        circle = "follow one another in a circle" if len(links) > 1 else "follows itself"
        yield Conflict(f"{shown} {circle}.", _LOOK)
    elif first.previous is not None and not without_past:
        yield Conflict(
            f"{shell(first.source)} follows {quoted(first.previous)}, which is not in the folder.",
            "Nothing of this thread was sealed. Put it back; if you removed it on purpose, pass"
            " allow_missing_past=True.",
        )
    for before, link in pairwise(links):
        if link.previous != before.identity:
            twins = [each for each in links if each.previous == link.previous]
            yield Conflict(
                f"{_shown(twins)} follow the same checkpoint, so their order cannot be told.",
                _BRANCH,
            )
        pair = f"{shell(link.source)} follows {shell(before.source)}"
        if link.workflow != before.workflow:
            yield Conflict(f"{pair}, which is of another workflow.", _LOOK)
        if 0 != link.iteration < before.iteration:
            yield Conflict(
                f"{pair}, and counts {link.iteration} steps after {before.iteration}.", _LOOK
            )


def _shown(links: Sequence[Link]) -> str:
    names = [shell(link.source) for link in links]
    if len(names) > _SHOWN:
        names[_SHOWN:] = [f"{len(names) - _SHOWN} more"]
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
