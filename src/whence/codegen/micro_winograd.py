"""Winograd's convolution in C: transform a chunk of the input, multiply place by place, transform
back and store.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from whence.codegen.epilogue import Epilogue, vector_typedef
from whence.codegen.render_c import CWriter
from whence.kernels.conv.epilogue import IMAGE
from whence.kernels.conv.winograd import KERNEL, Winograd, transforms
from whence.kernels.ir import Micro
from whence.machine import CACHE_LINE

# As many products in a row as it takes to make the loop around them free.
_PRODUCTS = 24


def write_winograd(writer: CWriter, micro: Micro) -> None:
    assert isinstance(micro, Winograd)
    it, line = micro, writer.line
    line(vector_typedef(it.lanes))
    line(
        "float *restrict transformed = scratch, *restrict products = transformed +"
        f" {it.input_floats};"
    )
    line("int64_t have = -1;")
    writer.open("for (int64_t task = begin; task < end; task++)")
    line(
        f"const int64_t chunk = task / {it.parts}, part = task % {it.parts}, first = chunk *"
        f" {it.chunk};"
    )
    line(
        f"const int64_t count = first + {it.chunk} <= {it.tiles} ? {it.chunk} : {it.tiles} - first;"
    )
    writer.open("if (chunk != have)")
    line("have = chunk;")
    _input(writer, it)
    writer.close()
    writer.open(
        f"for (int64_t panel = part * {it.panels} / {it.parts}; panel < (part + 1) * {it.panels} /"
        f" {it.parts}; panel++)"
    )
    width = it.vectors * it.lanes
    line(
        f"const int64_t block = panel * {width} / {it.block}, lane0 = panel * {width} % {it.block};"
    )
    _multiply(writer, it)
    _output(writer, it)
    writer.close()
    writer.close()


def _tile_place(writer: CWriter, it: Winograd) -> None:
    """Where the tile number `first + t` begins in the output."""
    across, area = it.tiles_across, it.tiles_down * it.tiles_across
    writer.line(
        f"const int64_t {IMAGE} = (first + t) / {area}, row = (first + t) % {area} / {across} *"
        f" {it.size};"
    )
    writer.line(f"const int64_t column = (first + t) % {across} * {it.size};")


def _input(writer: CWriter, it: Winograd) -> None:
    line, n = writer.line, it.size + KERNEL - 1
    height, width = it.rows.size, it.columns.size
    apart = it.tile_rows * it.block
    matrix = transforms(it.size).input
    writer.open("for (int64_t t = 0; t < count; t++)")
    line(f"const int64_t group = t / {it.tile_rows}, member = t % {it.tile_rows};")
    _tile_place(writer, it)
    line(f"const int64_t top = row - {it.rows.begin}, left = column - {it.columns.begin};")
    line(
        f"const int inside = top >= 0 && top + {n} <= {height} && left >= 0 && left + {n} <="
        f" {width};"
    )
    line(
        f"const float *from = {it.source} + (({IMAGE} * {it.blocks_in} * {height} + top) * {width}"
        f" + left) * {it.block};"
    )
    # At the edges, what lies outside is read from the image's first pixel instead, and every bit of
    # it dropped: a branch for each would take longer.
    line(f"int64_t at[{n * n}];")
    line(f"int32_t keep[{n * n}];")
    writer.open("if (!inside)")
    writer.open(f"for (int i = 0; i < {n}; i++) for (int j = 0; j < {n}; j++)")
    line(
        f"const int read = top + i >= 0 && top + i < {height} && left + j >= 0 && left + j <"
        f" {width};"
    )
    line(f"at[i * {n} + j] = (read ? i * {width} + j : -(top * {width} + left)) * {it.block};")
    line(f"keep[i * {n} + j] = -read;")
    writer.close()
    writer.close()
    vectors = it.block // it.lanes
    writer.open(f"for (int64_t c = 0; c < {it.blocks_in * vectors}; c++)")
    place = "c" if vectors == 1 else f"c / {vectors}"
    within = "" if vectors == 1 else f" + c % {vectors} * {it.lanes}"
    line(f"const float *restrict x = from + {place} * {height * width * it.block}{within};")
    line(
        f"float *restrict to = transformed + (((group * {it.blocks_in} + {place}) * {it.places}) *"
        f" {it.tile_rows} + member) * {it.block}{within};"
    )
    line(f"vec d[{n}][{n}], e[{n}][{n}];")
    writer.open("if (inside)")
    for i in range(n):
        line(
            " ".join(
                f"d[{i}][{j}] = *(const vec *)(x + {(i * width + j) * it.block});" for j in range(n)
            )
        )
    writer.close()
    writer.open("else")
    line("#pragma clang loop unroll(full)")
    line(
        f"for (int i = 0; i < {n * n}; i++) d[i / {n}][i % {n}] = (vec)(*(const ivec *)(x + at[i])"
        " & (ivec)(keep[i]));"
    )
    writer.close()
    for j in range(n):
        _apply(
            writer, matrix, [f"d[{i}][{j}]" for i in range(n)], [f"e[{i}][{j}]" for i in range(n)]
        )
    for i in range(n):
        _apply(
            writer,
            matrix,
            [f"e[{i}][{j}]" for j in range(n)],
            [f"*(vec *)(to + {(i * n + j) * apart})" for j in range(n)],
        )
    writer.close()
    writer.close()
    # The last rows of a register tile may have no tile of the image; what is multiplied there must
    # not be slow.
    writer.open(f"for (int64_t t = count; t % {it.tile_rows}; t++)")
    writer.open(f"for (int64_t i = 0; i < {it.places * it.blocks_in}; i++)")
    line(f"const int64_t group = t / {it.tile_rows} * {it.places * it.blocks_in} + i;")
    line(
        f"__builtin_memset(transformed + (group * {it.tile_rows} + t % {it.tile_rows}) *"
        f" {it.block}, 0, {4 * it.block});"
    )
    writer.close()
    writer.close()


def _multiply(writer: CWriter, it: Winograd) -> None:
    line, width = writer.line, it.vectors * it.lanes
    apart = it.places * it.tile_rows * it.block
    writer.open(f"for (int64_t place = 0; place < {it.places}; place++)")
    line(
        f"const float *restrict w = {it.weights} + (panel * {it.places} + place) *"
        f" {it.channels * width};"
    )
    # The weights of the next place follow, or those of the next panel's first.
    line(f"const float *ahead = w + {it.channels * width};")
    writer.open(f"for (int64_t t = 0; t < count; t += {it.tile_rows})")
    line(
        f"const float *restrict x = transformed + t * {it.blocks_in * it.places * it.block} + place"
        f" * {it.tile_rows * it.block};"
    )
    line(f"vec sum[{it.tile_rows}][{it.vectors}];")
    line("#pragma clang loop unroll(full)")
    line(
        f"for (int i = 0; i < {it.tile_rows}; i++) for (int j = 0; j < {it.vectors}; j++) sum[i][j]"
        " = (vec)(0.0f);"
    )
    whole, rest = divmod(it.channels, it.block)
    if whole:
        writer.open(f"for (int64_t c = 0; c < {whole}; c++)")
        _products(writer, it, f"c * {apart}", f"c * {it.block * width}", it.block)
        writer.close()
    if rest:
        _products(writer, it, str(whole * apart), str(whole * it.block * width), rest)
    line(f"float *restrict to = products + (t * {it.places} + place * {it.tile_rows}) * {width};")
    line("#pragma clang loop unroll(full)")
    line(
        f"for (int i = 0; i < {it.tile_rows}; i++) for (int j = 0; j < {it.vectors}; j++) *(vec"
        f" *)(to + i * {width} + j * {it.lanes}) = sum[i][j];"
    )
    writer.close()
    writer.close()


def _products(writer: CWriter, it: Winograd, x: str, w: str, channels: int) -> None:
    line, width = writer.line, it.vectors * it.lanes
    lines = it.lines_ahead
    line("#pragma clang loop unroll(full)")
    line(
        f"for (int j = 0; j < {lines}; j++) __builtin_prefetch(ahead + j * {CACHE_LINE // 4},"
        " 0, 2);"
    )
    line(f"ahead += {lines * CACHE_LINE // 4};")
    copies = min(channels, -(-_PRODUCTS // (it.tile_rows * it.vectors)))
    line(
        f"#pragma clang loop unroll_count({copies})"
        if copies > 1
        else "#pragma clang loop unroll(disable)"
    )
    writer.open(f"for (int64_t k = 0; k < {channels}; k++)")
    for j in range(it.vectors):
        line(f"const vec w{j} = *(const vec *)(w + {w} + k * {width} + {j * it.lanes});")
    for i in range(it.tile_rows):
        products = " ".join(f"sum[{i}][{j}] += a * w{j};" for j in range(it.vectors))
        line(f"{{ const vec a = (vec)(x[{x} + {i * it.block} + k]); {products} }}")
    writer.close()


def _output(writer: CWriter, it: Winograd) -> None:
    line, n, m, width = writer.line, it.size + KERNEL - 1, it.size, it.vectors * it.lanes
    matrix = transforms(m).output
    epilogue = Epilogue(it.outputs, it.lanes, it.block, "lane0")
    writer.open("for (int64_t t = 0; t < count; t++)")
    _tile_place(writer, it)
    line(f"const int64_t group = t / {it.tile_rows}, member = t % {it.tile_rows};")
    line(f"vec made[{m}][{m}][{it.vectors}];")
    for v in range(it.vectors):
        writer.open("")
        line(
            f"const float *restrict from = products + (group * {it.places * it.tile_rows} + member)"
            f" * {width} + {v * it.lanes};"
        )
        line(f"vec e[{m}][{n}];")
        for j in range(n):
            values = [
                f"*(const vec *)(from + {(i * n + j) * it.tile_rows * width})" for i in range(n)
            ]
            writer.open("")
            line(
                "const vec " + ", ".join(f"p{i} = {value}" for i, value in enumerate(values)) + ";"
            )
            _apply(writer, matrix, [f"p{i}" for i in range(n)], [f"e[{i}][{j}]" for i in range(m)])
            writer.close()
        for i in range(m):
            _apply(
                writer,
                matrix,
                [f"e[{i}][{j}]" for j in range(n)],
                [f"made[{i}][{j}][{v}]" for j in range(m)],
            )
        writer.close()
    writer.open(f"for (int64_t r = 0; r < {m} && row + r < {it.rows.out}; r++)")
    line(f"const vec (*restrict sum)[{it.vectors}] = made[r];")
    line(f"const int64_t place = (row + r) * {it.columns.out} + column;")
    rest = it.columns.out % m
    if rest:
        writer.open(f"if (column + {m} > {it.columns.out})")
        epilogue.store(writer, rest, it.vectors)
        line("continue;")
        writer.close()
    if it.columns.out >= m:
        epilogue.store(writer, m, it.vectors)
    writer.close()
    writer.close()


def _apply(
    writer: CWriter,
    matrix: Sequence[Sequence[Fraction]],
    values: Sequence[str],
    results: Sequence[str],
) -> None:
    """A matrix times a column of values. Where columns or rows come in pairs that differ in signs
    only, what they have in common is computed once.
    """
    columns = list(zip(*matrix, strict=True))
    terms: list[tuple[str, tuple[Fraction, ...]]] = []
    writer.open("")
    taken: set[int] = set()
    for one, column in enumerate(columns):
        if one in taken:
            continue
        # Aᵀ: its columns for p and -p are even and odd in the row's number. Their sum serves even
        # rows, their difference odd ones.
        twin = next(
            (
                two
                for two in range(one + 1, len(columns))
                if two not in taken and _differ_in_sign(column, columns[two])
            ),
            None,
        )
        if twin is None:
            terms.append((values[one], column))
            continue
        taken.add(twin)
        plus, minus = writer.fresh("s"), writer.fresh("s")
        writer.line(
            f"const vec {plus} = {values[one]} + {values[twin]}, {minus} = {values[one]} -"
            f" {values[twin]};"
        )
        same = tuple(
            a if a == b else Fraction(0) for a, b in zip(column, columns[twin], strict=True)
        )
        terms += [(plus, same), (minus, tuple(a - b for a, b in zip(column, same, strict=True)))]
    done: set[int] = set()
    for one in range(len(matrix)):
        if one in done:
            continue
        row = [factors[one] for _, factors in terms]
        twin = next(
            (
                two
                for two in range(one + 1, len(matrix))
                if _differ_in_sign(row, [factors[two] for _, factors in terms])
            ),
            None,
        )
        if twin is None:
            writer.line(f"{results[one]} = {_sum(terms, row)};")
            continue
        done.add(twin)
        other = [factors[twin] for _, factors in terms]
        even, odd = writer.fresh("s"), writer.fresh("s")
        writer.line(
            f"const vec {even} ="
            f" {_sum(terms, [a if a == b else Fraction(0) for a, b in zip(row, other, strict=True)])};"
        )
        writer.line(
            f"const vec {odd} ="
            f" {_sum(terms, [a if a != b else Fraction(0) for a, b in zip(row, other, strict=True)])};"
        )
        writer.line(f"{results[one]} = {even} + {odd}; {results[twin]} = {even} - {odd};")
    writer.close()


def _differ_in_sign(one: Sequence[Fraction], two: Sequence[Fraction]) -> bool:
    """Are they equal but for signs, with something equal and something opposite?"""
    pairs = [(a, b) for a, b in zip(one, two, strict=True) if a or b]
    return (
        all(abs(a) == abs(b) for a, b in pairs)
        and any(a == b for a, b in pairs)
        and any(a == -b for a, b in pairs)
    )


def _sum(terms: Sequence[tuple[str, object]], factors: Sequence[Fraction]) -> str:
    parts = []
    for (text, _), factor in zip(terms, factors, strict=True):
        if factor:
            parts.append(text if factor == 1 else f"{float(factor).hex()}f * {text}")
    return " + ".join(parts) or "(vec)(0.0f)"
