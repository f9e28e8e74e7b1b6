"""Load weights that somebody else made: bounded, and as expected."""

import torch

from safepoint.models import ModelLimits, load_checkpoint

MIB = 1024 * 1024
limits = ModelLimits(file_bytes=64 * MIB, memory_bytes=512 * MIB)
model = torch.nn.Linear(3, 2)


def load(path):
    model.load_state_dict(load_checkpoint(path, limits=limits))


torch.save(torch.nn.Linear(3, 2).state_dict(), "download.pt")
load("download.pt")

torch.save(torch.nn.Linear(3, 5).state_dict(), "other.pt")
try:
    load("other.pt")  # load_state_dict compares names and shapes
except RuntimeError as refusal:
    print(str(refusal).splitlines()[1].strip().partition(":")[0])
    #> size mismatch for weight
