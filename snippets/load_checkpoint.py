"""Load a PyTorch checkpoint without running its code, or raise."""

import inspect
import os
import re
import warnings

import torch

VARIABLE = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?(a|b|rc|\.?dev)?")
BEGINNINGS = (b"PK", b"\x80\x02\x8a\nl\xfc")  # today's, the older
BY_TORCH = ("torch._dynamo.", "torch.distributed.", "torch.nested.")


def load_checkpoint(path, *, safe=True):
    """safe=False is for files that you made and nobody changed."""
    if safe is not True and safe is not False:
        raise TypeError("safe is True or False. Nothing was loaded.")
    with open(path, "rb") as file:
        if safe:
            for weakness in weaknesses():
                raise RuntimeError(f"{weakness}. Nothing was loaded.")
            try:
                return torch.load(
                    file, weights_only=True, map_location="cpu"
                )
            except Exception:  # whatever the file makes it raise
                problem = f"{path} {what_is_wrong(file)}"
            raise RuntimeError(f"{problem}. Nothing was loaded.")
        said = f"{path} is loaded without restriction; it can run code."
        warnings.warn(said, stacklevel=2)
        if not has_flag():
            # safepoint: allow SL01 it is from before the flag
            return torch.load(file, map_location="cpu")  # nosec B614
        # safepoint: allow SL02 the caller wrote safe=False
        return torch.load(  # nosec B614
            file, weights_only=False, map_location="cpu"
        )


def what_is_wrong(file):
    """PyTorch's own text recommends to switch the protection off."""
    try:
        file.seek(0)
        look = torch.serialization.get_unsafe_globals_in_checkpoint
        names = sorted(look(file))
    except Exception:
        names = []
    if names:
        return f"wants {', '.join(names)}"
    file.seek(0)
    begins = file.read(6)
    ours = not begins or begins.startswith(BEGINNINGS)
    return "is damaged" if ours else "is not a PyTorch file"


def has_flag():
    # By its signature: a file can raise TypeError, too.
    return "weights_only" in inspect.signature(torch.load).parameters


def release(found):
    return int(found[1]), int(found[2]), not found[3]


def weaknesses():
    """Yield why weights_only does not keep its promise here."""
    version = str(torch.__version__)
    if not has_flag():
        yield f"PyTorch {version} has no weights_only"
    found = VERSION.match(version)
    if not found or release(found) < (2, 10, True):
        cves = "CVE-2025-32434 (< 2.6), CVE-2026-24747 (< 2.10.0)"
        yield f"PyTorch {version} breaks weights_only: {cves}"
    code = getattr(torch.load, "__code__", None)
    if not code or code.co_filename != torch.serialization.__file__:
        yield "torch.load is not PyTorch's own"
    if os.environ.get(VARIABLE, "0") not in ("", "0"):
        yield f"{VARIABLE} is set"
    for entry in torch.serialization.get_safe_globals():
        allowed = entry[0] if isinstance(entry, tuple) else entry
        module = str(getattr(allowed, "__module__", ""))
        if not module.startswith(BY_TORCH):
            yield f"Every file may use {allowed}"


if __name__ == "__main__":
    torch.save({"weight": torch.ones(2, 3)}, "model.pt")
    print(load_checkpoint("model.pt")["weight"].shape)
    #> torch.Size([2, 3])
