"""Attention in C: a tile of query rows at a time, its scores in scratch between the two
products.
"""

from __future__ import annotations

from whence.codegen.c_text import c_index, c_literal
from whence.codegen.render_c import CWriter
from whence.kernels.attention import BATCH, COLUMN, HEAD, KEY, ROW, SCORE, Attention
from whence.kernels.ir import Micro


def write_attention(writer: CWriter, micro: Micro) -> None:
    assert isinstance(micro, Attention)
    it, line = micro, writer.line
    keys, values, _ = it.scratch
    line("float *restrict packed_k = scratch;")
    if it.pack_values:
        line(f"float *restrict packed_v = packed_k + {keys};")
    line(f"float *restrict s = packed_k + {keys + values};")
    line("const float *last_k = 0;")
    writer.open("for (int64_t task = begin; task < end; task++)")
    line(
        f"const int64_t {BATCH} = task / {it.heads * it.blocks}, {HEAD} = task / {it.blocks} %"
        f" {it.heads}, block = task % {it.blocks};"
    )
    line(f"(void){BATCH}, (void){HEAD};")
    line(f"const float *restrict q = {it.q.buffer} + {c_index(it.q.base)};")
    line(f"const float *k = {it.k.buffer} + {c_index(it.k.base)};")
    line(f"const float *restrict v = {it.v.buffer} + {c_index(it.v.base)};")
    line("/* Neighbouring work items share a head, and what was packed for it. */")
    writer.open("if (k != last_k)")
    line("last_k = k;")
    _pack_keys(writer, it)
    if it.pack_values:
        _pack_values(writer, it)
    writer.close()
    if it.pack_values:
        line("v = packed_v;")
    rows = it.tile.rows
    line(f"const int64_t last = (block + 1) * {it.block_tiles};")
    writer.open(
        f"for (int64_t tile = block * {it.block_tiles}; tile < {it.tiles} && tile < last; tile++)"
    )
    if it.rows % rows:
        line("/* The last tile begins early rather than end late. */")
        line(f"const int64_t m0 = tile == {it.tiles - 1} ? {it.rows - rows} : tile * {rows};")
    else:
        line(f"const int64_t m0 = tile * {rows};")
    if it.reach is None:
        line(f"const int64_t used = {it.keys};")
    else:
        line(f"int64_t used = m0 + {rows + it.reach};")
        line(f"used = used < 0 ? 0 : used > {it.keys} ? {it.keys} : used;")
    _scores(writer, it)
    _softmax(writer, it)
    _weighted_sum(writer, it)
    writer.close()
    writer.close()


def _vector(it: Attention) -> str:
    return f"w_f32x{it.tile.lanes}"


def _pack_keys(writer: CWriter, it: Attention) -> None:
    """K in panels `[keys / width][size][width]`, zeros behind the last key."""
    line, lanes, width, vector = writer.line, it.tile.lanes, it.tile.width, _vector(it)
    padded, row = it.panels * width, it.k.row_stride
    turned = it.size // lanes * lanes if it.k.column_stride == 1 else 0
    writer.open(f"for (int64_t j = 0; j < {padded}; j += {lanes})")
    line(f"float *restrict to = packed_k + j / {width} * {it.size * width} + j % {width};")
    if turned:
        writer.open(f"for (int64_t d = 0; d < {turned}; d += {lanes})")
        line(f"{vector} turn[{lanes}];")
        line("#pragma clang loop unroll(full)")
        row_at = f"*(const {vector} *)(k + (j + i) * {row} + d)"
        guarded = (
            row_at if padded == it.keys else f"j + i < {it.keys} ? {row_at} : ({vector})(0.0f)"
        )
        line(f"for (int i = 0; i < {lanes}; i++) turn[i] = {guarded};")
        line(f"w_transpose_f32x{lanes}(turn);")
        line("#pragma clang loop unroll(full)")
        line(f"for (int i = 0; i < {lanes}; i++) *({vector} *)(to + (d + i) * {width}) = turn[i];")
        writer.close()
    if turned < it.size:
        writer.open(f"for (int64_t d = {turned}; d < {it.size}; d++)")
        line(
            f"for (int i = 0; i < {lanes}; i++) to[d * {width} + i] = j + i < {it.keys} ? k[(j + i)"
            f" * {row} + d * {it.k.column_stride}] : 0.0f;"
        )
        writer.close()
    writer.close()


def _pack_values(writer: CWriter, it: Attention) -> None:
    """V row after row, each filled up with zeros to whole vectors."""
    width = it.padded_width
    writer.open(f"for (int64_t j = 0; j < {it.keys}; j++)")
    writer.line(
        f"for (int64_t c = 0; c < {it.width}; c++) packed_v[j * {width} + c] = v[j *"
        f" {it.v.row_stride} + c * {it.v.column_stride}];"
    )
    if width > it.width:
        writer.line(
            f"for (int64_t c = {it.width}; c < {width}; c++) packed_v[j * {width} + c] = 0.0f;"
        )
    writer.close()


def _product(
    writer: CWriter, it: Attention, vectors: int, depth: str, a: str, b: str, b_step: int
) -> None:
    """sum[i][j] = Σ_k a(i, k) · b[k][j]"""
    line, rows, vector = writer.line, it.tile.rows, _vector(it)
    line(f"{vector} sum[{rows}][{vectors}];")
    line("#pragma clang loop unroll(full)")
    line(
        f"for (int i = 0; i < {rows}; i++) for (int j = 0; j < {vectors}; j++) sum[i][j] ="
        f" ({vector}){{0}};"
    )
    writer.open(f"for (int64_t k = 0; k < {depth}; k++)")
    for j in range(vectors):
        line(
            f"const {vector} b{j} = *(const {vector} *)({b} + k * {b_step} + {j * it.tile.lanes});"
        )
    line("#pragma clang loop unroll(full)")
    writer.open(f"for (int i = 0; i < {rows}; i++)")
    line(f"const {vector} x = w_splat_f32x{it.tile.lanes}({a});")
    for j in range(vectors):
        line(f"sum[i][{j}] += x * b{j};")
    writer.close()
    writer.close()


def _scores(writer: CWriter, it: Attention) -> None:
    line, width = writer.line, it.tile.width
    whole = it.keys // width
    line(f"const float *restrict qt = q + m0 * {it.q.row_stride};")
    if whole:
        writer.open(
            "for (int64_t panel = 0; panel <"
            f" {whole}{'' if it.reach is None else f' && panel * {width} < used'}; panel++)"
        )
        _score_panel(writer, it, it.tile.vectors)
        writer.close()
    if it.keys % width:
        writer.open("" if it.reach is None or not whole else f"if ({whole * width} < used)")
        line(f"const int64_t panel = {whole};")
        _score_panel(writer, it, -(-(it.keys % width) // it.tile.lanes))
        writer.close()


def _score_panel(writer: CWriter, it: Attention, vectors: int) -> None:
    line, width, vector = writer.line, it.tile.width, _vector(it)
    line(f"const float *restrict b = packed_k + panel * {it.size * width};")
    _product(
        writer,
        it,
        vectors,
        str(it.size),
        f"qt[i * {it.q.row_stride} + k * {it.q.column_stride}]",
        "b",
        width,
    )
    line("#pragma clang loop unroll(full)")
    target = f"s + i * {it.row_length} + panel * {width} + j * {it.tile.lanes}"
    line(
        f"for (int i = 0; i < {it.tile.rows}; i++) for (int j = 0; j < {vectors}; j++) *({vector}"
        f" *)({target}) = sum[i][j];"
    )


def _softmax(writer: CWriter, it: Attention) -> None:
    """exp(score - top) in place; what the rows must still be divided by is left to the end, when
    there is less to divide.
    """
    line, lanes, vector = writer.line, it.tile.lanes, _vector(it)
    line(f"float inverse[{it.tile.rows}];")
    line(f"const int64_t whole = (used + {lanes - 1}) / {lanes} * {lanes};")
    writer.open(f"for (int i = 0; i < {it.tile.rows}; i++)")
    line(f"const int64_t {ROW} = m0 + i;")
    line(f"(void){ROW};")
    line(f"float *restrict row = s + i * {it.row_length};")
    if it.score != SCORE:
        line("#pragma clang loop vectorize(assume_safety)")
        writer.open(f"for (int64_t {KEY} = 0; {KEY} < used; {KEY}++)")
        line(f"const float acc = row[{KEY}];")
        line(f"row[{KEY}] = {writer.expression(it.score)};")
        writer.close()
    line(f"for (int64_t {KEY} = used; {KEY} < whole; {KEY}++) row[{KEY}] = -__builtin_inff();")
    # The lowest number, not minus infinity: a query that sees no key at all then gets zeros.
    line(f"{vector} tops = ({vector})(-0x1.fffffep+127f), totals = ({vector})(0.0f);")
    writer.open(f"for (int64_t {KEY} = 0; {KEY} < whole; {KEY} += {lanes})")
    line(f"const {vector} x = *(const {vector} *)(row + {KEY});")
    line("tops = x > tops ? x : tops;")
    writer.close()
    line(f"const {vector} top = ({vector})(w_top_f32x{lanes}(tops));")
    writer.open(f"for (int64_t {KEY} = 0; {KEY} < whole; {KEY} += {lanes})")
    line(f"{vector} *at = ({vector} *)(row + {KEY});")
    line(f"const {vector} weight = w_exp_down_f32x{lanes}((*at - top) * {c_literal(it.scale)});")
    line("*at = weight;")
    line("totals += weight;")
    writer.close()
    line(f"const float total = w_sum_f32x{lanes}(totals);")
    line("inverse[i] = total == 0.0f ? 1.0f : 1.0f / total;")
    writer.close()


def _weighted_sum(writer: CWriter, it: Attention) -> None:
    line, lanes, width = writer.line, it.tile.lanes, it.tile.width
    step = it.padded_width if it.pack_values else it.v.row_stride
    whole = it.padded_width // width * width
    if whole:
        writer.open(f"for (int64_t c0 = 0; c0 < {whole}; c0 += {width})")
        _panel(writer, it, it.tile.vectors, step, it.width if it.width < width else width)
        writer.close()
    if whole < it.padded_width:
        writer.open("")
        line(f"const int64_t c0 = {whole};")
        _panel(writer, it, (it.padded_width - whole) // lanes, step, it.width - whole)
        writer.close()


def _panel(writer: CWriter, it: Attention, vectors: int, step: int, columns: int) -> None:
    line, rows, vector, lanes = writer.line, it.tile.rows, _vector(it), it.tile.lanes
    _product(writer, it, vectors, "used", f"s[i * {it.row_length} + k]", "v + c0", step)
    line(f"float out_tile[{rows}][{vectors * lanes}];")
    line("#pragma clang loop unroll(full)")
    scaled = f"sum[i][j] * w_splat_f32x{lanes}(inverse[i])"
    line(
        f"for (int i = 0; i < {rows}; i++) for (int j = 0; j < {vectors}; j++) *({vector}"
        f" *)(out_tile[i] + j * {lanes}) = {scaled};"
    )
    writer.open(f"for (int i = 0; i < {rows}; i++)")
    line(f"const int64_t {ROW} = m0 + i;")
    line(f"(void){ROW};")
    line("#pragma clang loop vectorize(assume_safety)")
    writer.open(f"for (int64_t j = 0; j < {_limit(it, vectors, columns)}; j++)")
    line(f"const int64_t {COLUMN} = c0 + j;")
    line("const float acc = out_tile[i][j];")
    line(f"{it.out}[{c_index(it.out_index)}] = {writer.stored(it.out, it.value)};")
    writer.close()
    writer.close()


def _limit(it: Attention, vectors: int, columns: int) -> str:
    """Columns of a panel that are stored."""
    if it.width == it.padded_width or vectors != it.tile.vectors:
        return str(columns)
    # The last whole panel may end in columns that only fill up a vector.
    return f"({it.width} - c0 < {it.tile.width} ? {it.width} - c0 : {it.tile.width})"
