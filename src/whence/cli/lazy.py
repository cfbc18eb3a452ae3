"""Commands that are imported when they are used, so that `--help` does not wait for compilers and
readers.

What the list of commands says about one is the docstring of its function, read from the file's
text.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

SETTINGS: Mapping[str, Any] = {"help_option_names": ["-h", "--help"]}


class LazyCommand(TyperCommand):
    """A command known by name; its module, beside this one, is imported when it is called."""

    def __init__(self, name: str, module: str, function: str) -> None:
        text = docstring(module, function)
        # The list of commands would keep the line breaks of the source.
        summary = " ".join(text.partition("\n\n")[0].split())
        super().__init__(name, help=text, short_help=summary, rich_markup_mode="rich")
        self._module, self._function = module, function

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """The real command's context, through which everything else goes."""
        app = typer.Typer(
            add_completion=False,
            rich_markup_mode="rich",
            pretty_exceptions_enable=False,
            context_settings=dict(SETTINGS),
        )
        app.command(self.name)(
            getattr(importlib.import_module(f"whence.cli.{self._module}"), self._function)
        )
        return get_command(app).make_context(info_name, args, parent=parent, **extra)


def docstring(module: str, function: str) -> str:
    """Of a function of a module beside this one, which is not imported."""
    tree = ast.parse((Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return ast.get_docstring(node) or ""
    raise LookupError(f"whence.cli.{module} has no function {function}")


def group_of(commands: Mapping[str, tuple[str, str]]) -> type[TyperGroup]:
    """A group of commands, each by name with its module and function."""

    class LazyGroup(TyperGroup):
        def __init__(self, **attrs: Any) -> None:
            super().__init__(**attrs)
            for name, (module, function) in commands.items():
                self.add_command(LazyCommand(name, module, function))

    return LazyGroup
