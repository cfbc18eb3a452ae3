"""Compiled models in the cache, so that a model that was compiled before starts at once.

Two kinds of records, in JSON: one for a model (what it takes, and which files besides its own it
was read from) and one for each program compiled from it (its plan). A record names the large parts
by their digests: packed weights, native code, and what explains a program or model, which is loaded
only when somebody asks. JSON, because it is read at every start: quick, and nothing in it can run.

A record is found by everything that can change it: the content of the model's files, the shapes
asked for, the threads that share the work, whence's own source, the packages it computes with, the
machine and the compiler. A part that was damaged or pruned makes the record one that was not found.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whence.building.aligned_memory import aligned_bytes
from whence.building.backend import CacheIdentity
from whence.building.mapped_pieces import MappedRange, block_of
from whence.building.native_code import Library
from whence.building.packed_weights import PackedWeights
from whence.building.plan_json import decode_plan, decode_type, encode_plan, encode_type
from whence.building.program import Program
from whence.building.source_digest import source_digest
from whence.codegen.cache import LIMIT_BYTES, cache_key, kept_if_possible
from whence.codegen.digest import FileDigest
from whence.errors import CacheError
from whence.extent import is_symbolic
from whence.ops.binding import Port
from whence.plugins import plugins_digest
from whence.types import Dim, TensorType, as_dims

if TYPE_CHECKING:
    from whence.building.program_template import ProgramTemplate
    from whence.codegen.expected_entries import WrittenEntry
    from whence.graph import Graph

Shapes = Mapping[str, Sequence[Dim]]
# A model that takes more than this of the cache would push everything else out of it.
_LARGEST = LIMIT_BYTES // 4
# All there is in the record of a program that takes more.
_TOO_LARGE = "too large"
# What a record that is not of this shape raises when it is read; its digest was right, so nobody
# tampered with it, but no start may fail for it.
_MISREAD = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)


@dataclass(frozen=True, slots=True)
class Interface:
    """What a model takes, and the model as it was loaded, on first use."""

    inputs: tuple[Port, ...]
    graph: Callable[[], Graph]
    listed: tuple[Port, ...] = ()
    """All inputs that the file lists, where some have a default that may be overridden."""
    has_state: bool = False

    @classmethod
    def of(cls, graph: Graph) -> Interface:
        """Of a model that was loaded just now."""
        return cls(
            tuple(Port(node.name, node.type) for node in graph.inputs),
            lambda: graph,
            tuple(Port(name, kind) for name, kind in graph.listed_inputs),
            bool(graph.variables),
        )

    @property
    def is_static(self) -> bool:
        """Are the shapes of all inputs known?"""
        return len(self.shapes) == len(self.inputs)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the inputs, by name, as far as they are known."""
        return {
            each.name: each.type.static_shape
            for each in self.inputs
            if isinstance(each.type, TensorType) and each.type.static_shape is not None
        }


class CachedModel:
    """The records of one model file under one choice of shapes."""

    def __init__(
        self,
        file: FileDigest,
        identity: CacheIdentity,
        shapes: Shapes,
        fusion: str,
        *,
        state: Mapping[str, str] | None = None,
        only_last: Mapping[str, int] | None = None,
        enabled: bool = True,
    ) -> None:
        self.path = file.path
        self.file = file
        self._cache = identity.cache
        self._enabled = enabled and bool(file.value)
        self._key = (
            cache_key(
                "model",
                file.value,
                file.path.suffix.lower(),
                _asked(shapes),
                json.dumps(sorted((state or {}).items())),
                json.dumps(sorted((only_last or {}).items())),
                source_digest(),
                plugins_digest(),
            )
            if self._enabled
            else ""
        )
        self._fusion, self._device_parts = fusion, identity.parts
        self._others: dict[str, FileDigest] = {}
        """Further files in the model's folder by name, as they are written in records."""
        self._is_as_read = True
        """Are their digests of what the model was read from?"""
        self._early: tuple[PackedWeights | None, dict[str, Any] | None] = (None, None)
        """Weights that were stored before their program, and what its record says of them."""

    def interface(self) -> Interface | None:
        """The model as it was when it was compiled before, or None."""
        if not self._enabled:
            return None
        # The same file may have been compiled with other files beside it.
        records = map(_decoded, self._cache.map_all(self._key))
        found = (self._interface(record) for record in records if record is not None)
        return next((each for each in found if each is not None), None)

    def _interface(self, record: Mapping[str, Any]) -> Interface | None:
        try:
            others = dict(record["files"])
            inputs = tuple(Port(name, decode_type(kind)) for name, kind in record["inputs"])
            listed = tuple(Port(name, decode_type(kind)) for name, kind in record["listed"])
            source = str(record["source"])
        except _MISREAD:
            return None
        # Computed in the background, all at once.
        found = {name: self.file.of_beside(name) for name in others}
        if others != _values(found) or not self._cache.has(source):
            return None
        self._others = found
        return Interface(inputs, lambda: self._load(source), listed, bool(record["has_state"]))

    def note_files(self, graph: Graph) -> None:
        """The model was loaded just now: remember which other files it was read from, and what they
        hold.
        """
        folder, self._others, self._is_as_read = self.path.parent, {}, True
        for file, status in graph.files.items():
            name = str(file.relative_to(folder))
            digest = self.file.of_beside(name)
            if not digest.is_of(status):
                # It changed since it was hashed, or since it was read.
                digest = self.file.of_beside(name, anew=True)
                self._is_as_read &= digest.is_of(status)
            self._others[name] = digest

    def note_compiled(
        self, entries: Iterable[WrittenEntry], beside: Mapping[str, FileDigest]
    ) -> None:
        """Another process compiled the model, wrote these entries, and hashed the files beside the
        model's own.
        """
        self._cache.note_written(entries)
        self.file.beside.update(
            {name: digest for name, digest in beside.items() if digest.is_current()}
        )

    def is_unchanged(self) -> bool:
        """Do the model's files still hold what they held when this was made, or noted?"""
        files = (self.file, *self._others.values())
        return self._is_as_read and all(each.is_current() for each in files)

    def program(self, shapes: Shapes, number: int = 0) -> Program | None:
        """The program for inputs of these shapes, compiled before, or None.

        Where sizes in the shapes are open, there may be several, for sizes that one cannot serve
        together: they are numbered, and the program is that for the sizes it was compiled for.
        """
        record = self._program_record(shapes, number)
        if record is None:
            return None
        program = self._recorded(record)
        if program is not None:
            taken = record.get("compile_ns", 0)
            program.compile_ns = taken if isinstance(taken, int) else 0
        return program

    def _recorded(self, record: Mapping[str, Any]) -> Program | None:
        """The program of a record, unless a part of it is not there or damaged."""
        try:
            details = str(record["details"])
            if not self._cache.has(details):
                return None
            library = self._library(record["library"])
            weights = self._weights(record)
            if weights is None or (library is None) != (record["library"] is None):
                return None
            content: memoryview | None = None

            def explain() -> Any:
                return self._load(details) if content is None else _loaded(content)

            if "template" in record:
                from whence.building.template_json import decode_template

                template = decode_template(record["template"], explain)
                program = template.program(template.dimensions.sizes, weights, library)
            else:
                program = Program(decode_plan(record, library), weights, library, explain)
        except _MISREAD:
            return None
        if not program.plan.is_native:
            # The first run needs it: now is the time to find that it is damaged.
            content = self._cache.map(details)
            if content is None:
                return None
        return program

    def closed(self, shapes: Shapes) -> tuple[str, ...]:
        """The dimensions among open shapes that kernels needed the numbers of."""
        record = self._record(self._closed_key(shapes)) if self._is_known else None
        names = (record or {}).get("closed", [])
        return tuple(map(str, names)) if isinstance(names, list) else ()

    def store_closed(self, shapes: Shapes, names: Sequence[str]) -> None:
        """Remember them, so that the next start looks for programs where they are."""

        def write() -> None:
            record = json.dumps({"closed": list(names)})
            self._cache.put(self._closed_key(shapes), record.encode())

        self._store(write)

    def _closed_key(self, shapes: Shapes) -> str:
        return cache_key("closed dimensions", self._program_key(shapes))

    def has(self, shapes: Shapes, number: int) -> bool:
        """Is there a record of a program for these shapes with this number?"""
        return self._enabled and self._record(self._program_key(shapes, number)) is not None

    def can_store(self, shapes: Shapes) -> bool:
        """Will a program for inputs of these shapes be stored, as far as that can be said before it
        is compiled?
        """
        return (
            self._enabled
            and self._cache.lasts
            and _TOO_LARGE not in (self._program_record(shapes) or {})
        )

    def store_interface(self, graph: Graph) -> None:
        """Store what the model takes. Its constants must have been released."""

        def write() -> None:
            record = {
                "files": _values(self._others),
                "inputs": [(node.name, encode_type(node.type)) for node in graph.inputs],
                "listed": [(name, encode_type(kind)) for name, kind in graph.listed_inputs],
                "has_state": bool(graph.variables),
                "source": self._dump(graph),
            }
            self._cache.put(self._key, json.dumps(record).encode())

        self._store(write)

    def store_weights(self, packed: PackedWeights) -> None:
        """Store the weights of a program that is still being compiled; `store_program` then finds
        them there. It is also where a failure is told, when it tries again.
        """
        if self._enabled and self._cache.lasts and packed.nbytes <= _LARGEST:
            with contextlib.suppress(CacheError, OSError):
                self._early = packed, self._stored_weights(packed)

    def store_program(self, shapes: Shapes, program: Program, number: int = 0) -> None:
        """Store a program that was compiled just now. The constants that only native code reads
        must have been released.
        """

        def write() -> None:
            packed, weights = self._early
            self._early = None, None
            if packed is not program.packed:
                weights = self._stored_weights(program.packed)
            if weights is None:
                self._cache.put(
                    self._program_key(shapes, number),
                    json.dumps({_TOO_LARGE: program.packed.nbytes}).encode(),
                )
                return
            template = program.template
            record = {
                **(encode_plan(program.plan) if template is None else _encoded(template)),
                "library": None if program.library is None else program.library.path.name,
                "compile_ns": program.compile_ns,
                **weights,
                "details": self._dump((template or program).details),
            }
            # Last, so that a record is there only when its parts are.
            self._cache.put(self._program_key(shapes, number), json.dumps(record).encode())

        self._store(write)

    # ---- parts ----

    @property
    def _is_known(self) -> bool:
        """Is anything of this model in the cache, whatever the files beside it hold? Where nothing
        is, nobody waits until they are hashed, which for gigabytes takes longer than compiling.
        """
        return self._enabled and self._cache.has(self._key)

    def _program_record(self, shapes: Shapes, number: int = 0) -> dict[str, Any] | None:
        return self._record(self._program_key(shapes, number)) if self._is_known else None

    def _program_key(self, shapes: Shapes, number: int = 0) -> str:
        others = [text for row in _values(self._others).items() for text in row]
        return cache_key(
            "program",
            self._key,
            _asked(shapes),
            str(number),
            self._fusion,
            *self._device_parts(),
            *others,
        )

    def _record(self, key: str) -> dict[str, Any] | None:
        content = self._cache.map(key)
        return None if content is None else _decoded(content)

    def _stored_weights(self, packed: PackedWeights) -> dict[str, Any] | None:
        """What a record says of the weights, if they can be stored. Of large ones those that are
        the bytes of the model's files are not stored: it is said how they are packed from there.
        """
        record: dict[str, Any] = {"weights": None, "weights_bytes": packed.nbytes}
        if packed.nbytes > _LARGEST:
            from whence.building.weights_recipe import encode_recipe

            pieces = encode_recipe(packed, self.path, list(self._others))
            if pieces is None or sum(size for _, size in packed.ranges) > _LARGEST:
                return None
            record["ranges"] = packed.ranges
            record["pieces"] = self._dump(pieces)
            if packed.ranges:
                record["weights"] = self._cache.keep_content(packed.range_content().data)
        elif packed.nbytes:
            # Each part by itself: what several programs have in common is stored, and mapped, once.
            record["weights"] = [
                (*part, self._cache.keep_content(packed.part_content(part)))
                for part in packed.parts
            ]
        return record

    def _weights(self, record: Mapping[str, Any]) -> PackedWeights | None:
        digest, size = record["weights"], int(record["weights_bytes"])
        if isinstance(digest, list):
            return self._mapped_weights(digest, size)
        # Mapped: pages begin at cache lines, and processes that run the same model share them.
        content = memoryview(b"") if digest is None else self._cache.map(digest)
        if content is None:
            return None
        if "pieces" in record:
            from whence.building.weights_recipe import decode_recipe

            pieces = self._cache.map(str(record["pieces"]))
            if pieces is None:
                return None
            files = {name: each.path for name, each in self._others.items()}
            files[self.path.name] = self.path
            return decode_recipe(size, record["ranges"], content, _loaded(pieces), files)
        return None if size else PackedWeights.of(aligned_bytes(0))

    def _mapped_weights(
        self, stored: Sequence[tuple[int, int, str]], size: int
    ) -> PackedWeights | None:
        """Mapped: programs and processes that have a part in common share its pages."""
        files = [self._cache.get(str(digest)) for _, _, digest in stored]
        found = [file for file in files if file is not None]
        ranges = [MappedRange(int(offset), int(nbytes)) for offset, nbytes, _ in stored]
        if len(found) < len(files) or any(sum(each) > size for each in ranges):
            return None
        try:
            return PackedWeights.of(block_of(size, ranges, found))
        except OSError:
            return None

    def _library(self, name: str | None) -> Library | None:
        if name is None:
            return None
        path = self._cache.get(name.split(".")[0])
        return Library(path) if path is not None and path.name == name else None

    def _dump(self, what: object) -> str:
        from whence.building.graph_pickle import dump

        return self._cache.keep_content(dump(what))

    def _load(self, digest: str) -> Any:
        content = self._cache.map(digest)
        if content is None:
            raise CacheError(
                f"what explains '{self.path.name}' is not in the cache '{self._cache.folder}' any"
                " more; compile the model again"
            )
        return _loaded(content)

    def _store(self, write: Callable[[], None]) -> None:
        """Store what will last. A model that cannot be stored runs all the same."""
        if self._enabled and self._cache.lasts:
            with kept_if_possible("the compiled model is not cached"):
                write()
                self._cache.prune()


def _decoded(content: memoryview) -> dict[str, Any] | None:
    try:
        record = json.loads(bytes(content))
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _values(files: Mapping[str, FileDigest]) -> dict[str, str]:
    """Their digests; of one that cannot be read, nothing."""
    return {name: each.value for name, each in files.items()}


def _loaded(content: memoryview) -> Any:
    from whence.building.restricted_unpickler import load

    return load(content)


def _encoded(template: ProgramTemplate) -> dict[str, Any]:
    from whence.building.template_json import encode_template

    return {"template": encode_template(template)}


def _asked(shapes: Shapes) -> str:
    """Shapes as text; a size that is open is the name of its dimension."""
    return json.dumps(
        {
            name: [str(dim) if is_symbolic(dim) else dim for dim in as_dims(shape)]
            for name, shape in shapes.items()
        },
        sort_keys=True,
    )
