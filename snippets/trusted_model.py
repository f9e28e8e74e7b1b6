"""Load an artefact of your own that only an unrestricted load reads."""

from pathlib import Path

import torch

from safepoint import Keyring, SealBroken, SigningKey, VerifyingKey
from safepoint.models import load_checkpoint, seal_model

# Where it is made. The key stays there; readers get its public half.
key = SigningKey.from_file("keys/model.key", create=True)
key.public.to_file("model.pub")
torch.save({"vocabulary": Path("words.txt")}, "tokens.pt")
seal_model("tokens.pt", key=key)

# Where it is used: the seal is the reason to trust it.
keys = Keyring(verify=[VerifyingKey.from_file("model.pub")])
artefact = load_checkpoint("tokens.pt", safe=False, keys=keys)
print(artefact["vocabulary"])
#> words.txt

# Somebody else's file in its place is not loaded at all.
torch.save({"vocabulary": Path("other.txt")}, "tokens.pt")
try:
    load_checkpoint("tokens.pt", safe=False, keys=keys)
except SealBroken as refusal:
    print(refusal.what)
    #> tokens.pt is not the file that was sealed.
