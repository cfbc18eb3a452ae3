"""Which modules of the package import each other in a circle, and where an import inside a function
hides it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Import(NamedTuple):
    importer: str
    imported: str
    deferred: bool
    """Does it stand in a function, and so take place later than the module's own?"""


def imports_of(module: str, text: str, modules: frozenset[str]) -> Iterator[Import]:
    """The imports of a module that lead to other modules of the package. Those for type checkers
    only do not take place.
    """
    is_package = any(name.startswith(f"{module}.") for name in modules)
    package = module.split(".") if is_package else module.split(".")[:-1]

    def visit(node: ast.AST, deferred: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.Import(names=names):
                    found = [alias.name for alias in names]
                case ast.ImportFrom(module=source, names=names, level=level):
                    base = package[: len(package) - level + 1] if level else []
                    path = ".".join([*base, *([source] if source else [])])
                    found = [_target(f"{path}.{alias.name}", modules) for alias in names]
                case ast.Call(
                    func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
                    args=[ast.Constant(value=str(name))],
                ):
                    found = [name]
                case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=orelse):
                    for each in orelse:
                        yield from visit(each, deferred)
                    continue
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    yield from visit(child, True)
                    continue
                case _:
                    yield from visit(child, deferred)
                    continue
            yield from (Import(module, name, deferred) for name in found if name in modules)

    yield from visit(ast.parse(text), False)


def _target(name: str, modules: frozenset[str]) -> str:
    """The module that `from a import b` loads: a.b if that is one, else a."""
    return name if name in modules else name.rpartition(".")[0]


def hidden_cycles(sources: Mapping[str, str]) -> set[tuple[str, str]]:
    """Imports inside functions from which the importing module can be reached again."""
    modules = frozenset(sources)
    found = [each for module, text in sources.items() for each in imports_of(module, text, modules)]
    onward: dict[str, set[str]] = {}
    for each in found:
        onward.setdefault(each.importer, set()).add(each.imported)
    return {
        (each.importer, each.imported)
        for each in found
        if each.deferred
        and each.importer != each.imported
        and each.importer in _reachable(each.imported, onward)
    }


def _reachable(module: str, onward: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        for name in onward.get(waiting.pop(), ()):
            if name not in seen:
                seen.add(name)
                waiting.append(name)
    return seen
