"""Drawings that the build makes from a description."""

from __future__ import annotations

from html import escape
from typing import Final, NamedTuple

from publish.paper import ACCENT, FAINT, FONTS, QUIET, STYLE, WARNING, WIDTH

LEFT: Final = 106
LINE: Final = 19
DASHED: Final = ' stroke-dasharray="5 4"'
DOTTED: Final = ' stroke-dasharray="1 5" stroke-linecap="round"'


class Lane(NamedTuple):
    """What takes part, as a line from top to bottom; who holds a key that signs has a colour."""

    name: str
    about: str
    colour: str = ""


class Phase(NamedTuple):
    """A heading; the lane `alive` is a process that lives from here to the next one."""

    title: str
    about: str
    alive: str


class Step(NamedTuple):
    """Something happens: in the lane `at`, or from there to the lane `to`."""

    text: str
    at: str
    to: str = ""
    loose: bool = False


class Signed(NamedTuple):
    """Something comes into being, in the lane `at`, signed with the key of the lane `by`."""

    title: str
    text: str
    at: str
    by: str
    signature: str
    anchored: str = ""


class Drawing(NamedTuple):
    """What a drawing shows. Texts break where a line ends."""

    name: str
    title: str
    about: str
    lanes: tuple[Lane, ...]
    story: tuple[Phase | Step | Signed, ...]


class Row(NamedTuple):
    """Who, and what they may do in each column: a dash for nothing, `!` before what is rare.

    A `~` stands before what nobody does.
    """

    who: str
    cells: tuple[str, ...]


class Grid(NamedTuple):
    """Who may do what where: rows under headings, and columns."""

    name: str
    title: str
    about: str
    columns: tuple[str, ...]
    rows: tuple[str | Row, ...]


RESUME: Final = Drawing(
    "resume",
    "Pause, approve, resume: who signs what",
    "Four lanes: the journal; the worker, which holds the writer's key; the store and its "
    "anchor; and the approver, who holds another key. Pause: a step of the worker asks for a yes "
    "to pay 42. The journal gets a line, and the question is appended as record 2, signed with "
    "the writer's key and anchored at once. Approve: in a process of their own the approver "
    "reads the question from the store, verified, and signs with the approver's key an approval "
    "that names the store, the thread, the digest of record 2, the reasons, the arguments and an "
    "expiry. It travels to the worker as text. Resume: in another worker's process the gate "
    "checks the approval. A line in the journal comes first. Then record 3, which holds the "
    "approval, is appended right after record 2, signed with the writer's key, and anchored at "
    "once: that append is the spend, and has one winner. Only then the next step pays, with "
    "call.key, an idempotency key.",
    (
        Lane("journal", "signed, chained lines"),
        Lane("worker", "holds the writer's key", ACCENT),
        Lane("store", "and its anchor"),
        Lane("approver", "holds a key of their own", WARNING),
    ),
    (
        Phase("Pause", "a worker", "worker"),
        Step("A step asks: pay, amount 42.", "worker"),
        Step("A line in the journal comes first.", "worker", "journal"),
        Signed(
            "record #2",
            "the state, and what the step asks",
            "store",
            "worker",
            "signed with the writer's key",
            anchored="anchored at once",
        ),
        Phase("Approve", "a process of their own", "approver"),
        Step("The approver reads the question\nfrom the store, verified.", "store", "approver"),
        Signed(
            "approval of #2",
            "names the store, the thread,\nthe digest of #2, the reasons,\n"
            "the arguments and its expiry",
            "approver",
            "approver",
            "signed with the approver's key",
        ),
        Step("It travels as text, by any path.", "approver", "worker", loose=True),
        Phase("Resume", "another worker", "worker"),
        Step(
            "The gate checks the approval:\na trusted key, this #2, these\narguments, not expired.",
            "worker",
        ),
        Step("A line in the journal comes first.\nNo journal, no resume.", "worker", "journal"),
        Signed(
            "record #3, right after #2",
            "holds the approval. To append it\nis to spend it: one worker wins.",
            "store",
            "worker",
            "signed with the writer's key",
            anchored="anchored at once",
        ),
        Step("Only now the next step pays,\nwith call.key, an idempotency key.", "worker"),
    ),
)

LOGINS: Final = Grid(
    "logins",
    "Who may do what where: each login has one job",
    "A table with a column each for the store, the anchor and the journal. In the worker's "
    "process there are three logins. worker_1 adds to the store and reads it, and can do nothing "
    "to anchor or journal. anchor_1 moves heads of the anchor up and reads them, and nothing else. "
    "journal_1 adds lines to the journal and reads them, and nothing else. People have three. "
    "operator_1 adds to the store, reads and prunes it, discards what does not verify, and reads "
    "the anchor. anchor_operator_1 reads the anchor and can set it back. What these two do is "
    "written down. auditor_1 reads all three. The owner owns all three, and nobody logs in as that "
    "role. A superuser, whoever runs the server, can do everything to what is on it, so the anchor "
    "belongs on another one. Amber cells are those that can take something away: the two "
    "operators' and the superuser's.",
    ("store", "anchor", "journal"),
    (
        "In the worker's process",
        Row("worker_1", ("add, read", "-", "-")),
        Row("anchor_1", ("-", "move up,\nread", "-")),
        Row("journal_1", ("-", "-", "add, read")),
        "In a person's hands, when needed",
        Row("operator_1", ("!add, read,\nprune,\ndiscard", "read", "-")),
        Row("anchor_\noperator_1", ("-", "!set back,\nread", "-")),
        Row("auditor_1", ("read", "read", "read")),
        "As this role nobody logs in",
        Row("owner", ("~owns it", "~owns it", "~owns it")),
        "Whoever runs the server; so put the anchor on another",
        Row("superuser", ("!everything", "!everything", "!everything")),
        "Amber: can take something away.",
    ),
)


def draw(drawing: Drawing) -> str:
    """Return the drawing as an SVG: the same text each time."""
    pen = _Pen(drawing.lanes)
    for part in drawing.story:
        match part:
            case Phase():
                pen.phase(part)
            case Step():
                pen.step(part)
            case Signed():
                pen.signed(part)
    return _svg(drawing, pen.y - 10, pen.end())


def draw_grid(grid: Grid) -> str:
    """Return the table as an SVG: the same text each time."""
    wide = (WIDTH - _NAMES) // len(grid.columns)
    lefts = [_NAMES + wide * number for number in range(len(grid.columns))]
    parts = [_words(x + 8, 14, name, bold=15) for x, name in zip(lefts, grid.columns, strict=True)]
    y = 22
    for row in grid.rows:
        if isinstance(row, str):
            parts.append(f'<path d="M0 {y + 6}H{WIDTH}" stroke="{FAINT}" stroke-width="1.2"/>')
            parts.append(_words(0, y + 26, row, QUIET))
            y += 36
            continue
        high = 14 + 17 * max(text.count("\n") + 1 for text in (row.who, *row.cells))
        parts += _lines(0, y, high, row.who, bold=14)
        for x, text in zip(lefts, row.cells, strict=True):
            parts += _cell(x, y, wide - 4, high, text)
        y += high + 5
    return _svg(grid, y, "\n".join(f"  {part}" for part in parts))


_NAMES: Final = 93


def _cell(x: int, y: int, wide: int, high: int, text: str) -> list[str]:
    if text == "-":
        middle = f"M{x + 8} {y + high // 2}h8"
        return [f'<path d="{middle}" stroke="{FAINT}" stroke-width="1.6"/>']
    colour = {"!": WARNING, "~": QUIET}.get(text[0], ACCENT)
    box = (
        f'<rect x="{x}" y="{y}" width="{wide}" height="{high}" rx="5" fill="{colour}"'
        f' fill-opacity="0.09" stroke="{colour}" stroke-width="1.2"/>'
    )
    return [box, *_lines(x + 8, y, high, text.lstrip("!~"), colour)]


def _lines(
    x: int, y: int, high: int, text: str, colour: str = "currentColor", *, bold: int = 0
) -> list[str]:
    """Write lines one below the other, in the middle of what is so high."""
    lines = text.split("\n")
    top = y + (high - 17 * len(lines)) // 2 + 13
    return [_words(x, top + 17 * n, line, colour, bold=bold) for n, line in enumerate(lines)]


def _words(x: int, y: int, text: str, colour: str = "currentColor", *, bold: int = 0) -> str:
    more = f' font-size="{bold}" font-weight="650"' if bold else ' font-size="13"'
    return f'<text x="{x}" y="{y}" fill="{colour}"{more}>{escape(text)}</text>'


def _svg(drawing: Drawing | Grid, height: int, body: str) -> str:
    name = drawing.name
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" class="{name}" viewBox="0 0 {WIDTH} {height}" \
width="{WIDTH}" height="{height}" role="img" aria-labelledby="{name}-title {name}-desc" \
font-family="{FONTS}" font-size="14" fill="currentColor">
  <title id="{name}-title">{escape(drawing.title)}</title>
  <desc id="{name}-desc">{escape(drawing.about)}</desc>
{STYLE}
{body}
</svg>
"""


class _Pen:
    """Draws downwards; `y` is how far it came."""

    def __init__(self, lanes: tuple[Lane, ...]) -> None:
        self.y = 10
        self._x = {lane.name: 10 + 25 * number for number, lane in enumerate(lanes)}
        self._colour = {lane.name: lane.colour or QUIET for lane in lanes}
        self._alive = ("", 0)
        self._behind: list[str] = []  # the lanes
        self._before: list[str] = []
        self._tops: list[tuple[Lane, int]] = []
        for lane in lanes:
            x, colour = self._x[lane.name], self._colour[lane.name]
            self._line(f"M{x} {self.y}H{LEFT - 8}", FAINT, behind=True)
            self._circle(x, self.y, colour)
            name = f'<tspan fill="{colour}" font-weight="650">{escape(lane.name)}</tspan> '
            self._text(LEFT, self.y + 5, lane.about, QUIET, before=name)
            self._tops.append((lane, self.y))
            self.y += 23

    def phase(self, phase: Phase) -> None:
        self._end_of_process(self.y - 8)
        self.y += 14
        self._line(f"M{LEFT} {self.y}H{WIDTH}", FAINT)
        self._text(LEFT, self.y + 21, phase.title, bold=16)
        self._text(WIDTH - 1, self.y + 21, phase.about, QUIET, more=' text-anchor="end"')
        self._alive = phase.alive, self.y + 8
        self.y += 42

    def step(self, step: Step) -> None:
        x, colour = self._x[step.at], self._colour[step.at]
        if step.to:
            self._arrow(x, self._x[step.to], colour, DASHED if step.loose else "")
        self._circle(x, self.y, colour)
        self.y += 5
        self._lines(LEFT, step.text)
        self.y += 8

    def signed(self, signed: Signed) -> None:
        self.y += 8
        x, colour = self._x[signed.at], self._colour[signed.by]
        left, top = LEFT + 13, self.y - 17
        self._line(f"M{x} {self.y}H{LEFT}", colour)
        if signed.by != signed.at:
            self._arrow(self._x[signed.by], x - (8 if signed.anchored else 5), colour)
            self._circle(self._x[signed.by], self.y, colour)
        self._before.append(
            f'<rect x="{x - 5}" y="{self.y - 5}" width="10" height="10" rx="2" fill="{colour}"/>'
        )
        if signed.anchored:
            self._circle(x, self.y, "none", 8)
        self._text(left, self.y + 5, signed.title, bold=15)
        self.y += 5 + LINE
        self._lines(left, signed.text)
        self._circle(left + 4, self.y - 5, colour)
        self._text(left + 16, self.y, signed.signature, colour, bold=14)
        if signed.anchored:
            self.y += LINE
            self._circle(left + 4, self.y - 5, "none")
            self._text(left + 16, self.y, signed.anchored, bold=14)
        self._before.append(
            f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - 1}" height="{self.y + 12 - top}" '
            f'rx="6" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        )
        self.y += 34

    def end(self) -> str:
        """Let the lanes end, and return all that was drawn."""
        bottom = self.y - 12
        for lane, top in self._tops:
            path = f"M{self._x[lane.name]} {top}V{bottom}"
            # Who signs is a process, which comes and goes.
            self._line(path, *((FAINT, DOTTED) if lane.colour else (QUIET, "")), behind=True)
        self._end_of_process(bottom)
        return "\n".join(f"  {part}" for part in (*self._behind, *self._before))

    def _end_of_process(self, y: int) -> None:
        name, top = self._alive
        if name:
            path = f"M{self._x[name]} {top}V{y}"
            self._line(path, self._colour[name], ' stroke-linecap="round"', width=3.2)

    def _arrow(self, start: int, end: int, colour: str, more: str = "") -> None:
        way = 1 if end > start else -1
        self._line(f"M{start} {self.y}H{end - way * 8}", colour, more)
        self._before.append(f'<path d="M{end - way} {self.y}l{-way * 8} -4.5v9z" fill="{colour}"/>')

    def _line(
        self, path: str, colour: str, more: str = "", *, width: float = 1.6, behind: bool = False
    ) -> None:
        line = f'<path d="{path}" stroke="{colour}" stroke-width="{width}" fill="none"{more}/>'
        (self._behind if behind else self._before).append(line)

    def _circle(self, x: int, y: int, fill: str, radius: float = 4.5) -> None:
        stroke = ' stroke="currentColor" stroke-width="1.6"' if fill == "none" else ""
        self._before.append(f'<circle cx="{x}" cy="{y}" r="{radius}" fill="{fill}"{stroke}/>')

    def _lines(self, x: int, text: str) -> None:
        for line in text.split("\n"):
            self._text(x, self.y, line)
            self.y += LINE

    def _text(
        self,
        x: int,
        y: int,
        text: str,
        colour: str = "currentColor",
        *,
        bold: int = 0,
        more: str = "",
        before: str = "",
    ) -> None:
        """Write a line, `bold` in this size, after a tag `before` it."""
        more += f' font-size="{bold}" font-weight="650"' if bold else ""
        text = before + escape(text)
        self._before.append(f'<text x="{x}" y="{y}" fill="{colour}"{more}>{text}</text>')
