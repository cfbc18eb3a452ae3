"""The files that a model consists of, and a digest of them all."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from whence.errors import ModelError


@dataclass(frozen=True)
class ModelFiles:
    """A model and the files beside it that its weights are in."""

    path: Path

    @cached_property
    def others(self) -> tuple[Path, ...]:
        """Those besides its own, which ONNX calls external data."""
        if self.path.suffix.lower() != ".onnx":
            return ()
        import onnx
        from onnx.external_data_helper import _get_all_tensors, uses_external_data

        try:
            proto = onnx.load_model(str(self.path), load_external_data=False)
        except Exception:
            return ()  # not a model: measuring it says so
        names = {
            entry.value
            for tensor in _get_all_tensors(proto)
            if uses_external_data(tensor)
            for entry in tensor.external_data
            if entry.key == "location"
        }
        folder = self.path.parent.resolve()
        found = [(folder / name).resolve() for name in sorted(names)]
        return tuple(path for path in found if path.is_relative_to(folder) and path.is_file())

    @cached_property
    def sha256(self) -> str:
        """Of a model in one file, that file's; of several, of their names and digests."""
        own = _digest(self.path)
        if not self.others:
            return own
        folder = self.path.parent.resolve()
        parts = [own, *(f"{path.relative_to(folder)} {_digest(path)}" for path in self.others)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def contents(self) -> dict[str, bytes]:
        """By path relative to the model's folder: everything that has to travel with it."""
        folder = self.path.parent.resolve()
        found = {self.path.name: self.path.read_bytes()}
        found.update({str(p.relative_to(folder)): p.read_bytes() for p in self.others})
        return found


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"'{path}' cannot be read: {error.strerror}") from error
