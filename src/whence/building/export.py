"""A compiled model as files: a library, a header, its weights, and the C it was made from."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from whence.building.allocate import is_planned
from whence.building.location import Location
from whence.building.program import Program, Segment
from whence.codegen.c_text import c_comment
from whence.codegen.emit import source_files
from whence.codegen.toolchain import SourceUnit, Toolchain
from whence.errors import UnsupportedError
from whence.graph import Graph, Node, Ref

# What our own files, or libraries that every program is linked with, are called.
_TAKEN = re.compile(r"whence\w*|kernels\d+|c|m|dl|rt|util|pthread|OpenCL|gcc\w*|std\w*", re.ASCII)
_LONGEST = 80
_SHOWN = 5


class NativeFiles(NamedTuple):
    """What of `runtime/native` becomes part of a library."""

    modules: tuple[str, ...]
    """Each a source and its header."""
    more_headers: tuple[str, ...]
    public: tuple[str, ...] = ("whence.h",)
    """The headers that applications include; the model's own includes the last."""


_FILES = NativeFiles(
    ("whence", "whence_cores", "whence_pool", "whence_runtime", "whence_state", "whence_stream"),
    ("whence_description.h",),
)


def export(program: Program, toolchain: Toolchain, folder: Path, name: str) -> list[Path]:
    """Write `libNAME.so`, `NAME.h`, `whence.h`, `NAME.weights` and `src/`; returns what was
    written.

    Only a model can leave Python that is native throughout, and takes and gives tensors of fixed
    sizes.
    """
    check_exportable(program, "native kernel")
    stem = file_stem(name)
    units = [*program.units, SourceUnit(stem, model_source(program, stem))]
    return write_library(program, toolchain, folder, stem, units, _FILES)


def file_stem(name: str) -> str:
    """What the files of a model are called."""
    stem = identifier(name)
    return f"model_{stem}" if _TAKEN.fullmatch(stem) else stem


def write_library(
    program: Program,
    toolchain: Toolchain,
    folder: Path,
    stem: str,
    units: Sequence[SourceUnit],
    files: NativeFiles,
    *,
    links_later: bool = False,
) -> list[Path]:
    """Compile the units of a model with the run-time files, and write the library, headers, weights
    and sources; returns what was written. With `links_later`, the library leaves functions to the
    program that it is linked into.
    """
    folder_in_package = resources.files("whence.runtime") / "native"

    def native(file: str) -> str:
        return (folder_in_package / file).read_text(encoding="utf-8")

    names = sorted((*(f"{each}.h" for each in files.modules), *files.more_headers))
    headers = tuple((name, native(name)) for name in names)
    all_units = [
        *(unit if unit.headers else SourceUnit(unit.name, unit.source, headers) for unit in units),
        *(SourceUnit(each, native(f"{each}.c"), headers) for each in files.modules),
    ]
    library_name = f"lib{stem}{toolchain.target.library_suffix}"
    library = toolchain.build_library(
        all_units, link_libc=True, soname=library_name, links_later=links_later
    )

    sources = folder / "src"
    sources.mkdir(parents=True, exist_ok=True)
    own = [folder / library_name, folder / f"{stem}.h"]
    public = [folder / each for each in files.public]
    weights = folder / f"{stem}.weights"
    shutil.copyfile(library, own[0])
    own[1].write_text(header_text(program, stem, files.public[-1]), encoding="ascii")
    for path in public:
        path.write_text(native(path.name), encoding="utf-8")
    program.weights.tofile(weights)
    for file, text in source_files(all_units).items():
        (sources / file).write_text(text, encoding="utf-8")
    return [*own, *public, weights, sources]


def check_exportable(program: Program, wanted: str) -> None:
    """Raises `UnsupportedError` unless every step has a kernel of the kind that is wanted, and
    every input and output a size.
    """
    for kind, nodes in (("input", program.graph.inputs), ("output", program.graph.outputs)):
        for node in nodes:
            ref = _value(node)
            if not is_planned(program.graph, ref):
                raise UnsupportedError(
                    f"{kind} '{node.name}' is {program.graph.type_of(ref)}, which has no fixed size"
                    " that C could be given"
                )
    references = [step for step in program.steps if not step.symbol]
    if references:
        first = references[0]
        names = dict.fromkeys(
            program.graph.ledger.source(source).name
            for step in references
            for source in sorted(step.origin)
        )
        shown = ", ".join(f"'{name}'" for name in list(names)[:_SHOWN])
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise UnsupportedError(
            f"{len(references)} of {len(program.steps)} steps have no {wanted} and need"
            f" Python, first {first.name}: {first.why_reference}"
            + (f" (operators {shown}{more})" if names else "")
        )


def identifier(name: str) -> str:
    """A C identifier, and a file name, from any text: letters, digits and underscores, not endless,
    and no digit first.
    """
    plain = re.sub(r"\W+", "_", name, flags=re.ASCII)[:_LONGEST].strip("_") or "model"
    return f"model_{plain}" if plain[0].isdigit() else plain


def header_text(program: Program, stem: str, included: str = "whence.h") -> str:
    """The model's own header: how to get its description, and what it takes and gives."""
    graph = program.graph
    lines = [
        f"#ifndef WHENCE_{stem.upper()}_H",
        f"#define WHENCE_{stem.upper()}_H",
        "",
        f'#include "{included}"',
        "",
    ]
    for title, nodes in (("Inputs", graph.inputs), ("Outputs", graph.outputs)):
        lines.append(f"/* {title}, in order:")
        lines.extend(
            f"     {index}  {c_comment(node.name)}  {c_comment(str(graph.type_of(_value(node))))},"
            f" {graph.nbytes(_value(node))} bytes"
            for index, node in enumerate(nodes)
        )
        lines.append("*/")
    if graph.variables:
        lines.append("/* State, of which every stream has its own (whence_reset_state):")
        lines.extend(
            f"     {c_comment(node.name)}  {c_comment(str(node.type))},"
            f" {graph.nbytes(node.ref())} bytes"
            for node in graph.variables
        )
        lines.append("*/")
    lines += [
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        f"const whence_description_t *{stem}_description(void);",
        "#ifdef __cplusplus",
        "}",
        "#endif",
    ]
    return "\n".join([*lines, "#endif", ""])


def _value(node: Node) -> Ref:
    """What an input gives or an output takes."""
    return node.first_input if node.op == "Output" else node.ref()


def model_source(program: Program, stem: str) -> str:
    """The tables of the model as C."""
    steps: list[str] = []
    slots: list[str] = []
    symbols: list[str] = []
    chains: list[str] = []
    ranges: list[str] = []
    for action in program.actions:
        assert isinstance(action, Segment)
        plan = action.plan
        base = len(slots)
        slots += [
            f"{{{slot.region}, {slot.index}, {slot.offset}}}" for slot in plan.slots[: plan.n_slots]
        ]
        for chain in action.chains:
            ends = f"{chain.first + len(steps)}, {chain.last + len(steps)}"
            chains.append(f"{{{ends}, {len(ranges)}, {len(chain.ranges)}}}")
            ranges += [
                f"{{{each.step + len(steps)}, {each.begin}, {each.end}}}" for each in chain.ranges
            ]
        for number in range(plan.n_steps):
            step, described = plan.steps[number], program.steps[plan.first_step + number]
            symbols.append(described.symbol)
            where = f"{step.first_slot + base}, {step.n_slots}, {step.n_guards}, {step.wanted}u"
            steps.append(f"{{{described.symbol}, {step.tasks}, {step.grain}, {where}}}")
    declarations = [
        f"void {symbol}(void *const *buf, int64_t begin, int64_t end, void *scratch);"
        for symbol in dict.fromkeys(symbols)
    ]
    tables = [
        *table("wh_step steps", steps, "{0}"),
        *table("wh_slot slots", slots, "{0}"),
        *table("wh_chain chains", chains, "{0}"),
        *table("wh_range ranges", ranges, "{0}"),
        (
            f"static const wh_plan plan = {{steps, slots, {len(steps)}, {len(slots)},"
            f" {program.plan.scratch_bytes}, 0, chains, ranges, {len(chains)}}};"
        ),
    ]
    return described_model(program, stem, [*declarations, "", *tables], "&plan, 0")


def described_model(program: Program, stem: str, tables: Sequence[str], plans: str) -> str:
    """The description of a model as C, after the tables of its steps. `plans` are the two plans,
    that of the processor and that of a device.
    """
    copies = [f"{{{c_slot(copy.source)}, {copy.output}, {copy.size}}}" for copy in program.copies]
    variables = [
        f"{{{each.nbytes}, {each.initial_offset}, {each.initial_bytes},"
        f" {int(each.in_place or not each.is_assigned)}}}"
        for each in program.plan.variables
    ]
    graph = program.graph
    titles = [c_string(_title(program, number)) for number in range(len(program.steps))]
    return "\n".join(
        [
            '#include "whence.h"',
            '#include "whence_description.h"',
            "",
            *tables,
            *table("char *const step_names", titles, "0"),
            *table("wh_copy copies", copies, "{0}"),
            *table("wh_variable variables", variables, "{0}"),
            *table("int64_t input_bytes", _sizes(graph, graph.inputs), "0"),
            *table("int64_t output_bytes", _sizes(graph, graph.outputs), "0"),
            "static const struct whence_description description = {",
            f"  {plans}, step_names, {len(program.steps)},",
            f"  copies, {len(copies)}, input_bytes, output_bytes,",
            (
                f"  {program.memory.arena_bytes}, {program.packed.nbytes}, {len(graph.inputs)},"
                f" {len(graph.outputs)}, variables, {len(variables)},"
            ),
            "};",
            "",
            f"const whence_description_t *{stem}_description(void);",
            f"const whence_description_t *{stem}_description(void) {{ return &description; }}",
            "",
        ]
    )


def c_slot(place: Location) -> str:
    """A place as an initialiser of `wh_slot`."""
    return f"{{{int(place.region)}, {place.index}, {place.offset}}}"


def _sizes(graph: Graph, nodes: Iterable[Node]) -> list[str]:
    return [str(graph.nbytes(_value(node))) for node in nodes]


def table(head: str, rows: Sequence[str], empty: str) -> list[str]:
    """A table in C; what is `empty` stands in one without rows, which C does not have."""
    return [f"static const {head}[] = {{", *(f"  {row}," for row in rows or [empty]), "};", ""]


def _title(program: Program, number: int) -> str:
    step = program.steps[number]
    names = [program.graph.ledger.source(source).name for source in sorted(step.origin)]
    return f"{step.name}: {' + '.join(names)}" if names else step.name


def c_string(text: str) -> str:
    """A C string literal of any text: every byte that is not plain is an octal escape, which cannot
    swallow what follows it.
    """
    # A file's bytes that are not UTF-8 are read as surrogates of their own, and go back to what
    # they were; other lone surrogates have no bytes.
    data = re.sub("[\ud800-\udc7f\udd00-\udfff]", "\ufffd", text).encode("utf-8", "surrogateescape")
    return (
        '"'
        + "".join(
            chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}"
            for byte in data
        )
        + '"'
    )
