"""Each deployment of the zoo: how it is made, what is wrong with it, and what must be found.

A finding stands as its id and its place, seen from the folder of the deployment. That an anchor has
the owner and the device of its storage, as all of these do, is left out.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from safepoint import (
    Approver,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
    SQLiteCheckpointStorage,
    open_ledger,
)
from safepoint.models import seal_model
from safepoint.resume.answers import Answers
from tests.house import rewrite
from tests.unit.commands import said
from tests.zoo import others
from tests.zoo.build import (
    EVIL,
    NAME,
    PLAIN,
    THREAD,
    Build,
    Deployed,
    based,
    database,
    folder,
    journal,
    key,
    safetensors,
    torch_file,
    write,
    zipped,
)


@dataclass(frozen=True, slots=True)
class Case:
    """A deployment.

    Attributes:
        kind: what kind of place it is, for the page.
        what: what is wrong with it, or why it is good, for the page.
        status: the exit status of the command.
        found: the findings, each as its id and its place.
        build: makes it in a folder, and returns what to give to the command; None if that is
            the one folder there.
    """

    kind: str
    what: str
    status: int
    found: tuple[str, ...]
    build: Build


CASES: Final[dict[str, Case]] = {}
"""Each by its name, the good ones of a kind last."""

Plant = Callable[[Deployed], list[str] | None]


class Put(Protocol):
    """Puts a deployment into the zoo, under the name of the function that makes it."""

    def __call__(self, what: str, *found: str, status: int = 1) -> Callable[[Build], Build]: ...


def of_kind(kind: str) -> Put:
    """Return how to put deployments of a kind into the zoo."""

    def case(what: str, *found: str, status: int = 1) -> Callable[[Build], Build]:
        def put(build: Build) -> Build:
            listed = tuple(each for text in found for each in text.split(", "))
            CASES[build.__name__.replace("_", "-")] = Case(kind, what, status, listed, build)
            return build

        return put

    return case


def stored(
    what: str, *found: str, status: int = 1, database: bool = False
) -> Callable[[Plant], Plant]:
    """Put what is done to a store, in files or in SQLite, into the zoo."""
    case = of_kind("A store in SQLite" if database else "A store in files")

    def put(plant: Plant) -> Plant:
        def build(root: Path) -> list[str]:
            deployed = Deployed(root, database=database)
            return plant(deployed) or deployed.arguments()

        build.__name__ = plant.__name__
        case(what, *found, status=status)(build)
        return plant

    return put


case = of_kind("A store in files")


@stored("Everybody can list the folder of the store.", "SP01.readable state")
def readable_store(deployed: Deployed) -> None:
    deployed.storage.chmod(0o755)


@stored(
    "Everybody can write the folder of the store, so nothing in it is verified.",
    "SP01.readable state, SP02.not-verified state, SP04.writable state",
)
def writable_store(deployed: Deployed) -> None:
    deployed.storage.chmod(0o777)


@stored("A group can rename what is in the folder above the store.", "SP01.group .")
def group_above(deployed: Deployed) -> None:
    deployed.root.chmod(0o770)


@stored("The state of a record was edited.", "SP12.seal-broken order-7")
def edited_record(deployed: Deployed) -> None:
    record = deployed.record(2)
    record.write_bytes(record.read_bytes().replace(b"amount\1", b"amount\x09"))


@stored("A record in the middle is gone.", "SP13.rolled-back order-7")
def gap(deployed: Deployed) -> None:
    deployed.record(2).unlink()


@stored("The newest record was cut off, and the anchor knows of it.", "SP15.rolled-back order-7")
def rolled_back(deployed: Deployed) -> None:
    deployed.record(3).unlink()


@stored(
    "The newest record was cut off, and without an anchor nobody can tell.",
    "SP15.no-anchor invoices",
)
def no_anchor(deployed: Deployed) -> list[str]:
    deployed.record(3).unlink()
    return deployed.arguments(anchor=None)


@stored(
    "The anchor is inside the store: a rollback of one is a rollback of both.",
    "SP02.not-verified state, SP10.format state/anchor/heads.db",
    "SP15.configuration-error state, SP22.together state/anchor",
)
def anchor_inside(deployed: Deployed) -> None:
    inside = deployed.closed().anchor.parent.rename(deployed.storage / "anchor")
    deployed.anchor = inside / "heads.db"


@stored("The anchor never heard of the thread.", "SP15.never-anchored order-7")
def never_anchored(deployed: Deployed) -> None:
    shutil.rmtree(deployed.anchor.parent)
    SQLiteAnchor(deployed.anchor, create=True).close()


@stored("The secret key is in the store.", "SP04.other-kind state/key, SP08.inside state/key")
def key_in_the_store(deployed: Deployed) -> None:
    shutil.copy(deployed.root / "keys/key", deployed.storage / "key")


@case(
    "The settings name a key below a file.",
    "SP02.not-verified state, SP22.other-kind keys/key, SP22.unsafe keys/key/key",
    "SP22.unseen keys/key/key",
)
def key_below_a_file(root: Path) -> list[str]:
    return Deployed(root).arguments(key=[root / "keys/key/key"])


@case(
    "The store is sealed but no key was given, so nobody verified it.",
    "SP02.no-key state",
    status=2,
)
def no_key_given(root: Path) -> list[str]:
    return [str(Deployed(root).closed().storage)]


@stored(
    "There is a pickle between the records.",
    "SP02.seal-broken order-8, SP03.runs-code state/order-8/0000000001.checkpoint",
    "SP10.format state/order-8/0000000001.checkpoint",
)
def pickle_in_the_store(deployed: Deployed) -> None:
    write(deployed.storage / "order-8/0000000001.checkpoint", EVIL)


@stored("A worker died with a thread in its hands.", "SP07.abandoned state/order-7")
def abandoned_thread(deployed: Deployed) -> None:
    lease = "safepoint-lease/1 5 worker-1 2020-01-01T00:00:00.000000Z\n"
    write(deployed.storage / f"{THREAD}/lease", lease)


@case("Threads of tenants, and one that is nobody's.", "SP30.mixed invoices")
def mixed_tenants(root: Path) -> list[str]:
    deployed = Deployed(root, tenant="acme")
    deployed.save("order-8")
    return deployed.arguments()


@case("A tenant's record is stored with another tenant's.", "SP30.seal-broken @acme/order-7")
def tenants_swapped(root: Path) -> list[str]:
    deployed = Deployed(root, tenant="acme")
    deployed.save(tenant="globex")
    acme, globex = (deployed.storage / f"@{each}/{THREAD}" for each in ("acme", "globex"))
    name = "0000000003.checkpoint"
    (acme / name).write_bytes((globex / name).read_bytes())
    return deployed.arguments()


@stored("The journal has a gap.", "SP20.seal-broken journal/journal.db")
def journal_gap(deployed: Deployed) -> list[str]:
    more = journal(deployed.root)
    gone = "DELETE FROM checkpoints WHERE sequence = 2"
    rewrite(deployed.root / "journal/journal.db", gone)
    return deployed.arguments(**more)


@stored(
    "A link leads out of the store, where nobody looks.",
    "SP02.empty state, SP03.unseen-link state/order-7, SP04.link state/order-7",
)
def linked_thread(deployed: Deployed) -> None:
    (deployed.storage / THREAD).rename(deployed.root / "elsewhere")
    (deployed.storage / THREAD).symlink_to(deployed.root / "elsewhere")


@stored("A store in files with its keys and its anchor apart.", status=0)
def good_files(_: Deployed) -> None:
    pass


@stored(
    "A key was replaced, and what the old one sealed still verifies.",
    "SP08.retired-in-use KEY",
    status=0,
)
def good_rotation(deployed: Deployed) -> list[str]:
    ring = Keyring(key(deployed.root, "new"), verify=[key(deployed.root)])
    ledger = Ledger(deployed.ledger.storage, store=NAME, keys=ring, anchor=deployed.ledger.anchor)
    ledger.save(THREAD, {"amount": 3})
    return deployed.arguments(key=[deployed.root / "keys/new", deployed.root / "keys/key"])


@case(
    "A store with a place for answers, people who may approve, and a run that an operator holds.",
    "SP31.held order-7",
    status=0,
)
def good_answers(root: Path) -> list[str]:
    return _with_answers(root)


def _with_answers(root: Path, *, left_open: str = "") -> list[str]:
    deployed, people = Deployed(root), {}
    for name in ("dana", "omar"):
        people[name] = SigningKey.generate()
        people[name].public.to_file(folder(root / "people" / name) / f"{name}.pub")
    if left_open:
        people["omar"].to_file(root / "people/omar/omar.key")
        secret = (root / "people/omar/omar.key").read_text()
        write(root / "people/omar/omar.key", left_open.format(secret))
    with (
        SQLiteCheckpointStorage(root / "answers/answers.db") as storage,
        SQLiteAnchor(root / "answers-anchor/heads.db", create=True) as anchor,
    ):
        Answers(storage, anchor).hold(Approver("omar", people["omar"]), NAME, THREAD)
    return deployed.arguments(
        approvers=root / "people/dana",
        operators=root / "people/omar",
        answers=root / "answers/answers.db",
        answers_anchor=root / "answers-anchor/heads.db",
    )


@case(
    "The operator's secret key is readable by others, next to the public one.",
    "SP21.open-key people/omar/omar.key, SP31.held order-7",
)
def open_operator(root: Path) -> list[str]:
    return _with_answers(root, left_open="# of omar\nKEY='{}'\n")


@case(
    "An approver carries each approval to a worker by hand: no answers are configured.",
    "SP21.no-answers invoices",
    status=0,
)
def good_carried(root: Path) -> list[str]:
    SigningKey.generate().public.to_file(folder(root / "people") / "dana.pub")
    return Deployed(root).arguments(approvers=root / "people")


@case(
    "A revoked operator's secret key is readable by others. The operator's holds remain.",
    "SP21.no-operator invoices, SP31.held order-7",
    status=0,
)
def good_revoked_operator(root: Path) -> list[str]:
    told = _with_answers(root, left_open="{}")
    (folder(root / "people/omar/revoked") / "omar.pub").hardlink_to(root / "people/omar/omar.pub")
    return told


@case("Somebody edited an operator's hold, to let the run go on.", "SP31.seal-broken order-7")
def edited_hold(root: Path) -> list[str]:
    arguments = _with_answers(root)
    edit = "UPDATE checkpoints SET record = CAST(replace(record, 'order-7', 'order-8') AS blob)"
    database(root / "answers/answers.db", edit)
    return arguments


@stored(
    "A pickle is a record of the database. No key was given.",
    "SP02.no-key state/checkpoints.db, SP03.record order-7",
    database=True,
)
def pickle_in_a_row(deployed: Deployed) -> list[str]:
    deployed.closed()
    edit = f"UPDATE checkpoints SET record = x'{EVIL.hex()}' WHERE sequence = 2"  # noqa: S608
    database(deployed.storage, edit)
    return [str(deployed.storage)]


@stored("The secret key is next to the database.", "SP08.inside state/key", database=True)
def key_beside_the_database(deployed: Deployed) -> None:
    shutil.copy(deployed.root / "keys/key", deployed.root / "state/key")


case = of_kind("What other frameworks keep")


@case(
    "A folder of Agent Framework's FileCheckpointStorage: its JSON carries pickles.",
    "SP02.unsealed state, SP03.pickle state/made.json, SP10.format state/made.json",
    "SP12.unsealed-state state",
)
def agent_framework_folder(root: Path) -> None:
    others.framework(folder(root / "state"))


@case(
    "A database of LangGraph's `SqliteSaver` with a pickle that runs code, in a row"
    " that says msgpack.",
    "SP03.pickle-rows state/langgraph.db, SP03.runs-code state/langgraph.db",
    "SP10.row-types state/langgraph.db, SP12.unsealed-state state/langgraph.db",
    "SP19.unsigned-approvals state/langgraph.db",
)
def langgraph_runs_code(root: Path) -> None:
    others.langgraph(root / "state/langgraph.db", pickles=EVIL, kind="msgpack")


@case(
    "A home of OpenClaw that everybody can read, and in part write, with approvals that nobody"
    " signed.",
    "SP01.group openclaw/agents/main, SP01.readable openclaw",
    "SP04.mode openclaw/exec-approvals.json, SP04.replaceable openclaw/agents/main/agent",
    "SP12.unsealed-state openclaw/agents/main/agent/openclaw-agent.sqlite",
    "SP12.unsealed-state openclaw/state/openclaw.sqlite",
    "SP13.transcripts openclaw/agents/main/sessions, SP19.unsigned-approvals openclaw",
    "SP19.unsigned-approvals openclaw/state/openclaw.sqlite, SP22.gateway openclaw",
)
def openclaw_home(root: Path) -> None:
    others.everything(root / "openclaw")
    for name, mode in ((".", 0o755), ("exec-approvals.json", 0o644), ("agents/main", 0o777)):
        (root / "openclaw" / name).chmod(mode)


@case(
    "The states of Lobster's runs: anyone who can write the folder can resume them.",
    "SP01.group lobster, SP01.readable lobster/state, SP04.writable lobster/state",
    "SP04.writable lobster/state/workflow_resume_1.json, SP12.unsigned-resume lobster/state",
)
def lobster_state(root: Path) -> None:
    others.put(root / "lobster/state/pipeline_resume_1.json", others.RESUME)
    others.put(root / "lobster/state/workflow_resume_1.json", others.WORKFLOW, 0o664)
    for each in (root / "lobster", root / "lobster/state"):
        each.chmod(0o775)


@case("A database that nobody here knows.", "SP02.foreign-database state/notes.db")
def unknown_database(root: Path) -> list[str]:
    notes = "CREATE TABLE notes (text)", "INSERT INTO notes VALUES ('Remember the milk.')"
    return [str(database(root / "state/notes.db", *notes).parent)]


@case(
    "A cache of Hugging Face with a model as safetensors.",
    "SP24.unsealed hub/models--org--net/blobs/0a, SP25.skipped hub",
    status=0,
)
def good_cache(root: Path) -> list[str]:
    weights = safetensors(root / "net").read_bytes()
    others.cached(root / "hub", weights=weights, name="model.safetensors")
    return [str(root / "hub")]


@case(
    "A cache of Hugging Face with a link that leaves it: what it leads to is looked at.",
    "SP24.runs-code hub/models--org--net/blobs/0a, SP25.skipped hub",
    "SP24.unsealed hub/models--org--net/snapshots/" + "0" * 40 + "/model.bin",
    "SP25.lies hub/models--org--net/snapshots/" + "0" * 40 + "/model.bin",
)
def cache_that_leads_out(root: Path) -> list[str]:
    safetensors(root / "net")
    others.cached(root / "hub", str(root / "net"))
    return [str(root / "hub")]


@case(
    "A Hugging Face cache with a model's own code: only the link has the file's name.",
    f"SP24.sl02 hub/models--org--net/snapshots/{'0' * 40}/net.py",
    "SP25.skipped hub, SP27.no-test hub",
)
def code_in_a_cache(root: Path) -> list[str]:
    others.cached(root / "hub", weights=LOAD.encode(), name="net.py")
    return [str(root / "hub")]


case = of_kind("Models, and code that loads them")


@case(
    "Files of PyTorch, of today and from before 1.6, without a seal.",
    "SP24.unsealed models/net.pt, SP24.unsealed models/old.bin, SP25.torch models/old.bin",
    "SP25.torch models/net.pt",
)
def torch_files(root: Path) -> None:
    torch_file(root / "models/net.pt")
    torch_file(root / "models/old.bin", legacy=True)


@case(
    "A model that needs code of its library, one that was cut off, and JSON under a model's name.",
    "SP24.needs-code models/yolo.pt, SP24.unsealed models/cut.pt, SP24.unsealed models/net.bin",
    "SP24.unsealed models/yolo.pt, SP25.damaged models/cut.pt, SP25.named models/net.bin",
)
def models_in_doubt(root: Path) -> None:
    needs = b"cultralytics.nn.modules.conv\nConv\n."
    write(root / "models/yolo.pt", zipped({"yolo/data.pkl": needs, "yolo/version": b"3"}))
    write(root / "models/cut.pt", zipped({"net/data.pkl": PLAIN, "net/version": b"3"})[:-9])
    write(root / "models/net.bin", '{"a": 1}')


@case(
    "A pickle with the name of safetensors.",
    "SP24.unsealed models/net.safetensors, SP25.lies models/net.safetensors",
)
def safetensors_that_lie(root: Path) -> None:
    write(root / "models/net.safetensors", PLAIN)


@case(
    "Code that loads models unsafely, without a test that says so.",
    "SP03.sl08 app/read.py, SP24.sl02 app/train.py, SP27.no-test app",
)
def unsafe_loads(root: Path) -> None:
    write(root / "app/train.py", 'import torch\n\nnet = torch.load("net.pt", weights_only=False)\n')
    write(root / "app/read.py", 'import pickle\n\npickle.load(open("x", "rb"))\n')


GGUF, SEALED = (f"SP24.not-verified models/net.{each}" for each in ("gguf", "safetensors"))


@case("A model as safetensors, and one of GGUF, with their seals.", GGUF, SEALED, status=0)
def good_model(root: Path) -> list[str]:
    made = safetensors(root / "models/net.safetensors", sealed=key(root))
    seal_model(write(made.with_suffix(".gguf"), b"GGUF\3" + bytes(19)), key=key(root))
    return [str(made.parent)]


case = of_kind("What cannot be seen")


@case(
    "A pipe among the models: reading it would never end.",
    "SP03.unseen models/model.pt, SP24.unsealed models/net.safetensors",
)
def pipe(root: Path) -> None:
    safetensors(root / "models/net.safetensors")
    os.mkfifo(root / "models/model.pt", 0o600)


@case(
    "Folders that are deeper than anybody looks.",
    "SP24.unsealed models/net.safetensors",
    "SP03.unseen models/" + "/".join("d" * 65),
)
def too_deep(root: Path) -> None:
    safetensors(root / "models/net.safetensors")
    write(root / "models" / "/".join("d" * 300) / "net.pkl", EVIL)


@case("Nothing that anybody knows.", "SP02.unrecognised notes, SP25.skipped notes", status=2)
def unknown_files(root: Path) -> None:
    write(root / "notes/readme", "Remember the milk.\n")


@case("An empty folder.", "SP02.empty state", status=2)
def empty_folder(root: Path) -> list[str]:
    return [str(folder(root / "state"))]


@case("There is nothing at the path.", "audit.failed none", status=2)
def missing_path(root: Path) -> list[str]:
    return [str(root / "none")]


@case(
    "A project with everything: a store, a key, JSON with tags, a model and code.",
    "SP01.work-tree project/anchor, SP01.work-tree project/cache",
    "SP01.work-tree project/state, SP02.no-key project/state, SP02.unsealed project/cache",
    "SP10.format project/cache/order-7.json, SP22.key-mode project/keys/key",
    "SP22.key-work-tree project/keys/key, SP24.runs-code project/models/net.pkl",
    "SP24.sl02 project/app/train.py, SP24.unsealed project/models/net.safetensors",
    "SP25.skipped project, SP27.no-test project",
)
def mixed_project(root: Path) -> list[str]:
    project = root / "project"
    Deployed(project)
    (project / "keys/key").chmod(0o640)
    write(project / "cache/order-7.json", '{"py/object": "app.Order"}')
    write(project / "models/net.pkl", EVIL)
    safetensors(project / "models/net.safetensors")
    write(
        project / "app/train.py", 'import torch\n\nnet = torch.load("net.pt", weights_only=False)\n'
    )
    folder(project / ".git")
    return [str(project)]


case = of_kind("What settings name")
SETTINGS: Final = """
[audit]
paths = ["models"]

[stores.invoices]
storage = "state"
key = ["keys/key"]
anchor = "anchor/heads.db"
"""
ACCEPT: Final = """
[[audit.accept]]
id = "{}"
place = "{}"
reason = "Read by the nightly job alone."
until = {}
"""
LATER: Final = "9999-12-31"


@case(
    "Of two accepted findings one is over.",
    "SP24.unsealed models/old.pkl, SP24.unsealed models/older.pkl",
    "SP25.pickle models/old.pkl accepted, SP25.pickle models/older.pkl",
    "audit.expired safepoint.toml",
)
def accepted_badly(root: Path) -> list[str]:
    Deployed(root)
    for name in ("old", "older"):
        write(root / f"models/{name}.pkl", PLAIN)
    accepted = [
        ACCEPT.format("SP25.pickle", "models/old.pkl", LATER),
        ACCEPT.format("SP25.pickle", "models/older.pkl", "2020-01-01"),
    ]
    return ["--config", str(write(root / "safepoint.toml", SETTINGS + "".join(accepted)))]


def _settings(root: Path) -> list[str]:
    Deployed(root)
    only = SETTINGS.replace('paths = ["models"]', "")
    return ["--config", str(write(root / "safepoint.toml", only))]


@case(
    "The key of such a store is not there, and everybody can read a record of it.",
    "SP02.not-verified state, SP04.mode state/order-7/0000000002.checkpoint, SP22.unsafe keys/key",
)
def missing_key_of_settings(root: Path) -> list[str]:
    arguments = _settings(root)
    (root / "keys/key").unlink()
    (root / "state/order-7/0000000002.checkpoint").chmod(0o644)
    return arguments


@case("What `safepoint init` makes in the default places, with a first run in it.", status=0)
def good_init(root: Path) -> list[str]:
    said("init", NAME)
    ledger = open_ledger(NAME)
    ledger.save(THREAD, {"amount": 1})
    for each in (ledger.storage, ledger.anchor):
        each.close()  # type: ignore[union-attr]
    return ["--store", NAME]


case = of_kind("What tries to hide")
LOAD: Final = 'import torch\n\ntorch.load("net.pt", weights_only=False)\n'
LOADED: Final = ("SP24.sl02 app/a.py", "SP27.no-test app")
TOUCHED: Final = '{"lastTouchedVersion": "2099.1.1"'
CLAW: Final = ("SP22.gateway home",)


@case(
    "The same thread is forged in two stores. One of the two was accepted.",
    "SP12.seal-broken order-7 accepted, SP12.seal-broken order-7",
)
def forged_twins(root: Path) -> list[str]:
    text = ACCEPT.format("SP12.seal-broken", "one/state#order-7", LATER)
    text += ACCEPT.format("SP12.seal-broken", "order-7", LATER)  # which may be either
    for name in ("one", "two"):
        record = Deployed(root / name, name=name).record(3)
        forged = record.read_bytes().replace(b"amount\x02", b"amount\x09")
        record.unlink()
        write(record, forged)
        text += f'\n[stores.{name}]\nstorage = "{name}/state"\nkey = ["{name}/keys/key"]\n'
        text += f'anchor = "{name}/anchor/heads.db"\n'
    return ["--config", str(write(root / "safepoint.toml", text))]


@case(
    "A database of LangGraph with pickles, that says it is an anchor.",
    "SP15.unavailable state/heads.db",
)
def called_an_anchor(root: Path) -> None:
    others.langgraph(root / "state/heads.db", pickles=b"\x80\x04K\x01.")
    database(root / "state/heads.db", f"PRAGMA application_id = {0x53465041}")


@case(
    "An anchor that everybody can write.",
    "SP01.readable anchor, SP04.writable anchor, SP04.writable anchor/heads.db",
)
def open_anchor(root: Path) -> list[str]:
    SQLiteAnchor(folder(root / "anchor") / "heads.db", create=True).close()
    (root / "anchor/heads.db").chmod(0o666)
    (root / "anchor").chmod(0o777)
    return [str(root)]


@case(
    "A pickle and a folder of pickles next to an anchor, with names that SQLite gives its files.",
    "SP04.other-kind anchor/heads.db-wal, SP13.stray anchor/heads.db-shm",
    "SP13.stray anchor/heads.db-wal, SP24.runs-code anchor/heads.db-shm",
    "SP24.runs-code anchor/heads.db-wal/net.pkl",
)
def beside_a_database(root: Path) -> None:
    SQLiteAnchor(folder(root / "anchor") / "heads.db", create=True).close()
    write(root / "anchor/heads.db-shm", EVIL)
    write(root / "anchor/heads.db-wal/net.pkl", EVIL)


@case(
    "The form of a Hugging Face cache around pickles, and around code that loads one.",
    "SP24.runs-code app/models--a--b/blobs/abc, SP24.runs-code app/models--a--b/net.pkl",
    "SP24.runs-code app/net.pkl, SP25.skipped app",
    *LOADED,
)
def form_of_a_cache(root: Path) -> None:
    repo = root / "app/models--a--b"
    write(repo / "refs/main", "a" * 40)
    write(repo / "snapshots/x/readme.txt", "Read me.\n")
    for file in (repo / "blobs/abc", repo / "net.pkl", root / "app/net.pkl"):
        write(file, EVIL)
    write(root / "app/a.py", LOAD)


@case("Code that begins as the seal of a model does.", "SP02.no-key app/a.py", *LOADED)
def code_as_a_seal(root: Path) -> list[str]:
    safetensors(root / "net.safetensors", sealed=key(root))
    line = (root / "net.safetensors.seal").read_bytes().split(b"\n")[1].decode()
    write(root / "app/a.py", f'safepoint/1 if 0 else """\n{line}\n"""\n{LOAD}')
    return [str(root / "app")]


@case(
    "YAML that begins as a key does, and names a function.",
    "SP02.unsealed state, SP10.format state/a.yaml",
)
def yaml_as_a_key(root: Path) -> None:
    text = "ssh-ed25519 AAAA x: 1\ny: !!python/object/apply:os.system [id]\n"
    write(root / "state/a.yaml", text)


@case(
    "Settings of OpenClaw that carry a pickle in base64.",
    "SP02.unsealed home, SP03.runs-code home/openclaw.json, SP10.format home/openclaw.json",
    *CLAW,
)
def pickle_in_settings(root: Path) -> None:
    text = f'{TOUCHED}, "x": {{"__pickled__": "{based(EVIL)}", "__type__": "a:b"}}}}'
    write(root / "home/openclaw.json", text)


CACHES: Final = ("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache")


@case(
    "A link to a pickle in the folder of git, and pickles in caches of tools, in what is called an"
    " environment, and in a folder of packages.",
    "SP24.runs-code app/.tox/net.pkl, SP24.runs-code app/net.pkl, SP25.skipped app",
    "SP25.not-entered app/.svn, SP25.not-entered app/node_modules, SP25.not-entered app/state",
    *(f"SP24.runs-code app/{name}/net.pkl" for name in CACHES),
)
def where_nobody_looks(root: Path) -> None:
    for name in (".git", ".svn", ".tox", "node_modules", "state", *CACHES):
        write(root / f"app/{name}/net.pkl", EVIL)
    write(root / "app/state/pyvenv.cfg", "")
    (root / "app/net.pkl").symlink_to(".git/net.pkl")


OPAQUE: Final = {
    "deflated": zlib.compressobj(wbits=-15).flush(zlib.Z_FINISH) + bytes(range(256)),
    "compiled": b"\xcb\r\r\n" + bytes(12) + b"\xe3" + bytes(30),
    "program": b"\x7fELF" + bytes(60),
    "too-long": b"# a\n" * 5_000_000 + b"!!python/object/apply:os.system [id]\n",
}


@case(
    "Code next to files that cannot be read at all, or not to their end.",
    *(f"SP25.opaque app/{name}" for name in OPAQUE),
    status=2,
)
def opaque_files(root: Path) -> None:
    write(root / "app/a.py", "")
    for name, data in OPAQUE.items():
        write(root / "app" / name, data)


@case(
    "A project with history, caches, pictures, texts and translations.",
    "SP25.skipped app",
    status=0,
)
def good_project(root: Path) -> list[str]:
    app = root / "app"
    for name, data in {
        ".git/index": b"DIRC\0\0\0\2",
        "__pycache__/a.cpython-313.pyc": b"\xf3\r\r\n\0",
        ".mypy_cache/3.13/a.data.json": b"{}",
        "a.py": b"",
        "logo.png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
        "font.woff2": b"wOF2\0\1\0\0" + bytes(99),
        "app.mo": b"\xde\x12\4\x95\0\0\0\0" + bytes(20),
        "README.md": "Zuerst: \u00e4ndern.\n".encode(),
        "old.txt": "Zuerst: \u00e4ndern.\n".encode("latin-1"),
        "words": b"words\nclass\nmusic\ncat\ndog\nRat\n2022\n(cat\ndog\ncache\nbuild\n.venv\n",
    }.items():
        write(app / name, data)
    (app / "latest.md").symlink_to("README.md")
    return [str(app)]
