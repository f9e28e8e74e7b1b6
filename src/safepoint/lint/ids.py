"""What the linter looks for: an id, the rule behind it, and what to write instead."""

from __future__ import annotations

from typing import Final, NamedTuple


class Id(NamedTuple):
    """One kind of finding.

    Attributes:
        rule: the rule that it breaks, for example "SP23".
        title: what it looks for, as a few words.
        fix: what to do, as one or two sentences.
    """

    rule: str
    title: str
    fix: str


IDS: Final[dict[str, Id]] = {
    "SL01": Id(
        "SP23",
        "a load of PyTorch without a literal weights_only=True",
        "Write weights_only=True as a literal, or use safepoint.models.load_checkpoint.",
    ),
    "SL02": Id(
        "SP24",
        "a load without restriction, spelled out",
        "Load with restriction, or verify a seal first and say why this file is trusted:"
        " # safepoint: allow SL02 REASON",
    ),
    "SL03": Id(
        "SP23",
        "pickle_module=, which turns the restriction off",
        "Remove pickle_module, and write weights_only=True.",
    ),
    "SL04": Id(
        "SP23",
        "a fallback to a load without restriction",
        "Let the refusal end the load: whoever wrote the file chooses which error it raises.",
    ),
    "SL05": Id(
        "SP23",
        "a wider allow-list for weights_only",
        "Store tensors and plain data, or convert the file once: safepoint.models.convert.",
    ),
    "SL06": Id(
        "SP23",
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD",
        "Remove it, and mend the load that needs it.",
    ),
    "SL07": Id(
        "SP23",
        "a load of PyTorch that has no restricted form",
        "Save a state dict as safetensors, and build the model from code of your own.",
    ),
    "SL08": Id(
        "SP03",
        "a load by pickle, or by what wraps it",
        "Store the data in a format that cannot execute, such as JSON; a safepoint.Codec keeps"
        " types of your own.",
    ),
    "SL09": Id(
        "SP03",
        "an Unpickler of your own",
        "Read old pickles once, with safepoint.models, and store what is in them in a format that"
        " cannot execute.",
    ),
    "SL10": Id(
        "SP03",
        "allow_pickle, which lets an array be a pickle",
        "Leave allow_pickle out, and save arrays of numbers or text.",
    ),
    "SL11": Id(
        "SP24",
        "torch.load replaced for the whole process",
        "Leave torch.load as it is, and give your function a name of its own.",
    ),
    "SL90": Id(
        "SP26",
        "a file that was not looked at",
        "Mend it, or look at it yourself: nothing is known about its loads.",
    ),
    "SL91": Id(
        "SP26",
        "an allow that does not count",
        "Write it on the line of the finding, with an id and a reason:"
        " # safepoint: allow SL02 REASON",
    ),
}
