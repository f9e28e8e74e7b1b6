"""Models: loaded without running code, saved in files that cannot execute, and sealed."""

from __future__ import annotations

from safepoint.weights.converting import Converted, convert
from safepoint.weights.limits import DEFAULT_MODEL_LIMITS, ModelLimits
from safepoint.weights.loading import UnrestrictedLoad, load_checkpoint
from safepoint.weights.saving import save_checkpoint, seal_model
from safepoint.weights.schema import Schema, TensorSpec

__all__ = [
    "DEFAULT_MODEL_LIMITS",
    "Converted",
    "ModelLimits",
    "Schema",
    "TensorSpec",
    "UnrestrictedLoad",
    "convert",
    "load_checkpoint",
    "save_checkpoint",
    "seal_model",
]
