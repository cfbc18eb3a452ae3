"""Compiled models as files, and that nothing a model is called can become code."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cpu_backend import cpu_backend
from tests.runtime.c_text import code_of, squeezed
from tests.runtime.models import mixed, parsed, relu
from tests.runtime.zig import zig_cc
from whence.backends.cpu.generator import build_program, tile_for
from whence.building.export import c_string, export, header_text, identifier, model_source
from whence.codegen.c_text import c_comment
from whence.codegen.emit import emit
from whence.errors import UnsupportedError
from whence.fusion import find_groups, fuse
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.kernels.ir import Kernel
from whence.kernels.lower import lower
from whence.provenance import SourceOp
from whence.runtime.engine import Engine
from whence.types import DType

HOSTILE = (
    "*/ #error injected /*",
    "*/",
    "/*",
    "**//**/",
    "/*/",
    '"; } void injected(void) { system("echo"); } char *s = "',
    "a\nb",
    "\n#error injected\n",
    '#include "/etc/passwd"',
    "ends in a backslash\\",
    "\\\n#error injected",
    "??/",
    "???/",
    "????/\n#error injected",
    "*??/\n/ #error injected",
    "'",
    "\\",
    '\\"',
    "\\x41\\",
    "%s%n",
    "\0#error injected",
    "\r#error injected",
    "\x1b[31m",
    "\udcff\udc80",
    "\ud800",
    "é 日本 \u2028#error injected",
    "@name@",
    "_Pragma",
)


def _graph(names: tuple[str, ...] = ()) -> Graph:
    """Several kernels, several inputs and outputs, each called by one of the names."""
    texts = iter(names)

    def name() -> str:
        return next(texts, "")

    build = GraphBuilder(name())
    total = None
    for number in range(8):
        x = build.input(name() or f"x{number}", DType.F32, [4, 4 + number])
        y = build.op("Softmax", build.op("Relu", x, name=name()), name=name())
        total = y if number == 0 else build.op("ReduceSum", y, name=name(), keepdims=0)
        build.output(name() or f"y{number}", total)
    return build.finish()


def _spread(names: tuple[str, ...], places: int = 41) -> tuple[str, ...]:
    """The names over and over, each with its position, so that no two are equal."""
    return tuple(
        f"{names[index % len(names)]}{index // len(names) or ''}" for index in range(places)
    )


# ---- names ----


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_in_a_comment_stays_in_it(name: str) -> None:
    for text in (
        f"/* {c_comment(name)} */",
        f"/* {c_comment(name)}  f32\n*/",
        f"/* {c_comment(name)}\n   {c_comment(name)} */",
    ):
        assert code_of(text + "\nint x;").strip() == "int x;"


@given(st.text(st.characters(codec=None), max_size=30) | st.text("*/\\?\n\r\"'#<>= x", max_size=12))
def test_any_text_in_a_comment_or_a_string_stays_in_it(text: str) -> None:
    assert code_of(f"/* {c_comment(text)} */ int x;").strip() == "int x;"
    literal = c_string(text)
    assert re.fullmatch(r'"([ !#->@-\[\]-~]|\\[0-3][0-7][0-7])*"', literal)
    assert code_of(f"{literal};") == '"";'


@given(st.text(max_size=20))
def test_a_string_says_what_it_was_made_from(text: str) -> None:
    data = re.sub(
        rb"\\([0-3][0-7][0-7])",
        lambda found: bytes([int(found[1], 8)]),
        c_string(text)[1:-1].encode("ascii"),
    )
    assert data == text.encode()


def test_bytes_that_are_not_utf8_come_back() -> None:
    assert c_string(b"\xff\x80a".decode("utf-8", "surrogateescape")) == '"\\377\\200a"'
    assert c_string("\ud800") == '"\\357\\277\\275"'


@given(st.text(st.characters(codec=None), max_size=300))
def test_an_identifier_is_one(text: str) -> None:
    found = identifier(text)
    assert re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", found)
    assert len(found) < 100


def test_identifiers_are_readable() -> None:
    assert [
        identifier(name) for name in ("resnet50", "a/b-c.d", "1st", "", "日本", "../../etc/passwd")
    ] == [
        "resnet50",
        "a_b_c_d",
        "model_1st",
        "model",
        "model",
        "etc_passwd",
    ]


def test_hostile_names_leave_the_code_as_it_is(engine: Engine) -> None:
    plain, hostile = (
        build_program(_graph(names), cpu_backend(engine).toolchain, load=False)
        for names in ((), _spread(HOSTILE))
    )
    assert [unit.name for unit in plain.units] == [unit.name for unit in hostile.units]
    for one, two in zip(plain.units, hostile.units, strict=True):
        assert squeezed(one.source) == squeezed(two.source)
        assert one.source != two.source, "the names are there to be read"
        assert two.source.isascii()
    assert squeezed(header_text(plain, "m")) == squeezed(header_text(hostile, "m"))
    assert squeezed(model_source(plain, "m")) == squeezed(model_source(hostile, "m"))
    assert [step.symbol for step in plain.steps] == [step.symbol for step in hostile.steps]
    assert all(re.fullmatch(r"\w+", step.symbol, re.ASCII) for step in hostile.steps)


def test_an_operator_type_cannot_become_code(engine: Engine) -> None:
    graph = parsed("odd (float[4] x) => (float[4] y) { y = Relu(x) }")
    program = build_program(graph, cpu_backend(engine).toolchain, load=False)
    (kernel,) = _kernels(graph, engine)
    emitted = emit([replace(kernel, name="x(void) {} */ #error")], [["*/ #error"]])
    assert re.fullmatch(r"x_void_error_[0-9a-f]{16}", emitted.symbols[0])
    assert "#error" not in code_of(emitted.units[0].source)
    assert program.units[0].functions[0].symbol.endswith(emitted.symbols[0][-16:])


def _kernels(graph: Graph, engine: Engine) -> list[Kernel]:
    return [
        step.kernel
        for step in lower(
            fuse(graph, find_groups(graph, "dominator")), tile_for(cpu_backend(engine).toolchain)
        )
        if step.kernel is not None
    ]


def test_a_model_of_hostile_names_compiles_and_runs(engine: Engine, tmp_path: Path) -> None:
    names = _spread(HOSTILE)
    graph = _graph(names)
    program = build_program(graph, cpu_backend(engine).toolchain, load=False)
    library, header, *_ = export(
        program, cpu_backend(engine).toolchain, tmp_path / "out", HOSTILE[5]
    )
    assert library.name == "libvoid_injected_void_system_echo_char_s.so"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    code = ctypes.CDLL(str(library))
    assert not hasattr(code, "injected")
    code.whence_step_name.restype = ctypes.c_char_p
    handle = ctypes.c_void_p()
    description = getattr(code, f"{header.stem}_description")
    description.restype = ctypes.c_void_p
    weights = str(header.with_suffix(".weights")).encode()
    assert (
        code.whence_model_create(ctypes.byref(handle), ctypes.c_void_p(description()), weights, 1)
        == 0
    )
    told = [code.whence_step_name(handle, step) for step in range(code.whence_step_count(handle))]
    sources = {
        source.name.encode("utf-8", "surrogateescape").split(b"\0")[0]
        for source in _sources(graph)
        if "\ud800" not in source.name
    }
    assert any(source in title for source in sources for title in told)
    assert all(
        any(source in title for title in told)
        for source in sources
        if b"ends in" in source or b"error" in source
    )
    code.whence_model_destroy(handle)


def _sources(graph: Graph) -> list[SourceOp]:
    return [graph.ledger.source(number) for node in graph for number in node.origin]


@pytest.mark.parametrize(("language", "standard"), [("c", "c99"), ("c", "c11"), ("c++", "c++11")])
def test_the_header_is_clean_in_every_language(
    engine: Engine, tmp_path: Path, language: str, standard: str
) -> None:
    program = build_program(_graph(_spread(HOSTILE)), cpu_backend(engine).toolchain, load=False)
    export(program, cpu_backend(engine).toolchain, tmp_path, "net")
    (tmp_path / "use.source").write_text(
        '#include "net.h"\n#include "net.h"\nint use(void);\nint use(void) { return'
        " net_description() != 0; }\n"
    )
    # Trigraphs are part of these standards, and comments within comments are warned of.
    strict = (
        f"-std={standard}",
        "-trigraphs",
        "-pedantic",
        "-Wall",
        "-Wextra",
        "-Wcomment",
        "-Wtrigraphs",
        "-Werror",
    )
    assert (
        zig_cc(
            cpu_backend(engine).toolchain,
            tmp_path,
            "-c",
            "-nostdinc++",
            *strict,
            "-x",
            language,
            "use.source",
            "-o",
            "use.o",
        )
        == ""
    )


# ---- files ----


def test_what_is_written(engine: Engine, tmp_path: Path) -> None:
    build = GraphBuilder("product")
    x = build.input("image", DType.F32, [2, 3])
    build.output(
        "scores",
        build.op(
            "MatMul", x, build.const(np.arange(12, dtype=np.float32).reshape(3, 4)), name="classify"
        ),
    )
    program = build_program(build.finish(), cpu_backend(engine).toolchain, load=False)
    written = export(program, cpu_backend(engine).toolchain, tmp_path / "deep" / "er", "my net")
    folder = tmp_path / "deep" / "er"
    assert written == [
        folder / "libmy_net.so",
        folder / "my_net.h",
        folder / "whence.h",
        folder / "my_net.weights",
        folder / "src",
    ]
    header = (folder / "my_net.h").read_text(encoding="ascii")
    assert "     0  image  f32[2,3], 24 bytes" in header
    assert "     0  scores  f32[2,4], 32 bytes" in header
    assert (folder / "my_net.weights").stat().st_size == program.weights.nbytes
    assert sorted(path.name for path in (folder / "src").iterdir()) == [
        "kernels0.c",
        "my_net.c",
        "whence.c",
        "whence.h",
        "whence_cores.c",
        "whence_cores.h",
        "whence_description.h",
        "whence_kernels.h",
        "whence_pool.c",
        "whence_pool.h",
        "whence_runtime.c",
        "whence_runtime.h",
        "whence_state.c",
        "whence_state.h",
        "whence_stream.c",
        "whence_stream.h",
    ]
    assert "/* classify */" in (folder / "src" / "kernels0.c").read_text(encoding="ascii")


def test_the_written_sources_compile_by_themselves(engine: Engine, tmp_path: Path) -> None:
    export(
        build_program(relu(), cpu_backend(engine).toolchain, load=False),
        cpu_backend(engine).toolchain,
        tmp_path,
        "net",
    )
    sources = sorted(path.name for path in (tmp_path / "src").glob("*.c"))
    strict = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
    zig_cc(
        cpu_backend(engine).toolchain,
        tmp_path / "src",
        "-shared",
        "-fPIC",
        *strict,
        *sources,
        "-lm",
        "-lpthread",
        "-o",
        "libagain.so",
    )


@pytest.mark.parametrize(
    "name",
    ["whence", "whence_runtime", "whence_description", "kernels0", "c", "m", "pthread", "OpenCL"],
)
def test_a_name_that_is_taken_gets_a_prefix(engine: Engine, tmp_path: Path, name: str) -> None:
    written = export(
        build_program(relu(), cpu_backend(engine).toolchain, load=False),
        cpu_backend(engine).toolchain,
        tmp_path,
        name,
    )
    assert written[0].name == f"libmodel_{name}.so"
    assert len({path.name for path in (tmp_path / "src").iterdir()}) == 16


def test_exporting_again_replaces(engine: Engine, tmp_path: Path) -> None:
    for shape in ((4,), (5,)):
        export(
            build_program(relu(*shape), cpu_backend(engine).toolchain, load=False),
            cpu_backend(engine).toolchain,
            tmp_path,
            "net",
        )
    assert "f32[5]" in (tmp_path / "net.h").read_text(encoding="ascii")


def test_a_model_that_needs_python_is_refused(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"need Python, first reference_NonZero: "):
        export(
            build_program(mixed(), cpu_backend(engine).toolchain, load=False),
            cpu_backend(engine).toolchain,
            tmp_path / "out",
            "net",
        )
    assert not (tmp_path / "out").exists()


def test_values_without_a_size_are_refused(engine: Engine, tmp_path: Path) -> None:
    graph = parsed(
        "text (string[2] words, float[n] x) => (string[2] same) { same = Identity(words) }"
    )
    with pytest.raises(UnsupportedError, match="input 'words' is string"):
        export(
            build_program(graph, cpu_backend(engine).toolchain, load=False),
            cpu_backend(engine).toolchain,
            tmp_path / "out",
            "net",
        )
    open_shape = relu("n")
    with pytest.raises(UnsupportedError):
        export(
            build_program(open_shape, cpu_backend(engine).toolchain, load=False),
            cpu_backend(engine).toolchain,
            tmp_path / "out",
            "net",
        )
