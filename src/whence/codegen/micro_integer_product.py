"""Products of bytes in C: int32 sums in vector registers, four bytes of a row times four rows of a
panel a step.
"""

from __future__ import annotations

from whence.codegen.c_text import c_index
from whence.codegen.integer_epilogue import IntegerEpilogue
from whence.codegen.render_c import CWriter
from whence.codegen.typed_vectors import TypedVectors
from whence.kernels.index import Var
from whence.kernels.integer.product import BATCH, COLUMN, Gather, IntegerProduct
from whence.kernels.ir import Micro

# Bytes of the largest vector, and the length from which a copy is a loop.
_WIDEST = 64
_LONG = 512


def write_integer_product(writer: CWriter, micro: Micro) -> None:
    assert isinstance(micro, IntegerProduct)
    it, line, shape = micro, writer.line, micro.shape
    if it.packing is None and not shape.is_narrow:
        line(f"const v{shape.lanes}_i32 order = w_quad_order_x{shape.lanes}();")
    writer.open("for (int64_t task = begin; task < end; task++)")
    line(
        f"const int64_t {BATCH} = task / {shape.blocks * shape.parts}, part = task / {shape.blocks}"
        f" % {shape.parts}, block = task % {shape.blocks};"
    )
    line(f"(void){BATCH};")
    line(
        f"const int64_t lo = block * {shape.rows} / {shape.blocks}, hi = (block + 1) * {shape.rows}"
        f" / {shape.blocks};"
    )
    line(f"const uint8_t *x = (const uint8_t *){it.source} + {c_index(it.base)};")
    line(f"const int32_t zero = {writer.expression(it.x_zero)}{' + 128' if it.is_signed else ''};")
    line("(void)zero;")
    stride = shape.words * 4 if it.is_copied else it.row_stride
    if it.is_copied:
        line("uint8_t *rows = scratch;")
        write_gather(writer, it.gather, shape.depth, it.row_stride, is_signed=it.is_signed)
        line("const uint8_t *a = rows;")
    else:
        line(f"const uint8_t *a = x + lo * {stride};")
    if it.has_sums:
        line(f"int32_t *sums = (int32_t *)((uint8_t *)scratch + {it.copy_bytes});")
        writer.open("for (int64_t i = 0; i < hi - lo; i++)")
        line("int32_t total = 0;")
        line(f"for (int64_t k = 0; k < {shape.depth}; k++) total += a[i * {stride} + k];")
        line("sums[i] = total;")
        writer.close()
    _panels(writer, it, stride)
    writer.close()


# ---- gathering ----


def write_gather(
    writer: CWriter, gather: Gather | None, depth: int, row_stride: int, *, is_signed: bool
) -> None:
    """Rows `lo` to `hi` into `rows`, unsigned, each padded with zeros to a multiple of four."""
    line, padded = writer.line, -(-depth // 4) * 4
    writer.open("for (int64_t r = lo; r < hi; r++)")
    line(f"uint8_t *to = rows + (r - lo) * {padded};")
    if gather is None:
        line(f"const uint8_t *from = x + r * {row_stride};")
        write_copy(writer, depth, is_signed=is_signed)
    else:
        _window(writer, gather, is_signed=is_signed)
    if padded > depth:
        line(f"for (int k = {depth}; k < {padded}; k++) rows[(r - lo) * {padded} + k] = 0;")
    writer.close()


def _window(writer: CWriter, gather: Gather, *, is_signed: bool) -> None:
    line, rows, columns = writer.line, gather.rows, gather.columns
    line(
        f"const int64_t image = r / {rows.out * columns.out}, row = r / {columns.out} % {rows.out},"
        f" column = r % {columns.out};"
    )
    line(f"const int64_t right = column * {columns.stride} - {columns.begin};")
    span = columns.kernel * gather.taken
    writer.open(f"for (int64_t kh = 0; kh < {rows.kernel}; kh++, to += {span})")
    line(f"const int64_t down = row * {rows.stride} + kh * {rows.dilation} - {rows.begin};")
    if not rows.is_inside:
        writer.open(f"if ((uint64_t)down >= {rows.size}u)")
        line(f"__builtin_memset(to, zero, {span});")
        line("continue;")
        writer.close()
    line(
        f"const uint8_t *line = x + (image * {rows.size} + down) *"
        f" {columns.size * gather.channels};"
    )
    joined = columns.dilation == 1 and gather.taken == gather.channels
    if joined:
        if not columns.is_inside:
            writer.open(f"if (right >= 0 && right <= {columns.size - columns.kernel})")
        else:
            writer.open("")
        line(f"const uint8_t *from = line + right * {gather.channels};")
        write_copy(writer, span, is_signed=is_signed)
        line("continue;" if not columns.is_inside else "")
        writer.close()
    if not joined or not columns.is_inside:
        writer.open(f"for (int64_t kw = 0; kw < {columns.kernel}; kw++)")
        line(f"const int64_t place = right + kw * {columns.dilation};")
        line("uint8_t *start = to;")
        writer.open("")
        line(f"uint8_t *to = start + kw * {gather.taken};")
        if not columns.is_inside:
            writer.open(f"if ((uint64_t)place >= {columns.size}u)")
            line(f"__builtin_memset(to, zero, {gather.taken});")
            line("continue;")
            writer.close()
        line(f"const uint8_t *from = line + place * {gather.channels};")
        write_copy(writer, gather.taken, is_signed=is_signed)
        writer.close()
        writer.close()
    writer.close()


def write_copy(writer: CWriter, count: int, *, is_signed: bool) -> None:
    """`count` bytes `from` one place `to` another, made unsigned. The last vector begins early
    rather than end late.
    """

    def piece(size: int, at: str) -> str:
        if size < 4:
            return f"to[{at}] = from[{at}]{' ^ 128' if is_signed else ''};"
        kind = f"v{size}_u8"
        return (
            f"*({kind} *)(to + {at}) = *(const {kind} *)(from +"
            f" {at}){f' ^ ({kind})(128)' if is_signed else ''};"
        )

    size = min(_WIDEST, 1 << (count.bit_length() - 1))
    if size < 4:
        for at in range(count):
            writer.line(piece(1, str(at)))
        return
    if count >= _LONG:
        writer.line(
            f"for (int64_t k = 0; k < {count // size * size}; k += {size}) {piece(size, 'k')}"
        )
    else:
        for at in range(0, count - size + 1, size):
            writer.line(piece(size, str(at)))
    if count % size:
        writer.line(piece(size, str(count - size)))


# ---- panels and tiles ----


def _panels(writer: CWriter, it: IntegerProduct, stride: int) -> None:
    """The panels of a work item, each with all rows of its block."""
    line, shape = writer.line, it.shape
    count, sizes = len(shape.panels), sorted(set(shape.panels), reverse=True)
    small, larger = sizes[-1], sum(size > sizes[-1] for size in shape.panels)
    writer.open(
        f"for (int64_t panel = part * {count} / {shape.parts}; panel < (part + 1) * {count} /"
        f" {shape.parts}; panel++)"
    )
    line(
        "const int64_t vector = panel *"
        f" {small}{f' + (panel < {larger} ? panel : {larger})' if larger else ''};"
    )
    for size in sizes:
        writer.open(
            "" if len(sizes) == 1 else f"if (panel {'<' if size > small else '>='} {larger})"
        )
        _panel(writer, it, stride, size)
        writer.close()
    writer.close()


def _panel(writer: CWriter, it: IntegerProduct, stride: int, vectors: int) -> None:
    line, shape, lanes = writer.line, it.shape, it.shape.lanes
    vec = f"v{lanes}_i32"
    for j in range(vectors):
        at = f"(vector + {j}) * {lanes}"
        last = max(shape.columns - lanes, 0)
        line(
            f"const int64_t n{j} ="
            f" {at if shape.columns % lanes == 0 else f'{at} < {last} ? {at} : {last}'};"
        )
    if it.packing is None:
        _pack(writer, it, vectors)
    else:
        group = sum(shape.panels) * it.packing.vector_bytes
        line(
            f"const int8_t *w = {it.weights} + {BATCH} * {group} + vector *"
            f" {it.packing.vector_bytes};"
        )
        for j in range(vectors):
            scaled = " * -zero" if it.packing.x_zero is None else ""
            line(f"const {vec} start{j} = *(const {vec} *)(w + {j * lanes * 4}){scaled};")
            if it.has_sums:
                line(f"const {vec} factor{j} = *(const {vec} *)(w + {(vectors + j) * lanes * 4});")
        line(f"w += {vectors * lanes * 4 * (1 + it.has_sums)};")
    rows = shape.tile_rows
    writer.open(f"for (int64_t tile0 = lo; tile0 < hi; tile0 += {rows})")
    line(f"const int64_t m0 = tile0 < hi - {rows} ? tile0 : hi - {rows};")
    line(f"const uint8_t *at = a + (m0 - lo) * {stride};")
    line(f"{vec} sum[{rows}][{vectors}];")
    line("#pragma clang loop unroll(full)")
    writer.open(f"for (int i = 0; i < {rows}; i++)")
    for j in range(vectors):
        line(f"sum[i][{j}] = start{j}{f' + sums[m0 - lo + i] * factor{j}' if it.has_sums else ''};")
    writer.close()
    line(
        "#pragma clang loop unroll(disable)"
        if rows * vectors > 8
        else "#pragma clang loop unroll_count(4)"
    )
    writer.open(f"for (int64_t k = 0; k < {shape.words}; k++)")
    for j in range(vectors):
        line(f"const {vec} w{j} = *(const {vec} *)(w + (k * {vectors} + {j}) * {lanes * 4});")
    line("#pragma clang loop unroll(full)")
    writer.open(f"for (int i = 0; i < {rows}; i++)")
    line(f"const {vec} four = ({vec})(*(const w_word *)(at + i * {stride} + k * 4));")
    for j in range(vectors):
        line(f"sum[i][{j}] = w_dot_x{lanes}(sum[i][{j}], four, w{j});")
    writer.close()
    writer.close()
    line(f"int32_t tile[{rows}][{vectors * lanes}] __attribute__((aligned(64)));")
    line("#pragma clang loop unroll(full)")
    line(
        f"for (int i = 0; i < {rows}; i++) for (int j = 0; j < {vectors}; j++) *({vec} *)(tile[i] +"
        f" j * {lanes}) = sum[i][j];"
    )
    IntegerEpilogue(it.outputs, shape.columns, lanes).store(
        writer, rows, [f"n{j}" for j in range(vectors)], "m0"
    )
    writer.close()


# ---- a right-hand side that is not constant ----


def _pack(writer: CWriter, it: IntegerProduct, vectors: int) -> None:
    """Panel by panel into scratch, with the sum of each column on the way."""
    line, shape, lanes = writer.line, it.shape, it.shape.lanes
    vec = f"v{lanes}_i32"
    flip = 0 if it.weights_signed else 128
    line(f"uint8_t *packed = (uint8_t *)scratch + {it.copy_bytes + it.sums_bytes};")
    line(f"const uint8_t *b = (const uint8_t *){it.weights} + {c_index(it.weights_base)};")
    line("const int8_t *w = (const int8_t *)packed;")
    for j in range(vectors):
        line(f"{vec} column{j} = ({vec})(0);")
    whole, rest = divmod(shape.depth, 4)
    for first, last, present in ((0, whole, 4), (whole, shape.words, rest)):
        if first == last:
            continue
        writer.open(f"for (int64_t k = {first}; k < {last}; k++)")
        for j in range(vectors):
            writer.open("")
            _quads(writer, it, j, present, flip)
            line(f"*({vec} *)(packed + (k * {vectors} + {j}) * {lanes * 4}) = four;")
            line(f"column{j} = w_dot_x{lanes}(column{j}, ({vec})(0x01010101), four);")
            writer.close()
        writer.close()
    for j in range(vectors):
        left = _left(writer, it, j, flip)
        taken = f" - {shape.depth} * left{j}" if left else ""
        line(f"const {vec} start{j} = (column{j}{taken}) * -zero;")
        if left:
            line(f"const {vec} factor{j} = -left{j};")


def _quads(writer: CWriter, it: IntegerProduct, j: int, present: int, flip: int) -> None:
    """Four rows of a vector's columns side by side, as signed bytes; rows behind the last are 0."""
    line, shape, lanes = writer.line, it.shape, it.shape.lanes
    vec, turned = f"v{lanes}_i32", f" ^ (v{lanes}_i32)(int32_t)0x80808080" if flip else ""
    if shape.is_narrow:
        line(f"uint8_t bytes[{lanes * 4}] = {{0}};")
        line(f"for (int c = 0; c < {shape.columns}; c++) for (int t = 0; t < {present}; t++)")
        line(f"  bytes[c * 4 + t] = b[(k * 4 + t) * {shape.columns} + c] ^ {flip};")
        line(f"const {vec} four = *(const {vec} *)bytes;")
        return
    loads = [
        f"*(const v{lanes}_u8 *)(b + (k * 4 + {t}) * {shape.columns} + n{j})"
        for t in range(present)
    ]
    loads += [f"(v{lanes}_u8)({flip})"] * (4 - present)
    line(f"const {vec} four = w_quads_x{lanes}({', '.join(loads)}, order){turned};")


def _left(writer: CWriter, it: IntegerProduct, j: int, flip: int) -> bool:
    """The zero points of a vector's columns, of signed bytes; False where they are 0."""
    shape, lanes = it.shape, it.shape.lanes
    if not it.has_sums:
        return False
    vec, text = f"v{lanes}_i32", "0"
    if it.w_zero is not None:
        lane = next(
            (var for var in it.w_zero.variables() if var.name == COLUMN), Var(COLUMN, shape.columns)
        )
        vectors = TypedVectors(writer, lane, lanes, {})
        if shape.is_narrow and lane in it.w_zero.variables():
            writer.line(f"int32_t zeros{j}[{lanes}] = {{0}};")
            writer.line(
                f"for (int64_t {COLUMN} = 0; {COLUMN} < {shape.columns}; {COLUMN}++)"
                f" zeros{j}[{COLUMN}] = {writer.expression(it.w_zero)};"
            )
            text = f"*(const {vec} *)zeros{j}"
        else:
            writer.line(f"{vec} zero{j};")
            writer.open("")
            writer.line(f"const int64_t {COLUMN} = n{j};")
            writer.line(f"zero{j} = {vectors.write(it.w_zero)};")
            writer.close()
            text = f"zero{j}"
    writer.line(f"const {vec} left{j} = {text} - ({vec})({flip});")
    return True
