"""Models and pickles: looked at and loaded without running code, saved in files that cannot.

To know what a file is and what it would do, `inspect` it. To load a model, `load_checkpoint`; to
save one, `save_checkpoint`. To get old state out of pickles, read it once, as data, and seal it.
"""

from __future__ import annotations

from safepoint.models.limits import ModelLimits, PickleLimits
from safepoint.models.loading import UnrestrictedLoad, load_checkpoint, load_tensors
from safepoint.models.look import Format, Inspected, Inspection, Verdict, inspect
from safepoint.models.plain import read_pickle
from safepoint.models.reader import Tensors
from safepoint.models.saving import Converted, convert, save_checkpoint, seal_model
from safepoint.models.tensors import TensorSpec

__all__ = [
    "Converted",
    "Format",
    "Inspected",
    "Inspection",
    "ModelLimits",
    "PickleLimits",
    "TensorSpec",
    "Tensors",
    "UnrestrictedLoad",
    "Verdict",
    "convert",
    "inspect",
    "load_checkpoint",
    "load_tensors",
    "read_pickle",
    "save_checkpoint",
    "seal_model",
]
