"""The pages of the documentation that are lists of what the code has:

python -m tools.reference_pages        writes docs/reference/operators.md and commands.md
"""

from __future__ import annotations

import inspect
import re
import textwrap
from importlib import import_module
from pathlib import Path

from whence.cli.main import COMMANDS, docstring
from whence.kernels.group import RULES as ELEMENT_RULES
from whence.kernels.lower import FAMILIES, VIEWS
from whence.ops.definition import OpClass
from whence.ops.registry import REGISTRY

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"


def operators() -> str:
    """Every operator, and how it runs."""
    native = {*FAMILIES, *ELEMENT_RULES, *VIEWS}
    names = sorted(REGISTRY, key=str.lower)
    lines = [
        "# Operators",
        "",
        _wrapped(
            f"{len(names)} operators, {len(native & set(names))} of them with native kernels, on"
            " the CPU and in OpenCL. The others run through their reference implementation in NumPy; so"
            " does a native one whose operands are of a type, or rank, that its kernels do not"
            " cover: the profile says which, and why. Operators that readers rewrite into these"
            " (`QLinearConv`, `SkipLayerNormalization`, TFLite's and PyTorch's own) are not in the"
            " list."
        ),
        "",
        "| operator | runs | kind |",
        "|---|---|---|",
    ]
    for name in names:
        how = "native" if name in native else "reference"
        lines.append(f"| `{name}` | {how} | {_kind(name)} |")
    return "\n".join(lines) + "\n"


def _wrapped(text: str) -> str:
    prose = " ".join(text.split())
    return textwrap.fill(prose, 100, break_long_words=False, break_on_hyphens=False)


def _kind(name: str) -> str:
    classes = REGISTRY[name].classes
    words = [str(flag.name).lower() for flag in OpClass if flag.value and flag in classes]
    return ", ".join(words)


def commands() -> str:
    """Every command with what `--help` says about it."""
    lines = ["# Commands", "", "`whence COMMAND --help` has all options of each.", ""]
    for name, (module, function) in COMMANDS.items():
        text = inspect.cleandoc(docstring(module, function))
        summary, _, rest = text.partition("\n\n")
        lines += [f"## whence {name}", "", _wrapped(summary), ""]
        examples = [
            re.sub(r"\[/?dim\]", "", line).strip() for line in rest.splitlines() if "[dim]" in line
        ]
        prose = [line for line in rest.split("\n\n") if "[dim]" not in line and line.strip()]
        lines += [_wrapped(paragraph) + "\n" for paragraph in prose]
        if examples:
            lines += ["```text", *examples, "```", ""]
        import_module(f"whence.cli.{module}")  # a command that cannot be imported has no page
    return "\n".join(lines).rstrip() + "\n"


PAGES = {"operators.md": operators, "commands.md": commands}


def main() -> None:
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
