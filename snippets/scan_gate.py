"""Gate on a scanner's report: nothing found, and every file scanned."""

import pickle
from pathlib import Path

from modelscan.modelscan import ModelScan


def gate(folder):
    files = {
        str(path.relative_to(folder))
        for path in Path(folder).rglob("*")
        if path.is_file()
    }
    if not files:
        return "stop: there is nothing to scan"
    report = ModelScan().scan(folder)
    if report["issues"] or report["errors"]:
        return "stop: it found something, or it failed"
    scanned = report["summary"]["scanned"].get("scanned_files", [])
    # A model file is scanned by its members: model.pt:model/data.pkl
    seen = {name.partition(":")[0] for name in scanned}
    if files - seen:
        return f"stop: not scanned: {sorted(files - seen)}"
    return "a person may look at it"


if __name__ == "__main__":
    Path("inbox").mkdir()
    content = pickle.dumps({"amount": 42})
    Path("inbox/honest.pkl").write_bytes(content)
    print(gate("inbox"))
    #> a person may look at it
    Path("inbox/honest.model").write_bytes(content)
    print(gate("inbox"))
    #> stop: not scanned: ['honest.model']
