"""C and OpenCL C are written by renderers: no other room has them in its strings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "whence"
RENDERERS = ("codegen",)
EXPORTERS = ("building/export.py", "backends/opencl/export.py")
"""Write a plan as tables beside the kernels, and know nothing of what kernels do."""
MEASURING = ("backends/cpu/candidate_timing.py", "calibration/measure.py")
"""Have programs of their own that fill caches or time instructions; no model runs them."""

_C = re.compile(
    r"\b(u?int(8|16|32|64)_t|restrict|__\w*builtin_\w+|__attribute__|__global|__local|__kernel)\b"
    r"|\b(const )?(float|double|void|char) \*"
    r"|\bfor \([^)]*;|#(pragma|include|define) |\bstatic (const|inline)\b|\breturn [^;\n]+;$"
    r"|^\w*\[lane\]$|(\w|\])\[[^\]]*\] [-+*]?= [^;\n]*;|\(void\)\w+;|\b(get_(local|global|group)_id|barrier)\("
)


def _texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """String constants with their lines, those of f-strings included; docstrings are prose."""
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.lineno, node.value


def _found(path: Path) -> list[str]:
    return [
        f"{path.relative_to(SOURCE)}:{line}: {text.strip()[:60]!r}"
        for line, text in _texts(ast.parse(path.read_text(encoding="utf-8")))
        if _C.search(text)
    ]


def test_only_renderers_write_c() -> None:
    files = [
        path
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] not in RENDERERS
        and path.relative_to(SOURCE).as_posix() not in (*EXPORTERS, *MEASURING)
    ]
    assert len(files) > 100
    found = [each for path in files for each in _found(path)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "const int64_t n0 = panel * 16;",
        "for (int i = 0; i < 4; i++) {",
        "sum[i][0] += x * b0;",
        "__builtin_prefetch(ahead + 16, 0, 2);",
        "const float *restrict a = in0;",
        "#pragma clang loop unroll(full)",
        "barrier(CLK_LOCAL_MEM_FENCE);",
    ],
)
def test_the_check_knows_c(text: str) -> None:
    assert _C.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "the kernel reads 16 values for (each) row",
        "a float [3, 4] that nobody reads",
        "whence.kernels.gemm",
        "in0",
        "%7 f32[1,64] = ConvRelu(%3, %w4) strides=[1,1]",
    ],
)
def test_the_check_leaves_prose_alone(text: str) -> None:
    assert not _C.search(text)
