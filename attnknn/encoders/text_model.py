"""The model of a text encoder: found, identified by a fingerprint, and loaded without code."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal

import numpy as np

from attnknn._limits import check_fits
from attnknn._optional import require
from attnknn._stored import open_regular
from attnknn.encoders.base import Settings
from attnknn.encoders.text_cache import Vectors
from attnknn.errors import InvalidSettingError, ModelFolderError

Encode = Callable[[list[str], int], Vectors]

FILES = (".json", ".txt", ".model", ".safetensors")  # files that are read; never code or pickle
MODULE = re.compile(r"sentence_transformers(\.\w+)*\.(Transformer|Pooling|Normalize|Dense)")
FOLDER = re.compile(r"[\w-]*")
SHA256 = re.compile(r"[0-9a-f]{64}")
ALLOW_DOWNLOADS = "ATTNKNN_ALLOW_DOWNLOADS"
MAX_JSON_BYTES = 1 << 24
COMMIT = re.compile(r"[0-9a-f]{40}")
# With these keys a configuration makes the libraries run or fetch code, or read other weights.
REFUSED = {
    "auto_map",
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_internal",
    "experts_implementation",
    "_experts_implementation",
    "quantization_config",
    *("model_args", "tokenizer_args", "config_args"),
    *("model_kwargs", "processor_kwargs", "config_kwargs"),
}
EXTRA = {
    "extra": "text",
    "needed_by": "`TextEncoder`",
    "instead": "`encoder='tfidf'`, which needs nothing more",
}


@dataclass(frozen=True)
class TextModel:
    """Identity of a model: enough to find it again and to check that it is the same."""

    given: str  # folder or hub name, as the user wrote it
    # 'folder' on this machine or 'hub', a name on the Hugging Face hub
    source: Literal["folder", "hub"]
    revision: str | None  # commit on the hub; None for a folder
    fingerprint: str  # sha256 of names and contents of the files

    @classmethod
    def find(cls, given: str) -> TextModel:
        """The model in the folder `given`, or with that name on the hub."""
        folder = _local(given)
        if folder.is_dir():
            given = os.path.realpath(folder) if folder.is_symlink() else given
            return cls(given, "folder", None, fingerprint_of(folder))
        if given.startswith((".", "/", "~")) or "\\" in given or given.count("/") > 1:
            raise InvalidSettingError(f"`model` must name a folder or a model, {given} is neither.")
        snapshot = _download(given, None)
        return cls(given, "hub", snapshot.name, fingerprint_of(snapshot))

    @classmethod
    def from_settings(cls, settings: Settings) -> TextModel:
        """The model that `to_settings` described; `settings` may hold anything."""
        given, source, revision = (settings[key] for key in ("given", "source", "revision"))
        fingerprint = settings["fingerprint"]
        is_valid = isinstance(given, str) and "\0" not in given
        # A network path would make Windows sign in to another computer with the user's name.
        is_valid = is_valid and not given.replace("\\", "/").startswith("//")
        is_valid = is_valid and isinstance(fingerprint, str) and bool(SHA256.fullmatch(fingerprint))
        if source == "hub":
            is_valid = is_valid and isinstance(revision, str) and bool(COMMIT.fullmatch(revision))
        elif source != "folder" or revision is not None:
            is_valid = False
        if not is_valid:
            raise ValueError(f"the model {str(given)[:60]!r} is not valid")
        model = cls(given, source, revision, fingerprint)
        if source == "folder" and _local(given).is_dir():
            model.folder()  # raises now if it is another model
        return model

    def to_settings(self) -> Settings:
        """Settings for `from_settings`."""
        return dict(vars(self))

    def folder(self) -> Path:
        """Folder of the files, which must match the fingerprint."""
        is_local = self.source == "folder"
        folder = _local(self.given) if is_local else self._in_hub_cache()
        if not folder.is_dir() or (is_local and folder.is_symlink()):
            raise ModelFolderError(
                f"The text model {self.given} is missing. Restore it: without it no text can be "
                "compared with the entries."
            )
        found = fingerprint_of(folder)
        if found != self.fingerprint:
            raise ModelFolderError(
                f"The text model {self.given} must be the one that `fit` used (fingerprint "
                f"{self.fingerprint[:12]}), got another ({found[:12]}). Restore it, or fit again."
            )
        return folder

    def _in_hub_cache(self) -> Path:
        """The folder of a hub model on this machine; it is downloaded only if that is allowed."""
        is_allowed = os.environ.get(ALLOW_DOWNLOADS) == "1"
        try:
            return _download(self.given, self.revision, may_connect=is_allowed)
        except InvalidSettingError as error:
            raise ModelFolderError(
                f"The text model {self.given}, commit {self.revision}, is not on this machine, and "
                "a stored classifier downloads nothing by itself. If you trust the classifier, set "
                f"the environment variable {ALLOW_DOWNLOADS}=1 and try again. ({error})"
            ) from error

    def load(self, device: str) -> Encode:
        """A function from texts and a batch size to embeddings (n, D)."""
        library = require("sentence_transformers", **EXTRA)
        folder = self.folder()
        check_is_data(folder)
        n_bytes = sum(path.stat().st_size for path in _files(folder))
        check_fits(f"The text model {self.given}", 3 * n_bytes, "Use a smaller text model.")
        with _explained(folder, f"it does not load on `device={device!r}`"), _quiet():
            network = library.SentenceTransformer(
                str(folder.resolve()),
                device=None if device == "auto" else device,
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"use_safetensors": True},
            )

        def encode(texts: list[str], batch_size: int) -> Vectors:
            with _explained(folder, "it does not encode texts"):
                output = network.encode(
                    texts, batch_size=batch_size, convert_to_numpy=True, show_progress_bar=False
                )
                return np.asarray(output, dtype=np.float32)

        return encode


def fingerprint_of(folder: Path) -> str:
    """The sha256 of names and contents of the model's files in `folder`."""
    digest = hashlib.sha256()
    for name, path in sorted((p.relative_to(folder).as_posix(), p) for p in _files(folder)):
        with _open(path, folder) as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{content} {name}\n".encode())
    return digest.hexdigest()


def check_is_data(folder: Path) -> None:
    """Raise unless loading the model in `folder` reads data only.

    Its modules must be on a short list, with safetensors weights, and its configurations must name
    no code: sentence-transformers before version 6 runs Python files of a local model.
    """
    for kind, place in _modules(folder):
        if not MODULE.fullmatch(kind):
            raise _refuse(folder, f"only plain modules are run, not {kind[:80]}")
        has_weights = kind.endswith(("Transformer", "Dense"))
        if has_weights and not list((folder / place).glob("*.safetensors")):
            raise _refuse(folder, f"its weights must be safetensors, {kind} has none")
    for path in _files(folder):
        if path.name == "adapter_config.json":
            raise _refuse(folder, "it is an adapter, which needs another model")
        if path.name.endswith("config.json"):
            named = _keys_of(_json(path, folder)) & REFUSED
            if named:
                raise _refuse(folder, f"{path.name} sets `{min(named)}`, which can run code")


def _local(given: str) -> Path:
    return Path(os.path.expanduser(given))


def _modules(folder: Path) -> list[tuple[str, str]]:
    """Class and subfolder of each module."""
    modules = _json(folder / "modules.json", folder)
    try:
        named = [(str(module["type"]), str(module["path"])) for module in modules]
    except (TypeError, KeyError):
        named = []
    if not named or not all(FOLDER.fullmatch(place) for _, place in named):
        raise _refuse(folder, "modules.json must list modules, each in a folder of its own")
    return named


def _files(folder: Path) -> list[Path]:
    """The files of the modules, without copies of the model in other formats."""
    places = {folder, *(folder / place for _, place in _modules(folder))}
    files = [path for place in places for path in place.glob("*")]
    return [path for path in files if path.suffix in FILES and path.is_file()]


def _json(path: Path, folder: Path) -> Any:
    with _open(path, folder) as file:
        try:
            text = file.read(MAX_JSON_BYTES + 1)
            if len(text) > MAX_JSON_BYTES:
                raise ValueError(f"it has more than {MAX_JSON_BYTES:,} bytes")
            return json.loads(text.decode("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise _refuse(folder, f"{path.name} cannot be read ({error})") from error


def _open(path: Path, folder: Path) -> BufferedReader:
    """Open a file of a model, which must be in its folder or, by a link, in the hub's cache."""
    home = folder.resolve()
    home = home.parent.parent if home.parent.name == "snapshots" else home
    try:
        found = path.resolve(strict=True)
        if not found.is_relative_to(home):
            raise OSError("a link to another folder")
        return open_regular(found)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise _refuse(folder, f"{path.name} cannot be read ({error})") from error


def _keys_of(value: Any) -> set[str]:
    """The keys of nested objects with a value that is not empty."""
    if isinstance(value, list):
        return set[str]().union(*map(_keys_of, value))
    if isinstance(value, dict):
        return {k for k, v in value.items() if v}.union(*map(_keys_of, value.values()))
    return set()


def _refuse(folder: Path, why: str) -> InvalidSettingError:
    return InvalidSettingError(f"The text model {folder} cannot be used: {why}.")


def _download(name: str, revision: str | None, *, may_connect: bool = True) -> Path:
    """The folder of a hub model, from the hub's own cache if that has the pinned revision."""
    hub = require("huggingface_hub", **EXTRA)
    name = name if "/" in name else f"sentence-transformers/{name}"
    wanted = {"revision": revision, "allow_patterns": [f"*{suffix}" for suffix in FILES]}
    try:
        if revision is not None:
            try:
                return Path(hub.snapshot_download(name, local_files_only=True, **wanted))
            except OSError:
                if not may_connect:
                    raise
        return Path(hub.snapshot_download(name, **wanted))
    except (OSError, ValueError) as error:
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        raise InvalidSettingError(
            f"`model` must be a folder or a model on the Hugging Face hub; there is no folder "
            f"{name}, and the hub says: {reason}"
        ) from error


@contextmanager
def _explained(folder: Path, what: str) -> Iterator[None]:
    """Turn errors of the libraries, which raise anything for a damaged file, into ours."""
    try:
        yield
    except Exception as error:
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        raise _refuse(folder, f"{what} ({reason})") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the progress bars of transformers."""
    logging = require("transformers.utils.logging", **EXTRA)
    is_on = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if is_on:
            logging.enable_progress_bar()
