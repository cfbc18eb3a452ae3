"""A room of whence imports only the rooms before it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.import_cycles import hidden_cycles
from whence.ops.registry import REGISTRY

SOURCE = Path(__file__).resolve().parent.parent / "src" / "whence"
ROOMS = (
    "errors",
    "plural",
    "extent",
    "types",
    "machine",
    "rates",
    "plugins",
    "provenance",
    "ops",
    "graph",
    "frontends",
    "passes",
    "fusion",
    "compat",
    "kernels",
    "codegen",
    "building",
    "runtime",
    "backends",
    "calibration",
    "interop",
    "debugdb",
    "attribution",
    "report",
    "foreign",
    "api",
    "fleet",
    "cli",
)
PACKAGE = "whence"
ADAPTERS = "compat"
"""Speaks the language of others to people outside; no room imports it."""


def imported_modules(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Line and absolute name of everything that a module imports, wherever in it the import stands.

    `from a import b` yields `a.b`: whether b is a module or a name in a makes no difference to the
    room it lies in.
    """
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            path = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{path}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call):
            called = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            argument = node.args[0] if node.args else None
            if (
                called in {"import_module", "__import__"}
                and isinstance(argument, ast.Constant)
                and isinstance(argument.value, str)
            ):
                yield node.lineno, argument.value


def violations(text: str, module: str, is_package: bool = False) -> list[str]:
    """Every import in the source text of `module` that leads to a later room, or around the rooms
    through the top of the package.
    """
    parts = module.split(".")
    room = parts[1] if len(parts) > 1 else ""
    if room not in ROOMS:
        # Modules at the top tie the rooms together and may import them all; a folder that is not in
        # the list is a room without a place.
        return (
            []
            if len(parts) <= 2 and not (is_package and room)
            else [f"{module}: {room} is not a room"]
        )
    found = []
    for line, name in imported_modules(parsed(text), module, is_package):
        path = name.split(".")
        if path[0] != PACKAGE:
            continue
        target = path[1] if len(path) > 1 else ""
        if target not in ROOMS:
            found.append(f"{module}:{line}: imports {name}, which is not in a room")
        elif target == ADAPTERS and room != ADAPTERS:
            found.append(f"{module}:{line}: {room} imports {target}, which nothing may rely on")
        elif ROOMS.index(target) > ROOMS.index(room):
            found.append(f"{module}:{line}: {room} imports {target}, which comes after it")
    return found


@functools.cache
def parsed(text: str) -> ast.Module:
    """Several tests look at the same files, and parsing them takes longest."""
    return ast.parse(text)


def source_files() -> Iterator[tuple[Path, str, bool]]:
    for path in sorted(SOURCE.rglob("*.py")):
        parts = [PACKAGE, *path.relative_to(SOURCE).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        yield path, ".".join(parts[:-1] if is_package else parts), is_package


def test_rooms_import_only_rooms_before_them() -> None:
    files = list(source_files())
    assert len(files) > len(ROOMS)
    found = [
        v
        for path, module, is_package in files
        for v in violations(path.read_text(encoding="utf-8"), module, is_package)
    ]
    assert not found, "\n".join(found)


def test_no_import_inside_a_function_hides_a_cycle() -> None:
    """Within rooms as well as between them: what needs each other belongs in one module, or the
    part that both need in a third.
    """
    found = hidden_cycles(
        {module: path.read_text(encoding="utf-8") for path, module, _ in source_files()}
    )
    assert not found, f"these imports, inside functions, hide a cycle: {sorted(found)}"


def test_hidden_cycles_are_found() -> None:
    sources = {
        "p": "from p.a import f",
        "p.a": "def f():\n    from p.b import g",
        "p.b": "from p import a\nimport p.c",
        "p.c": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.b",
        "p.d": "def f():\n    import p.c",
        "q": "",
        "q.e": "from importlib import import_module\ndef f():\n    import_module('q.f')",
        "q.f": "from . import e",
    }
    assert hidden_cycles(sources) == {("p.a", "p.b"), ("q.e", "q.f")}


@pytest.mark.parametrize(
    "text",
    [
        "import whence.passes.manager",
        "from whence.passes import manager",
        "from whence import passes",
        "from ..passes import manager",
        "from .. import passes",
        "from ..passes.manager import PassManager as P",
        "def f():\n    from whence.codegen import c",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from whence.cli import main",
        "import importlib\nimportlib.import_module('whence.runtime.stream')",
        "import whence",
        "from whence import load",
        "from whence.api import load",
        "import numpy, whence.report as r",
    ],
)
def test_checker_sees_a_violation(text: str) -> None:
    assert len(violations(text, "whence.graph.graph")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "from whence.errors import WhenceError",
        "from whence.provenance.ledger import Ledger",
        "from whence.types import DType",
        "from whence.graph.graph import Graph",
        "from .types import DType",
        "from . import types",
        "from ..errors import WhenceError",
        "import numpy as np\nimport onnx.passes",
        "from passes import whence",
    ],
)
def test_checker_allows_earlier_rooms(text: str) -> None:
    assert violations(text, "whence.graph.graph") == []


def test_nothing_imports_the_adapters() -> None:
    assert violations("from whence.compat import luci", "whence.cli.why") == [
        "whence.cli.why:1: cli imports compat, which nothing may rely on"
    ]
    assert violations("from whence.compat import hexagon_consts", "whence.compat.hexagon") == []
    assert violations("from whence.fusion.fuse import fuse", "whence.compat.nnvm") == []
    assert len(violations("from whence.building import build", "whence.compat.nnvm")) == 1


def test_checker_resolves_relative_imports_of_a_package() -> None:
    assert violations("from .later import x", "whence.graph", is_package=True) == []
    assert violations("from ..passes import x", "whence.graph", is_package=True) == [
        "whence.graph:1: graph imports passes, which comes after it"
    ]


def test_checker_leaves_the_top_free_and_names_strange_folders() -> None:
    assert violations("from whence.cli import main", "whence.onnx_backend") == []
    assert violations("from whence.cli import main", "whence", is_package=True) == []
    assert violations("", "whence.attic", is_package=True) == ["whence.attic: attic is not a room"]
    assert violations("", "whence.attic.box") == ["whence.attic.box: attic is not a room"]
    assert violations("from whence.graph import types", "whence.errors") == [
        "whence.errors:1: errors imports graph, which comes after it"
    ]


OTHER_VOCABULARIES = ("ops", "frontends", "foreign")
"""`ops` is where facts about operators stand; the others have tables of what file formats and other
engines call them.
"""
MEASURED = (
    ("building/nominal_rates.py", "Div"),
    ("building/nominal_rates.py", "Mod"),
    ("calibration/probes.py", "Sigmoid"),
)
"""By the first operator they name: the functions that a machine is measured by, and what they take
if it is not. Which operators cost like them follows from their formulas, or stands in
`OpDef.costs_like`.
"""


def operator_lists(text: str) -> list[tuple[int, list[str]]]:
    """Line and names of every literal that lists operators, or maps them to facts. A table that
    maps each operator to the function that handles it is no fact but a rule for each, and allowed.
    """
    found = []
    tree = parsed(text)
    exported = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and any(isinstance(name, ast.Name) and name.id == "__all__" for name in node.targets)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Set | ast.Tuple | ast.List) and id(node) not in exported:
            listed: list[ast.expr | None] = list(node.elts)
        elif isinstance(node, ast.Dict) and any(map(_is_constant, node.values)):
            listed = node.keys
        else:
            continue
        names = [each.value for each in listed if isinstance(each, ast.Constant)]
        operators = [name for name in names if isinstance(name, str) and name in REGISTRY]
        if len(operators) > 1:
            found.append((node.lineno, operators))
    return sorted(found)


def _is_constant(value: ast.expr) -> bool:
    parts = value.elts if isinstance(value, ast.Tuple | ast.List | ast.Set) else [value]
    return all(isinstance(part, ast.Constant) or _is_nested_constant(part) for part in parts)


def _is_nested_constant(value: ast.expr) -> bool:
    return isinstance(value, ast.Tuple | ast.List | ast.Set) and _is_constant(value)


def test_no_operator_is_listed_outside_ops() -> None:
    found = []
    for path, module, _ in source_files():
        if module.split(".")[1:2] == [] or module.split(".")[1] in OTHER_VOCABULARIES:
            continue
        place = path.relative_to(SOURCE).as_posix()
        for line, names in operator_lists(path.read_text(encoding="utf-8")):
            if (place, names[0]) not in MEASURED:
                found.append(f"{place}:{line}: lists {', '.join(names)}")
    assert not found, (
        "What is true of operators stands in their definitions (traits and other fields of OpDef);"
        " alternatives of a pattern are `node.is_a(...)` or `one_of(...)`.\n" + "\n".join(found)
    )


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('X = frozenset({"Relu", "Tanh"})', 1),
        ('X = ("Relu", "Tanh", "no operator")', 1),
        ('def f(op):\n    return op in ["Relu", "Tanh"]', 1),
        ('X = {"Relu": 1, "Tanh": 2}', 1),
        ('X = {"Relu": ("alpha", 1.0), "Tanh": ()}', 1),
        ('X = {"Relu": relu, "Tanh": tanh}', 0),
        ('X = {"Relu": ("a law", relu), "Tanh": ("a law", tanh)}', 0),
        ('X = ("Relu", "no operator")', 0),
        ('X = {"Relu": 1}', 0),
        ('__all__ = ["Relu", "Tanh"]', 0),
        ('node.is_a("Relu", "Tanh")', 0),
    ],
)
def test_checker_sees_a_list_of_operators(text: str, count: int) -> None:
    assert len(operator_lists(text)) == count


def test_a_class_has_its_name_to_itself() -> None:
    """A reader who searches for a public class finds one, and one meaning of its name."""
    defined: dict[str, list[str]] = {}
    for path, module, _ in source_files():
        for node in parsed(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined.setdefault(node.name, []).append(module)
    shared = {name: modules for name, modules in defined.items() if len(modules) > 1}
    assert not shared, f"Say in the name which is meant: {shared}"
