"""Calls: what the arguments of a load say about it. Each function returns an id and a sentence."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Final, NamedTuple

from safepoint.lint.loaders import Loader

_FLAG: Final = "weights_only"


class Judged(NamedTuple):
    """What is wrong with a call."""

    id: str
    what: str


class Arguments:
    """The arguments of a call, with those of a literal `**{...}` among them.

    Attributes:
        places: the arguments by place, up to the first star.
        named: the arguments by keyword.
        opaque: whether there may be more keywords than one can see.
        starred: whether there may be more arguments by place.
    """

    def __init__(self, places: list[ast.expr], keywords: list[ast.keyword]) -> None:
        stars = [i for i, each in enumerate(places) if isinstance(each, ast.Starred)]
        self.places = places[: stars[0]] if stars else places
        self.starred = bool(stars)
        self.named: dict[str, ast.expr] = {}
        self.opaque = False
        for keyword in keywords:
            if keyword.arg is not None:
                self.named[keyword.arg] = keyword.value
            elif isinstance(keyword.value, ast.Dict):
                self.named.update(self._pairs(keyword.value))
            else:
                self.opaque = True

    def _pairs(self, pairs: ast.Dict) -> dict[str, ast.expr]:
        found: dict[str, ast.expr] = {}
        for key, value in zip(pairs.keys, pairs.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                found[key.value] = value
            elif key is None and isinstance(value, ast.Dict):
                found.update(self._pairs(value))
            else:
                found.clear()  # the last one wins, and this may be any of those before it
                self.opaque = True
        return found

    def get(self, name: str, place: int | None = None) -> ast.expr | None:
        """Return an argument, by keyword or by its place."""
        if name in self.named or place is None or place >= len(self.places):
            return self.named.get(name)
        return self.places[place]


def judge(
    loader: Loader, shown: str, arguments: Arguments, *, bound: bool = False
) -> Judged | None:
    """Say what is wrong with a call of a loader.

    Args:
        loader: what the function does.
        shown: its full name.
        arguments: of the call.
        bound: whether it is a call of a `partial`, which was judged where it was made.
    """
    return _JUDGES[loader](loader, shown, arguments, bound)


def handed_on(loader: Loader, shown: str) -> Judged | None:
    """Say what is wrong with a loader that is passed around as a value."""
    if loader in (Loader.CHECKPOINT, Loader.NUMPY):
        return None  # their defaults are the strict ones
    if loader in (Loader.TORCH, Loader.TORCH_OPEN):
        return Judged("SL01", f"{shown} is handed on, and nobody sees how it is called.")
    if loader is Loader.TORCH_CODE:
        return Judged("SL07", f"{shown} is handed on, and can run what the file says.")
    if loader is Loader.ALLOW:
        return Judged("SL05", f"{shown} is handed on, and lets loads build more than tensors.")
    return Judged("SL08", f"{shown} is handed on, and runs what the bytes say.")


def _torch(loader: Loader, shown: str, arguments: Arguments, bound: bool) -> Judged | None:
    flag = arguments.get(_FLAG)
    if bound and flag is None and not arguments.opaque:
        return None
    if _is(flag, True):
        return None  # with pickle_module beside it, torch raises
    if _is(flag, False):
        return Judged("SL02", f"{shown} with {_FLAG}=False runs what the file says.")
    module = arguments.get("pickle_module", 2 if loader is Loader.TORCH else None)
    if module is not None and not _is(module, None):
        return Judged("SL03", f"{shown} with pickle_module is a load without restriction.")
    if flag is not None and not _is(flag, None):
        return Judged(
            "SL01",
            f"{shown} with a {_FLAG} that is not a literal True: nobody sees which load that is.",
        )
    if arguments.opaque and flag is None:
        return Judged("SL01", f"{shown} with ** arguments: nobody sees which load that is.")
    if loader is Loader.TORCH_OPEN:
        return Judged("SL01", f"{shown} without {_FLAG} runs what the file says.")
    how = "without weights_only" if flag is None else "with weights_only=None"
    return Judged("SL01", f"{shown} {how} depends on the version and on an environment variable.")


def _code(_: Loader, shown: str, __: Arguments, bound: bool) -> Judged | None:
    return None if bound else Judged("SL07", f"{shown} can run what the file says.")


def _allow(_: Loader, shown: str, __: Arguments, bound: bool) -> Judged | None:
    return None if bound else Judged("SL05", f"{shown} lets loads build more than tensors.")


def _checkpoint(_: Loader, shown: str, arguments: Arguments, __: bool) -> Judged | None:
    safe = arguments.get("safe")
    if _is(safe, True) or (safe is None and not arguments.opaque):
        return None
    keys = arguments.get("keys")
    if (safe is None or _is(safe, False)) and keys is not None and not _is(keys, None):
        return None  # the seal is verified first
    if safe is None:
        return Judged("SL01", f"{shown} with ** arguments: nobody sees which load that is.")
    if _is(safe, False):
        return Judged("SL02", f"{shown} with safe=False runs what the file says.")
    return Judged(
        "SL01", f"{shown} with a safe that is not a literal True: nobody sees which load that is."
    )


def _numpy(_: Loader, shown: str, arguments: Arguments, __: bool) -> Judged | None:
    allow = arguments.get("allow_pickle", 1 if shown.endswith("read_array") else 2)
    if allow is None and (arguments.opaque or arguments.starred):
        return Judged("SL10", f"{shown} with arguments that nobody sees here may unpickle.")
    if allow is None or _is(allow, False) or _is(allow, None):
        return None
    if _is(allow, True):
        return Judged("SL10", f"{shown} with allow_pickle=True runs what the file says.")
    return Judged("SL10", f"{shown} with an allow_pickle that is not a literal may unpickle.")


def _pickle(_: Loader, shown: str, __: Arguments, bound: bool) -> Judged | None:
    return None if bound else Judged("SL08", f"{shown} runs what the bytes say.")


def _is(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


_JUDGES: Final[dict[Loader, Callable[[Loader, str, Arguments, bool], Judged | None]]] = {
    Loader.TORCH: _torch,
    Loader.TORCH_OPEN: _torch,
    Loader.TORCH_CODE: _code,
    Loader.ALLOW: _allow,
    Loader.CHECKPOINT: _checkpoint,
    Loader.NUMPY: _numpy,
    Loader.PICKLE: _pickle,
    Loader.UNPICKLER: _pickle,
}
