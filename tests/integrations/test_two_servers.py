"""Two processes of uvicorn, and requests for one thread at once: one run completes, always."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.harness.optional import need

need("langgraph", "needs safepoint[langgraph]")
need("uvicorn", "needs safepoint[console]")

import httpx

from safepoint.command.cli import main

APP = """
import asyncio, operator, os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, TypedDict

from langgraph.graph import StateGraph
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from safepoint import CheckpointError
from safepoint.core.errors import Conflict, NotOwner
from safepoint.langgraph import SealedSaver


class State(TypedDict):
    steps: Annotated[list[str], operator.add]


async def work(state):
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return {"steps": [f"work {os.getpid()}"]}


async def end(state):
    return {"steps": ["end"]}


@asynccontextmanager
async def lifespan(app):
    saver = SealedSaver.from_settings("support", worker=f"agent-{os.getpid()}")
    graph = StateGraph(State).add_sequence([work, end]).add_edge("__start__", "work")
    yield {"graph": graph.compile(saver)}


async def handle(request):
    run = {"configurable": {"thread_id": request.path_params["thread"]}}
    asked = request.query_params["asked"]
    return JSONResponse((await request.state.graph.ainvoke({"steps": [asked]}, run))["steps"])


async def refuse(request, error):
    is_busy = isinstance(error, NotOwner) or isinstance(error, Conflict) and error.kind == "busy"
    return JSONResponse(str(error), 409 if is_busy else 500)


app = Starlette(
    routes=[Route("/{thread}", handle)],
    exception_handlers={CheckpointError: refuse},
    lifespan=lifespan,
)
"""


@contextmanager
def served(folder: Path, name: str) -> Iterator[Callable[[], httpx.Client]]:
    """Serve the application in a process of its own; yield what waits for it, to ask it."""
    socket, log = folder / f"{name}.sock", folder / f"{name}.log"
    command = [sys.executable, "-m", "uvicorn", "app:app", "--uds", str(socket)]

    def client() -> httpx.Client:
        while "running on unix socket" not in log.read_text():
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        transport = httpx.HTTPTransport(uds=str(socket))
        return httpx.Client(transport=transport, base_url="http://app", timeout=600)

    with (
        log.open("wb") as out,
        subprocess.Popen(command, cwd=folder, stdout=out, stderr=out) as process,
    ):
        try:
            yield client
        finally:
            process.terminate()


def test_of_requests_at_two_servers_one_completes_and_the_thread_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pairs and eights: the others get one clear error, and nothing of them is kept."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    assert main(["init", "support"]) == 0
    (tmp_path / "app.py").write_text(APP)
    go = tmp_path / "go"
    with ExitStack() as stack:
        begun = [stack.enter_context(served(tmp_path, name)) for name in ("one", "two")]
        servers = [stack.enter_context(client()) for client in begun]
        pool = stack.enter_context(ThreadPoolExecutor(8))

        def ask(thread: str, number: int) -> httpx.Response:
            return servers[number % 2].get(f"/{thread}", params={"asked": f"request {number}"})

        for number, count in enumerate([2] * 3 + [8] * 3):
            thread = f"thread-{number}"
            go.unlink(missing_ok=True)
            asked = [pool.submit(ask, thread, each) for each in range(count)]
            while sum(each.done() for each in asked) < count - 1:
                time.sleep(0.01)
            go.touch()
            said = [each.result() for each in asked]
            ends = sorted(each.status_code for each in said)
            assert ends == [200, *[409] * (count - 1)], [each.text for each in said]
            winner = next(n for n, each in enumerate(said) if each.status_code == 200)
            mine, other = f"request {winner}", f"request {winner + 1}"
            assert said[winner].json()[::2] == [mine, "end"]
            for each in (winner + 1, winner):
                answer = ask(thread, each)
            assert [each for each in answer.json() if "work" not in each] == [
                *(mine, "end", other, "end", mine, "end")
            ]
