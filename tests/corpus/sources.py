"""Where each gadget comes from. None is new: each callable was public before it came here."""

from __future__ import annotations

from typing import Final

PICKLE_DOCS: Final = "CPython's documentation of pickle: the warning and its os.system example"
PEP_307: Final = "PEP 307, Extensions to the pickle protocol"
NUMPY_DOCS: Final = "NumPy's documentation of numpy.load: object arrays are pickled"
LOGGING_DOCS: Final = "CPython's documentation of logging.config: user-defined objects"
SOUR_PICKLES: Final = "Slaviero, Sour Pickles, Black Hat USA 2011"
BUILD_ARTICLE: Final = "https://zhuanlan.zhihu.com/p/89132768: __setstate__ and the BUILD opcode"
PYSHV: Final = "Balsn CTF 2019, pyshv1: a pickle that edits sys.modules"
NULLIFAI: Final = "ReversingLabs, nullifAI, February 2025: a pickle that breaks after its payload"
PICKLESCAN_TESTS: Final = "picklescan, tests/init_data_files.py"
PICKLESCAN_ISSUE_22: Final = "https://github.com/mmaitre314/picklescan/issues/22"
PICKLESCAN_ISSUE_66: Final = "https://github.com/mmaitre314/picklescan/issues/66"
PICKLESCAN_PULL_74: Final = "https://github.com/mmaitre314/picklescan/pull/74"
MODELAUDIT_PULL_1059: Final = "https://github.com/promptfoo/modelaudit/pull/1059"

# Lists of names that a scanner flags, published with its source.
PICKLESCAN: Final = "picklescan 1.0.5, scanner.py: _unsafe_globals"
MODELSCAN: Final = "modelscan 0.8.8, settings.py: unsafe_globals"
FICKLING: Final = "fickling 0.1.12, fickle.py: UNSAFE_IMPORTS"
FICKLING_ML: Final = "fickling 0.1.12, analysis.py: UnsafeImportsML"
FICKLING_NOTE: Final = "fickling 0.1.12, ml.py: its note on _rebuild_from_type_v2"
MODELAUDIT: Final = "modelaudit, packages/modelaudit-picklescan/rust/src/policy.rs"

_ADVISORIES: Final = "https://github.com/advisories/"


def advisory(identifier: str) -> str:
    """Return the address of a published advisory."""
    return _ADVISORIES + identifier
