"""Files as the libraries write them that people hand each other models with.

`python writers.py FOLDER` writes them, in an environment that has `PACKAGES`.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Mapping
from importlib import import_module as use
from pathlib import Path
from typing import Any, Final

PACKAGES: Final = (
    *("lightning==2.6.6", "transformers==5.23.0", "accelerate", "scikit-learn==1.9.1"),
    *("scikit-learn==1.9.1", "joblib==1.6.0", "skops==0.16.0", "pandas==3.1.1"),
    *("keras==3.15.1", "h5py==3.16.0", "onnx==1.23.2", "gguf==0.19.0"),
)


def _lightning(to: str) -> None:
    """Train for an epoch, as its first page does, with the callbacks that people add."""
    torch, pl = use("torch"), use("lightning.pytorch")

    class Net(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self, width: int = 8, lr: float = 0.1) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.layer = torch.nn.Linear(4, width)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            adam = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
            return [adam], [torch.optim.lr_scheduler.StepLR(adam, 1)]

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4, 4)))
    kept = pl.callbacks.ModelCheckpoint(dirpath=Path(to).parent / "kept")
    stop = pl.callbacks.EarlyStopping("loss", strict=False, check_on_train_epoch_end=False)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", callbacks=[kept, stop], **quiet)
    trainer.fit(Net(), data)
    trainer.save_checkpoint(to)


def _bert(to: str) -> None:
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    transformers = use("transformers")
    config = transformers.BertConfig(vocab_size=16, intermediate_size=8, **small)
    transformers.BertModel(config).save_pretrained(to)


def _trainer(to: str) -> None:
    arguments = use("transformers").TrainingArguments("out", report_to=[], use_cpu=True)
    use("torch").save(arguments, to)


def _pipeline() -> Any:
    forest = use("sklearn.ensemble").RandomForestClassifier(3)
    scaler = use("sklearn.preprocessing").StandardScaler()
    return use("sklearn.pipeline").make_pipeline(scaler, forest).fit([[0.0], [1.0]], [0, 1])


def _keras(*more: Any) -> Any:
    layers = use("keras").layers
    return use("keras").Sequential([layers.Input((4,)), layers.Dense(2), *more])


def _onnx(to: str) -> None:
    onnx, helper = use("onnx"), use("onnx.helper")
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "graph", [x], [y])
    onnx.save(helper.make_model(graph), to)


def _gguf(to: str) -> None:
    writer = use("gguf").GGUFWriter(to, "llama")
    writer.add_tensor("w", use("numpy").ones((2, 2), "float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _h5(to: str) -> None:
    with use("h5py").File(to, "w") as file:
        file["x"] = [1.0, 2.0]


WRITERS: Final[Mapping[str, Callable[[str], object]]] = {
    "lightning.ckpt": _lightning,
    "bert": _bert,
    "training_args.bin": _trainer,
    "plain.joblib": lambda to: use("joblib").dump(_pipeline(), to),
    "zlib.joblib": lambda to: use("joblib").dump(_pipeline(), to, compress=3),
    "pipeline.pkl": lambda to: Path(to).write_bytes(pickle.dumps(_pipeline())),
    "pipeline.skops": lambda to: use("skops.io").dump(_pipeline(), to),
    "frame.pkl": lambda to: use("pandas").DataFrame({"a": [1, 2]}).to_pickle(to),
    "model.keras": lambda to: _keras().save(to),
    "lambda.keras": lambda to: _keras(use("keras").layers.Lambda(lambda x: x * 2)).save(to),
    "model.h5": lambda to: _keras().save(to),
    "model.weights.h5": lambda to: _keras().save_weights(to),
    "data.h5": _h5,
    "model.onnx": _onnx,
    "model.gguf": _gguf,
}

if __name__ == "__main__":
    os.environ["KERAS_BACKEND"] = "torch"
    for name, write in WRITERS.items():
        write(f"{sys.argv[1]}/{name}")
