"""What runs fickling: a process of its own, with little memory, little time, and no way to act.

It is started by its path, with a pickle on standard input, and writes one JSON object. It imports
nothing of this package, and nothing from the folder that it is started in.
"""

from __future__ import annotations

import ast
import json
import sys
from contextlib import redirect_stdout, suppress
from io import StringIO
from typing import Any, Final, NoReturn

MISSING: Final = 3
OUT_OF_TIME: Final = 4
TEXT: Final = 4_000_000
NODES: Final = 1_000_000
_REHEARSAL: Final = b"(Vx\nS'y'\nI1\nL1L\ncdatetime\ndate\n(tRt."
_HARMLESS: Final = ("builtins.id", "object.__getattr__", "object.__setattr__")


class _Refused(Exception):
    """It cannot be shown as what it is."""


class _TooLarge(Exception):
    """It is small only until it is written down."""


class _Acts(BaseException):
    """Something was about to be imported, compiled, executed, opened or sent."""


def main() -> int:
    """Say what fickling says about the pickle on standard input."""
    mode, memory, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    try:
        import fickling.analysis as analysis
        import fickling.fickle as fickle
        import fickling.tracing as tracing
    except ImportError:
        return MISSING
    _limit(memory, seconds)
    data = sys.stdin.buffer.read()

    def said_of(data: bytes) -> dict[str, Any]:
        pickled = fickle.Pickled.load(data)
        names = _names(pickled.ast)
        if mode == "check":
            results = analysis.check_safety(pickled)
            reasons = [str(each) for each in results.results if not each]
            return {"severity": results.severity.name, "reasons": list(dict.fromkeys(reasons))}
        return {"text": _shown(pickled, names, fickle, tracing if mode == "trace" else None)}

    said_of(_REHEARSAL)  # whatever is imported on the way is imported now
    sys.addaudithook(_stand_still)
    try:
        said = said_of(data)
    except _TooLarge:
        said = {"limit": "size"}
    except MemoryError:
        said = {"limit": "memory"}
    except RecursionError:
        said = {"limit": "depth"}
    except _Acts as acts:
        said = {"refused": f"fickling was about to act ({acts})"}
    except _Refused as refused:
        said = {"refused": str(refused)}
    except Exception as error:  # noqa: BLE001  whatever fickling raises, it is told
        said = {"refused": f"fickling raised {type(error).__name__}"}
    sys.stdout.write(json.dumps(said))
    return 0


def _limit(memory: int, seconds: int) -> None:
    with suppress(ImportError):  # not POSIX: the time that the caller waits is the only limit
        import resource

        for what, most in (
            (resource.RLIMIT_AS, memory),
            (resource.RLIMIT_CPU, seconds),
            (resource.RLIMIT_FSIZE, 0),
            (resource.RLIMIT_CORE, 0),
        ):
            hard = resource.getrlimit(what)[1]
            resource.setrlimit(what, (most if hard < 0 else min(most, hard), hard))


def _stand_still(event: str, _: tuple[Any, ...]) -> None:
    if event not in _HARMLESS:
        raise _Acts(event)


def _shown(pickled: Any, names: set[str], fickle: Any, tracing: Any) -> str:
    if pickled.has_resource_exhaustion:
        raise _Refused("fickling gave up: it grows when it is unpacked")
    if pickled.has_invalid_opcode or pickled.has_interpretation_error:
        raise _Refused("fickling takes it for malformed")
    if not all(name.isascii() and name.replace(".", "_").isidentifier() for name in names):
        # It would print as something that it is not: a line of code, a colour, another name.
        raise _Refused("it asks for a name that no Python name is like")
    if tracing is None:
        text = ast.unparse(pickled.ast)
    else:
        written = _Bounded()
        with redirect_stdout(written):
            tracing.Trace(fickle.Interpreter(pickled)).run()
        text = written.getvalue()
    if len(text) > TEXT:
        raise _TooLarge
    return text


def _names(tree: ast.AST) -> set[str]:
    """Return each name in a tree, and refuse one that is small only because its parts are shared.

    Whatever writes it down writes a part again wherever it stands: thirty lists, each of twice the
    one before, are a thousand million.
    """
    sizes: dict[int, int] = {}
    names: set[str] = set()
    waiting = [tree]
    while waiting:
        node = waiting[-1]
        below = list(ast.iter_child_nodes(node))
        if id(node) not in sizes:
            sizes[id(node)] = 0  # it is being looked at
            for field in ("id", "attr", "module", "name", "asname"):
                if isinstance(name := getattr(node, field, None), str):
                    names.add(name)
            waiting += [each for each in below if id(each) not in sizes]
            continue
        waiting.pop()
        if not sizes[id(node)]:
            sizes[id(node)] = 1 + sum(sizes[id(each)] for each in below)
            if sizes[id(node)] > NODES:
                raise _TooLarge
    return names


class _Bounded(StringIO):
    def write(self, text: str) -> int:
        if self.tell() + len(text) > TEXT:
            raise _TooLarge
        return super().write(text)


def _out_of_time(*_: object) -> NoReturn:
    raise SystemExit(OUT_OF_TIME)


if __name__ == "__main__":
    with suppress(ImportError):
        import signal

        if hasattr(signal, "SIGXCPU"):
            signal.signal(signal.SIGXCPU, _out_of_time)
    sys.exit(main())
