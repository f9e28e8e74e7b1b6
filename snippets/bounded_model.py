"""Load weights that somebody else made: bounded, and as expected."""

import torch

from safepoint import CheckpointError
from safepoint.models import ModelLimits, Schema, load_checkpoint

MIB = 1024 * 1024

# What you expect: the shapes of your own model, and a little room.
model = torch.nn.Linear(3, 2)
schema = Schema.of(model.state_dict())
limits = ModelLimits(file_bytes=64 * MIB, memory_bytes=512 * MIB)


def load(path):
    return load_checkpoint(path, schema=schema, limits=limits)


torch.save(torch.nn.Linear(3, 2).state_dict(), "download.pt")
print(model.load_state_dict(load("download.pt")))
#> <All keys matched successfully>

torch.save(torch.nn.Linear(3, 5).state_dict(), "other.pt")
try:
    load("other.pt")
except CheckpointError as refusal:
    print(refusal.what)
    #> other.pt: The tensor 'weight' is float32 (5, 3), and the schema says float32 (2, 3).
