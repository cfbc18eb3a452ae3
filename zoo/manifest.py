"""The list of models: where each comes from and where it lies once it is fetched."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath

MANIFEST = Path(__file__).with_name("manifest.toml")
SUFFIXES = {".onnx": ".onnx", ".tflite": ".tflite", ".lite": ".tflite", ".circle": ".circle"}


class Registry(Enum):
    """Where a package is found."""

    PYPI = "pypi"
    NPM = "npm"
    ONNX = "onnx"  # inside the installed onnx package: nothing to download


@dataclass(frozen=True, slots=True)
class Package:
    """A package and version as its registry spells it: `silero-vad==6.2.3`."""

    registry: Registry
    spec: str

    @classmethod
    def parse(cls, text: str) -> Package:
        registry, _, spec = text.partition(":")
        return cls(Registry(registry), spec or registry)


@dataclass(frozen=True, slots=True)
class Model:
    """One model of the zoo. `member` is the path in its package (see manifest.toml); `rejected`
    says why no engine runs it, or is empty.
    """

    name: str
    package: Package
    member: str
    sha256: str
    licence: str
    kind: str
    small: bool = False
    rejected: str = ""

    @property
    def suffix(self) -> str:
        # A file in pieces is listed under a bare key; the only such package holds ONNX.
        return (
            ".onnx" if "#" in self.member else SUFFIXES[PurePosixPath(self.member).suffix.lower()]
        )

    def path(self) -> Path:
        """Where the model lies in the cache once it is fetched."""
        return cache_folder() / (self.name + self.suffix)


def cache_folder() -> Path:
    """The folder of fetched models: `whence/zoo` in `$XDG_CACHE_HOME` or `~/.cache`."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "whence" / "zoo"


def load_manifest(path: Path = MANIFEST) -> dict[str, Model]:
    """All models by name, in the order of the file."""
    models = {}
    for package_name, rows in tomllib.loads(path.read_text(encoding="utf-8")).items():
        package = Package.parse(package_name)
        for name, row in rows.items():
            if name in models:
                raise ValueError(f"{path.name}: {name} is listed twice")
            member = row.pop("file")
            models[name] = Model(name=name, package=package, member=member, **row)
    return models
