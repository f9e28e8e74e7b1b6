"""How a figure is made: contenders take turns, and the median of many rounds counts."""

from __future__ import annotations

import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence

Act = Callable[[], object]
RATIO = "times to theirs, below 1: ours is faster"


def medians(contenders: Mapping[str, Act], rounds: int) -> dict[str, float]:
    """Return the median time of each, in seconds."""
    return {name: statistics.median(taken) for name, taken in turns(contenders, rounds).items()}


def median_ms(taken: Sequence[float]) -> float:
    """Return the median of some seconds, in milliseconds."""
    return statistics.median(taken) * 1000


def turns(
    contenders: Mapping[str, Act], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Return what each took in each round. They take turns, so that noise hits all alike.

    By `time.process_time` it is what the processor did, which others on the machine change less.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for act in contenders.values():
        act()  # once for free: imports, caches, folders
    gc.collect()
    order = list(contenders.items())
    for _ in range(rounds):
        random.shuffle(order)  # whoever follows a slow one finds cold caches
        for name, act in order:
            start = clock()
            act()
            times[name].append(clock() - start)
    return times


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of the ratios of one round: a round that was slow was slow for both."""
    return statistics.median(one / other for one, other in zip(ours, theirs, strict=True))


def beside(ratio: float, aim: float | None = None) -> str:
    """Return a ratio as a cell, with what it should be, if that was said."""
    return f"{ratio:.3g}" if aim is None else f"{ratio:.3g} (aim {aim:g})"


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table."""
    lines = ["", f"### {title}", "", _row(heads), _row(["---"] * len(heads)), *map(_row, rows)]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
