"""Objects: classes of an application, and those of libraries, written as their picklers do."""

from __future__ import annotations

import functools
import math
import operator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from tests.corpus.assembler import Build, Name, New, call, name
from tests.corpus.benign_types import (
    Address,
    Estimator,
    Invoice,
    Level,
    Line,
    Pair,
    Point,
    Refused,
    Session,
    Slotted,
    Status,
)
from tests.corpus.benign_values import Value

_DUE = datetime(2026, 12, 1, tzinfo=UTC)

OBJECTS: Final[tuple[Value, ...]] = (
    ("enums", lambda: [Status.OPEN, Level.HIGH], True),
    ("a dataclass", lambda: Line("book", 3), True),
    ("a frozen dataclass", lambda: Address("Main Street", "Bern"), True),
    (
        "dataclasses in a dataclass",
        lambda: Invoice(
            7, Status.PAID, Decimal("19.90"), _DUE, [Line("a", 1)], Address("Main Street", "Bern")
        ),
        True,
    ),
    ("a dataclass that nobody registered", lambda: Slotted(1, 2), False),
    ("named tuples", lambda: [Point(1, 2), Pair("a", "b")], False),
    ("an object", lambda: Session("anna"), False),
    ("an object with a state of its own", Estimator, False),
    ("exceptions", lambda: [ValueError("no"), KeyError("k"), Refused("late")], False),
    ("an OSError", lambda: OSError(2, "No such file", "a.txt"), False),
    ("a partial", lambda: functools.partial(int, base=2), False),
    ("functions", lambda: [math.sqrt, len, operator.add], False),
    ("a class", lambda: {"cls": datetime, "kind": Line}, False),
)


def _object(module: str, title: str, state: Any) -> Build:
    """Describe an instance, as protocol 2 and above pickle it."""
    return Build(New(Name(module, title)), state)


def _array(values: bytes, count: int) -> Build:
    """Describe a float64 array, as NumPy pickles it."""
    empty = call("numpy._core.multiarray:_reconstruct", name("numpy:ndarray"), (0,), b"b")
    kind = Build(call("numpy:dtype", "f8", False, True), (3, "<", None, None, None, -1, -1, 0))
    return Build(empty, (1, (count,), kind, False, values))


def _old(module: str, title: str, state: Any) -> Build:
    """Describe an instance, as `copyreg` pickles it."""
    new = call("copyreg:_reconstructor", Name(module, title), name("builtins:object"), None)
    return Build(new, state)


_EIGHT = b"\0" * 64
_MESSAGE: Final[dict[str, Any]] = {
    "content": "Pay order 7.",
    "additional_kwargs": {},
    "type": "human",
    "id": None,
}

FOREIGN: Final[tuple[tuple[str, Any], ...]] = (
    (
        "scikit-learn: a linear model",
        _object(
            "sklearn.linear_model._logistic",
            "LogisticRegression",
            {"C": "1.0", "coef_": _array(_EIGHT, 8), "_sklearn_version": "1.7.2"},
        ),
    ),
    (
        "scikit-learn: a scaler",
        _object(
            "sklearn.preprocessing._data",
            "StandardScaler",
            {"with_mean": True, "mean_": _array(_EIGHT, 8), "_sklearn_version": "1.7.2"},
        ),
    ),
    (
        "scikit-learn: labels",
        _object("sklearn.preprocessing._label", "LabelEncoder", {"_sklearn_version": "1.7.2"}),
    ),
    (
        "scikit-learn: a pipeline",
        _object(
            "sklearn.pipeline",
            "Pipeline",
            {"steps": [("scale", _object("sklearn.preprocessing._data", "StandardScaler", {}))]},
        ),
    ),
    (
        "scikit-learn: a forest",
        _object(
            "sklearn.ensemble._forest",
            "RandomForestClassifier",
            {"n_estimators": 10, "estimators_": [], "_sklearn_version": "1.7.2"},
        ),
    ),
    (
        "xgboost: a booster",
        _old("xgboost.core", "Booster", {"handle": b"{}", "feature_names": ["a"]}),
    ),
    (
        "lightgbm: a booster",
        _old("lightgbm.basic", "Booster", {"handle": "tree\n", "best_iteration": 3}),
    ),
    (
        "pandas: a frame",
        Build(
            New(Name("pandas.core.frame", "DataFrame")),
            {
                "_mgr": call(
                    "pandas.core.internals.managers:BlockManager",
                    (call("pandas._libs.internals:_unpickle_block", _array(_EIGHT, 8), 0, 2),),
                    [],
                ),
                "_typ": "dataframe",
                "attrs": {},
            },
        ),
    ),
    (
        "pandas: a timestamp",
        call("pandas._libs.tslibs.timestamps:_unpickle_timestamp", 1, None, None, 10),
    ),
    (
        "scipy: a sparse matrix",
        _old("scipy.sparse._csr", "csr_matrix", {"_shape": (2, 4), "data": _array(_EIGHT, 8)}),
    ),
    (
        "transformers: training arguments",
        _object(
            "transformers.training_args",
            "TrainingArguments",
            {"output_dir": "out", "num_train_epochs": 3, "seed": 42},
        ),
    ),
    (
        "langchain: a message",
        _object(
            "langchain_core.messages.human",
            "HumanMessage",
            {
                "__dict__": _MESSAGE,
                "__pydantic_extra__": None,
                "__pydantic_fields_set__": None,
                "__pydantic_private__": None,
            },
        ),
    ),
    (
        "langgraph: a send",
        _object("langgraph.types", "Send", (None, {"node": "pay", "arg": {"amount": 42}})),
    ),
    (
        "agent framework: a message",
        _object(
            "agent_framework._types",
            "Message",
            {"role": "user", "contents": [{"type": "text", "text": "Pay."}]},
        ),
    ),
    (
        "autogen: a state",
        _object("autogen_agentchat.state._states", "AssistantAgentState", {"llm_context": {}}),
    ),
    ("spacy: a vocabulary", call("spacy.vocab:unpickle_vocab", b"strings", b"vectors", None)),
    ("networkx: a graph", _object("networkx.classes.graph", "Graph", {"_adj": {1: {2: {}}}})),
    (
        "an argparse namespace",
        _object("argparse", "Namespace", {"lr": 1, "epochs": 3, "data": "train"}),
    ),
)
