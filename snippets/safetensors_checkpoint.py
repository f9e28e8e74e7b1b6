"""Save a training run without pickle, and go on from it."""

import torch

from safepoint import Keyring, SigningKey
from safepoint.models import load_checkpoint, save_checkpoint

key = SigningKey.from_file("keys/model.key", create=True)

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(4)).sum().backward()
    optimizer.step()

# Tensors go into run-3.safetensors, all else into its seal.
save_checkpoint(
    "run-3.safetensors",
    {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
        "epoch": 3,
    },
    key=key,
    app="trainer@1.4",
)

# Another day, another process: verified first, and then read. To
# verify takes the public half of the key alone.
keys = Keyring(verify=[key.public])
state = load_checkpoint("run-3.safetensors", keys=keys)
model.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])
torch.set_rng_state(state["rng"])
print("epoch", state["epoch"], "lr", optimizer.param_groups[0]["lr"])
#> epoch 3 lr 0.01
