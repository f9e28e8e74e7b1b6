"""What an audit says, in each format; the exit status of it; and what somebody accepts."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from safepoint import settings
from safepoint.audit.accepting import accept, entries
from safepoint.audit.finding import (
    FAILED,
    WORST_FIRST,
    Finding,
    Report,
    Severity,
    Waiver,
    finding,
    worst_first,
)
from safepoint.audit.formats import FORMATS
from safepoint.core.errors import ConfigurationError
from safepoint.shared.terminal import Screen
from tests.unit.json_schemas import SARIF, complaints

TODAY = date(2026, 11, 17)
NOTE = finding("SP01.network", "/srv/state", kind="nfs")
WARNING = finding("SP03.pickle", "/srv/state/x", carries="is a pickle")
ERROR = finding("SP04.mode", "/srv/state/y", mode=0o666)
THREAD = finding("SP31.over", "order-7", last="order-7 #3", over=TODAY)
UNSEEN = replace(finding("SP13.unseen", "/srv/closed", reason="Permission denied"), seen=False)
MAY = Waiver("SP03.pickle", "x", "Moves in May.", date(2027, 5, 31), "")
OKAY, BLIND = (replace(each, accepted=MAY) for each in (ERROR, UNSEEN))
FAILURE = finding(
    FAILED, "db", check="records", place="db", why="It does not answer.", do="Start it."
)
LOOKED = ("/srv/state: a folder of records",)


def report(*findings: Finding) -> Report:
    return Report(LOOKED, tuple(worst_first(findings)))


# Of each report, the exit status if errors, warnings or notes fail it.
STATUS: dict[str, tuple[Report, str]] = {
    "clean": (report(), "000"),
    "a note": (report(NOTE), "001"),
    "a warning": (report(WARNING, NOTE), "011"),
    "an error": (report(ERROR, WARNING, THREAD), "111"),
    "an accepted error": (report(OKAY), "000"),
    "accepted, and another": (report(OKAY, WARNING), "011"),
    "not seen": (report(UNSEEN), "211"),
    "not seen, which is accepted": (report(BLIND), "000"),
    "a check failed": (report(FAILURE, ERROR), "222"),
    "nothing looked at": (Report((), ()), "222"),
}


def said(which: Report, name: str, fail_on: Severity = "warning") -> str:
    """What a format says, as a file gets it through the screen of the command."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n")
    with redirect_stdout(Screen(stream)):
        for line in FORMATS[name](which, fail_on):
            print(line)
    stream.seek(0)
    return stream.read()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("case", STATUS)
def test_each_format_says_all_of_it_and_the_status(case: str, name: str) -> None:
    which, statuses = STATUS[case]
    for fail_on, status in zip(WORST_FIRST, map(int, statuses), strict=True):
        assert which.status(fail_on) == status, fail_on
        text = said(which, name, fail_on)
        for each in which.findings:
            assert each.what in text
            assert each.do in text
            assert name == "text" or each.id in text or each == FAILURE
            if each.accepted is not None:
                assert each.accepted.reason in text
                assert str(each.accepted.until) in text
        assert name in ("sarif", "json") or "ooked at" in text.splitlines()[-1]
        if name == "json":
            told = json.loads(text)
            assert (told["format"], told["status"], told["fail_on"]) == (1, status, fail_on)
            assert told["looked_at"] == [*which.looked]
            assert [each["seen"] for each in told["findings"]] == [
                each.seen for each in which.findings
            ]
        if name == "sarif":
            (run,) = read_sarif(text)["runs"]
            (invocation,) = run["invocations"]
            assert invocation["exitCode"] == status
            assert invocation["executionSuccessful"] is (status != 2)


def read_sarif(text: str) -> Any:
    """Hold it against the schema, and let somebody else read it."""
    from sarif_pydantic import Sarif

    told = json.loads(text)
    assert complaints(SARIF, told) == []
    (run,) = Sarif.model_validate_json(text).runs
    for ours, theirs in zip(told["runs"][0]["results"], run.results or (), strict=True):
        assert (theirs.rule_id, theirs.level.value) == (ours["ruleId"], ours["level"])
        assert theirs.message.text == ours["message"]["text"]
        place = theirs.locations[0].physical_location.artifact_location
        assert place.uri == ours["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    driver = told["runs"][0]["tool"]["driver"]["rules"]
    tags = {each["id"]: each["properties"]["tags"] for each in driver}
    assert "external/cwe/cwe-502" in tags.get("SP03.pickle", ["external/cwe/cwe-502"])
    rules = {each["id"] for each in driver}
    assert rules == {each["ruleId"] for each in told["runs"][0]["results"]}
    return told


HOSTILE = "/srv/a:b,c%0A\n::error::x\r\x1b[31m\udcff\u202e[see](https://evil.example) 'é##[x]"


def test_a_name_writes_no_line_link_colour_or_half_a_character() -> None:
    bad = Finding("SP03.pickle", "warning", f"{HOSTILE} is bad.", "Mend it.", HOSTILE)
    failed = replace(FAILURE, what=f"{HOSTILE} fails.", where=HOSTILE)
    whole = report(bad, failed)
    whole = replace(whole, looked=(*LOOKED, "/srv/##[set-output name=sarif;]x"))
    for name in FORMATS:
        text = said(whole, name)
        assert all(line.isprintable() for line in text.splitlines())
        assert text.encode()
        assert "##[" not in text  # which a runner of GitHub obeys anywhere in a line
    shown = said(whole, "github").splitlines()
    assert [line.partition(" ")[0] for line in shown] == ["::error", "::warning", "Looked"]
    begin = r"::warning file=/srv/a%3Ab%2Cc%250A%0A%3A%3Aerror%3A%3Ax%0D\x1b[31m\udcff\u202e[see]("
    assert shown[1].startswith(begin)
    (result,) = read_sarif(said(whole, "sarif"))["runs"][0]["results"]
    assert "](" not in result["message"]["text"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.startswith("file:///srv/a%3Ab%2Cc%250A%0A%3A%3Aerror%3A%3Ax%0D%1B%5B31m%FF%E2%80%AE")
    where = json.loads(said(whole, "json"))["findings"][1]["where"]
    assert where == HOSTILE.replace("\udcff", r"\udcff")


def test_places_are_relative_to_here_and_a_thread_has_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GitHub refuses a whole log if one result is at no file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train me.py").write_text("")
    found = [
        replace(WARNING, where=where)
        for where in (f"{tmp_path}/models/x", "train me.py", "/srv/x", "order-7", "", str(tmp_path))
    ]
    results = read_sarif(said(report(*found), "sarif"))["runs"][0]["results"]
    places = [each["locations"][0] for each in results]
    uris = [each["physicalLocation"]["artifactLocation"]["uri"] for each in places]
    here = tmp_path.as_uri()
    settings = "safepoint.toml"
    assert uris == ["models/x", "train%20me.py", "file:///srv/x", settings, settings, here]
    assert [each.get("logicalLocations") for each in places if "logicalLocations" in each] == [
        [{"fullyQualifiedName": "order-7"}]
    ]
    load = replace(WARNING, where="train me.py", what="'train me.py':12:5 has SL01: it loads.")
    (shown, _) = said(report(load), "github").splitlines()
    assert shown.startswith("::warning file=train me.py,line=12,col=5,title=SP03.pickle::")
    (result,) = read_sarif(said(report(load), "sarif"))["runs"][0]["results"]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 12, "startColumn": 5}


def test_a_fingerprint_stays_when_the_words_change_and_no_two_are_one() -> None:
    def prints(*findings: Finding) -> list[str]:
        results = read_sarif(said(report(*findings), "sarif"))["runs"][0]["results"]
        return [each["partialFingerprints"]["place/v1"] for each in results]

    first = prints(ERROR, WARNING, WARNING, THREAD)
    assert len({*first}) == 4
    assert prints(replace(ERROR, what="It is 0777 now."), THREAD) == [first[0], first[3]]


# --- accepting ----------------------------------------------------------------------------------

FITS = {
    "the path itself": ("models/a.pkl", "/repo/models/a.pkl", True),
    "a folder": ("models", "/repo/models/old/a.pkl", True),
    "what begins like it": ("models", "/repo/models-2/a.pkl", False),
    "absolute": ("/srv/state", "/srv/state/x", True),
    "what is no path": ("order-7", "order-7", True),
    "a thread of a store": ("state#order-7", "/repo/state#order-7", True),
}


def entry(place: str, until: date = TODAY, which: str = "SP03.pickle") -> Waiver:
    return Waiver(which, place, "Moves in May.", until, "/repo/safepoint.toml")


@pytest.mark.parametrize("case", FITS)
def test_an_entry_accepts_its_place_alone(case: str) -> None:
    place, where, fits = FITS[case]
    store, _, thread = where.rpartition("#")
    found = accept([replace(WARNING, where=thread, store=store)], [entry(place)], "/repo", TODAY)
    assert [each.accepted is not None for each in found] == [fits]


def test_what_is_over_is_a_finding_and_hides_nothing() -> None:
    day = timedelta(days=1)
    wrong, over = accept([WARNING], [entry("/srv/state/x", TODAY - day)], "/repo", TODAY)
    assert wrong == WARNING
    assert (over.id, over.severity) == ("audit.expired", "warning")
    assert over.where == "/repo/safepoint.toml"
    assert "at '/srv/state/x' is over since 2026-11-16" in over.what
    # Of two the later one counts, and all that is accepted is still there.
    lasting = entry("/srv", TODAY + day)
    both = accept([WARNING, UNSEEN], [entry("/srv"), lasting], "/repo", TODAY)
    assert both == [replace(WARNING, accepted=lasting), UNSEEN]


GOOD = {"id": '"SP13.unseen"', "place": '"x"', "reason": '"Moves in May."', "until": "2027-05-31"}
REFUSED = {
    "no reason": ({"reason": None}, "has no reason"),
    "another key": ({"untli": "1"}, "has 1 as untli"),
    "a date in quotes": ({"until": '"2027-05-31"'}, "has '2027-05-31' as until"),
    "a rule": ({"id": '"SP03"'}, "has 'SP03' as id"),
    "no such id": ({"id": '"SP03.pickel"'}, "has 'SP03.pickel' as id"),
    "the audit's own": ({"id": '"audit.expired"'}, "has 'audit.expired' as id"),
}


def written(folder: Path, changes: dict[str, str | None]) -> Path:
    told = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    lines = [f"{name} = {value}" for name, value in told.items()]
    (folder / "safepoint.toml").write_text("\n".join(["[[audit.accept]]", *lines]))
    return folder / "safepoint.toml"


@pytest.mark.parametrize("case", REFUSED)
def test_an_entry_that_is_not_whole_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    changes, why = REFUSED[case]
    file = written(tmp_path, changes)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError) as refusal:
        entries(settings.read(file))
    assert f"{file}: entry 1 of audit.accept" in str(refusal.value)
    assert why in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_entries_are_tables(tmp_path: Path) -> None:
    file = tmp_path / "safepoint.toml"
    file.write_text("audit.accept = 3")
    with pytest.raises(ConfigurationError, match="is not a list of tables"):
        entries(settings.read(file))
