"""Kernel programs as OpenCL C text.

A kernel's work item number `task` becomes a work group. Inside it, loops that the kernel program
calls independent are dealt out to the group's work items, and loops that only feed accumulators are
dealt out and their parts folded through local memory. Everything else every work item does for
itself, with the same result; what is stored outside such a loop is stored by the first.

Micro-kernels say their own division (`Grid`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from whence.codegen.c_text import OUTSIDE, c_literal, c_literals, c_type, written_call
from whence.codegen.render_c import CWriter
from whence.errors import UnsupportedError
from whence.kernels import ir
from whence.kernels.expressions import identity
from whence.kernels.index import Index, Quotient, Remainder
from whence.types import DType

# Types whose arithmetic every device has; double precision is asked for separately.
_TYPES = frozenset(
    dtype
    for dtype in DType
    if dtype in (DType.F32, DType.BF16, DType.BOOL) or (dtype.is_integer and dtype.bits >= 8)
)
# Loops whose iterations the work items of a group share.
_DEALT = (ir.LoopKind.VECTOR, ir.LoopKind.INDEPENDENT)
_VECTORS = {DType.F32: "float", DType.I32: "int", DType.I8: "char"}
_FOLDS = frozenset({ir.Fn.ADD, ir.Fn.MUL, ir.Fn.MAX, ir.Fn.MIN})
_GROUP = 32
"""Work items in a group at most: enough for a vector unit, few enough for short rows."""
_FAR = 1 << 31
NAME = "@name@"
"""Stands for a kernel's name in its text."""


@dataclass(frozen=True, slots=True)
class Device:
    """What a device can do, as far as code depends on it."""

    doubles: bool
    local_bytes: int
    group_size: int
    """Work items a group may have."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """How many work items there are in each dimension, and how many make a group."""

    items: tuple[int, ...]
    group: tuple[int, ...]

    def __post_init__(self) -> None:
        assert all(many % few == 0 for many, few in zip(self.items, self.group, strict=True))


@dataclass(frozen=True, slots=True)
class Launch:
    """How a kernel is started."""

    symbol: str
    geometry: Geometry
    scratch_bytes: int
    """Of global memory, which is the next argument when it is not 0."""
    checks: bool
    """Does it note indices outside their axis? Where to, and as which number, are then the last
    arguments.
    """


class ClWriter(CWriter):
    """Lines of OpenCL C. Expressions are those of C; the prelude says what their words mean."""

    constant = "__constant"

    def __init__(self, kernel: ir.Kernel, device: Device) -> None:
        super().__init__(kernel)
        self.device = device
        self.counter = "int" if _farthest(kernel) < _FAR else "int64_t"
        """The type of an index: devices are much slower at counting in 64 bits."""
        self.geometry: Geometry | None = None
        self.scratch_bytes = 0
        self.locals: list[str] = []
        """Declarations of local memory, which stand at the head of the kernel."""
        self.local_bytes = 0
        self.constants: list[str] = []
        """Definitions of micro-kernels' arrays of numbers, which stand before the kernel."""
        self._group = _group_size(kernel, device)
        self._dealt = False
        self._folding: set[DType] = set()
        self._spaces: dict[str, str] = {}
        self._kinds: dict[str, str] = {}
        """Of pointers: their types."""

    def local(self, name: str, kind: DType, *extents: int) -> None:
        """Memory that the work items of a group share."""
        size = math.prod(extents) * kind.numpy.itemsize
        self.local_bytes += size
        if self.local_bytes > self.device.local_bytes:
            raise UnsupportedError(
                f"needs {self.local_bytes} bytes of local memory, the device has"
                f" {self.device.local_bytes}"
            )
        self.locals.append(
            f"__local {c_type(kind)} {name}{''.join(f'[{extent}]' for extent in extents)};"
        )

    def expression(self, expr: ir.Expr) -> str:
        parts = list(ir.walk(expr))
        self.require({part.dtype for part in parts})
        if any(isinstance(part, ir.Primitive | ir.LookUp) for part in parts):
            raise UnsupportedError("a function of whole vectors has no form on a device")
        return super().expression(expr)

    def require(self, dtypes: set[DType]) -> None:
        """Raises `UnsupportedError` unless the device computes with all of these."""
        missing = dtypes - _TYPES - ({DType.F64} if self.device.doubles else set())
        if missing:
            raise UnsupportedError(
                f"the device has no {', '.join(sorted(str(dtype) for dtype in missing))}"
            )

    # ---- statements ----

    def statement(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Store() if self._group > 1 and not self._dealt:
                self.open("if (item == 0)")
                super().statement(stmt)
                self.close()
            case ir.Micro():
                self._program(stmt.device_program(self.kernel))
            case ir.Assign(place, value):
                self.require({place.dtype, value.dtype})
                super().statement(stmt)
            case ir.Prefetch():
                pass
            case ir.Transpose():
                raise UnsupportedError("squares of registers are not transposed on a device")
            case _:
                super().statement(stmt)

    def _program(self, body: Sequence[ir.Stmt]) -> None:
        """A micro-kernel: the whole kernel, a work item for each of its own, or a part of one."""
        if any(isinstance(stmt, ir.Loop) and stmt.var.name == ir.TASK for stmt in body):
            self.geometry = Geometry((self.kernel.tasks,), (1,))
            self.line(f"const {self.counter} number = get_global_id(0);")
            self.scratch_bytes = self.kernel.tasks * self.kernel.scratch_bytes
        self.statements(body)

    def loop_hints(self, loop: ir.For) -> None:
        pass

    # ---- vectors ----

    def vector_type(self, dtype: DType, lanes: int) -> str:
        if lanes not in (2, 4, 8, 16) or dtype not in _VECTORS:
            raise UnsupportedError(f"vectors of {lanes} × {dtype} have no form in OpenCL C")
        return f"{_VECTORS[dtype]}{lanes}"

    def vector_call(self, expr: ir.Op, texts: list[str]) -> str:
        if expr.fn not in (ir.Fn.ADD, ir.Fn.SUB, ir.Fn.MUL, ir.Fn.NEG):
            raise UnsupportedError(
                f"{expr.fn} of {expr.lanes} × {expr.dtype} has no form on a device"
            )
        return super().vector_call(expr, texts)

    def vector_read(self, address: str, what: ir.Expr) -> str:
        return f"vload{what.lanes}(0, {address})"

    def vector_write(self, address: str, what: ir.Expr, text: str) -> None:
        self.line(f"vstore{what.lanes}({text}, 0, {address});")

    def reinterpreted(self, text: str, to: ir.Bits) -> str:
        if to.lanes == to.value.lanes == 1:
            return super().reinterpreted(text, to)
        kind = _VECTORS[to.dtype] if to.lanes == 1 else self.type_of(to)
        return f"as_{kind}({text})"

    # ---- work items and memory ----

    def grid(self, grid: ir.Grid) -> None:
        self.geometry = Geometry(
            tuple(many * few for many, few in zip(grid.groups, grid.items, strict=True)), grid.items
        )
        for axis in range(3):
            for name, word in ((grid.group[axis], "group"), (grid.item[axis], "local")):
                self.line(f"const {self.counter} {name} = get_{word}_id({axis});")

    def barrier(self, barrier: ir.Barrier) -> None:
        if barrier.scope is not ir.BarrierScope.GROUP:
            raise UnsupportedError("the groups of a device do not wait for each other")
        self.line("barrier(CLK_LOCAL_MEM_FENCE);")

    def array(self, array: ir.Array) -> None:
        if array.is_shared:
            self._spaces[array.name] = "__local "
            self.local(array.name, array.dtype, *array.shape)
        else:
            super().array(array)

    def alignment(self, array: ir.Array) -> str:
        """Private memory of a work item is the device's own affair."""
        return ""

    def swap_type(self, pointer: str) -> str:
        return self._kinds[pointer]

    def choose_pointer(self, choice: ir.ChoosePointer, space: str = "") -> None:
        space = self._spaces[choice.name] = self.space_of(choice.base)
        super().choose_pointer(choice, space)

    def matrix_tiles(self, stmt: ir.MatrixTileStmt) -> None:
        raise UnsupportedError("the device has no matrix tiles")

    def space_of(self, base: str) -> str:
        """The address space of what a pointer points into."""
        if base == ir.SCRATCH or any(param.name == base for param in self.kernel.params):
            return "__global "
        return self._spaces.get(base, "")

    def pointer(self, pointer: ir.LetPointer) -> None:
        space = self._spaces[pointer.name] = self.space_of(pointer.base)
        kind = f"{space}{'' if pointer.is_written else 'const '}{c_type(pointer.dtype)} *"
        self._kinds[pointer.name] = kind
        base = pointer.base
        if base == ir.SCRATCH:
            own = f"number * {self.kernel.scratch_bytes}"
            base = f"(({kind})(scratch + (int64_t){own}))"
        self.line(f"{kind}{pointer.name} = {base} + {self.count(pointer.offset)};")

    def constants_array(self, table: ir.ConstantArray) -> None:
        self._spaces[table.name] = "__constant "
        made, kind = f"{NAME}_{table.name}{len(self.constants)}", c_type(table.dtype)
        numbers = c_literals(table.values, table.dtype)
        self.constants.append(f"__constant {kind} {made}[] = {{{numbers}}};")
        self.line(f"__constant {kind} *{table.name} = {made};")

    def _loop(self, loop: ir.Loop) -> None:
        var = loop.var
        if var.name == ir.TASK:
            self._task_loop(loop)
        elif self._group > 1 and not self._dealt and loop.kind in _DEALT:
            self._distributed_loop(loop)
        elif self._group > 1 and not self._dealt and _can_fold(loop):
            self._fold_loop(loop)
        else:
            end = self.end_of(loop)
            self.open(f"for ({self.counter} {var.name} = 0; {var.name} < {end}; {var.name}++)")
            self.statements(loop.body)
            self.close()

    def _distributed_loop(self, loop: ir.Loop) -> None:
        """A loop whose iterations the work items of a group share."""
        name, end = loop.var.name, self.end_of(loop)
        self.open(f"for ({self.counter} {name} = item; {name} < {end}; {name} += {self._group})")
        self._dealt = True
        self.statements(loop.body)
        self._dealt = False
        self.close()

    def _task_loop(self, loop: ir.Loop) -> None:
        if loop.first == 0 and loop.var.extent == self.kernel.tasks:
            self.open("")
            self.line(f"const {self.counter} {ir.TASK} = number;")
        else:
            self.open(f"if (number >= {loop.first} && number < {loop.first + loop.var.extent})")
            self.line(f"const {self.counter} {ir.TASK} = number - {loop.first};")
        rest = ir.TASK
        for digit in reversed(loop.digits[1:]):
            self.line(f"const {self.counter} {digit.name} = {rest} % {digit.extent};")
            rest = f"({rest} / {digit.extent})"
        if loop.digits:
            self.line(f"const {self.counter} {loop.digits[0].name} = {rest};")
        self.statements(loop.body)
        self.close()

    def _fold_loop(self, loop: ir.Loop) -> None:
        """Each work item folds its part; the parts are then folded pairwise in local memory, and
        all go on with the whole.
        """
        folds = [stmt for stmt in loop.body if isinstance(stmt, ir.Accumulate)]
        parts = {stmt.name: self.fresh("part") for stmt in folds}
        for stmt in folds:
            dtype = stmt.value.dtype
            start = c_literal(identity(stmt.fn, dtype))
            self.line(f"{c_type(dtype)} {parts[stmt.name]} = {start};")
        body = (
            replace(stmt, name=parts[stmt.name]) if isinstance(stmt, ir.Accumulate) else stmt
            for stmt in loop.body
        )
        self._distributed_loop(replace(loop, body=tuple(body)))
        for stmt in folds:
            part, dtype = parts[stmt.name], stmt.value.dtype
            self._fold(part, stmt.fn, dtype)
            self.line(f"{stmt.name} = {written_call(stmt.fn, dtype, (stmt.name, part))};")

    def _fold(self, name: str, fn: ir.Fn, dtype: DType) -> None:
        """Afterwards the variable `name` of every work item of a group holds all of theirs,
        folded.
        """
        shared = f"shared_{c_type(dtype)}"
        if dtype not in self._folding:
            self._folding.add(dtype)
            self.local(shared, dtype, self._group)
        self.line(f"{shared}[item] = {name};")
        self.line("barrier(CLK_LOCAL_MEM_FENCE);")
        self.open(f"for (int half_way = {self._group // 2}; half_way > 0; half_way /= 2)")
        self.line(
            f"if (item < half_way) {shared}[item] ="
            f" {written_call(fn, dtype, (f'{shared}[item]', f'{shared}[item + half_way]'))};"
        )
        self.line("barrier(CLK_LOCAL_MEM_FENCE);")
        self.close()
        self.line(f"{name} = {shared}[0];")
        self.line("barrier(CLK_LOCAL_MEM_FENCE);")

    def table_name(self, number: int) -> str:
        return f"{NAME}_table{number}"


def _farthest(kernel: ir.Kernel) -> int:
    """How far it counts: over what is stored, and over values that are not."""
    counts = [param.elements for param in kernel.params]
    counts += [loop.var.extent for loop in _loops(kernel.body)]
    for part in _expressions(kernel.body):
        if isinstance(part, ir.Load | ir.Position | ir.LookupTable):
            counts += _counted(part.index)
    return max(counts)


def _counted(index: Index) -> Iterator[int]:
    """The largest values that computing an index comes by."""
    yield index.bounds()[1] + 1
    for atom, _ in index.terms:
        if isinstance(atom, Quotient | Remainder):
            yield from _counted(atom.of)


def _loops(body: Sequence[ir.Stmt]) -> Iterator[ir.Loop]:
    for stmt in body:
        if isinstance(stmt, ir.Loop):
            yield stmt
            yield from _loops(stmt.body)


def _expressions(body: Sequence[ir.Stmt]) -> Iterator[ir.Expr]:
    for stmt in body:
        match stmt:
            case ir.Loop():
                yield from _expressions(stmt.body)
            case ir.Let() | ir.Store() | ir.Accumulate():
                yield from ir.walk(stmt.value)


def _group_size(kernel: ir.Kernel, device: Device) -> int:
    """Work items in a group: a power of two, no more than the longest loop that can be dealt out
    has iterations.
    """
    outputs = {param.name for param in kernel.params if param.role is ir.Role.OUTPUT}
    if any(
        isinstance(part, ir.Load) and part.buffer in outputs for part in _expressions(kernel.body)
    ):
        # It reads what it wrote: in the order of the loops, which only a single work item keeps.
        return 1
    extents = [
        loop.var.extent
        for loop in _loops(kernel.body)
        if loop.var.name != ir.TASK and (loop.kind in _DEALT or _can_fold(loop))
    ]
    longest = min(max(extents, default=1), _GROUP, device.group_size)
    return 1 << (longest.bit_length() - 1)


def _can_fold(loop: ir.Loop) -> bool:
    """Does the loop only feed accumulators, each by itself, in a way that may be divided?"""
    if loop.kind is not ir.LoopKind.REDUCE:
        return False
    names = [stmt.name for stmt in loop.body if isinstance(stmt, ir.Accumulate)]
    read = {part.name for part in _expressions(loop.body) if isinstance(part, ir.Name)}
    return (
        all(isinstance(stmt, ir.Accumulate | ir.Let) for stmt in loop.body)
        and all(
            stmt.fn in _FOLDS and stmt.lane is None
            for stmt in loop.body
            if isinstance(stmt, ir.Accumulate)
        )
        and len(set(names)) == len(names)
        and not read & set(names)
    )


def render_opencl(kernel: ir.Kernel, device: Device) -> tuple[str, Launch]:
    """One OpenCL kernel, under `NAME`. Its arguments are, for each parameter, a buffer and how many
    bytes into it the parameter begins.
    """
    writer = ClWriter(kernel, device)
    writer.require({param.dtype for param in kernel.params})
    # Two levels deep: what the kernel's head needs is known at its end.
    writer.open("")
    writer.statements(kernel.body)
    writer.close()
    body = writer.lines[1:-1]
    geometry = writer.geometry
    head = []
    if geometry is None:
        group = writer._group
        geometry = Geometry((kernel.tasks * group,), (group,))
        head = [
            f"  const {writer.counter} number = get_group_id(0);",
            *(["  const int item = get_local_id(0);"] if group > 1 else []),
        ]
    arguments = [
        f"__global uchar *{param.name}_base, const int64_t {param.name}_at"
        for param in kernel.params
    ]
    if writer.scratch_bytes:
        arguments.append("__global uchar *scratch")
    checks = any(f"&{OUTSIDE})" in line for line in writer.lines)
    if checks:
        arguments.append("volatile __global int *w_fault, const int w_step")
    lines = [*writer.constants, *writer.tables()]
    lines.append(f"__kernel void {NAME}({', '.join(arguments)}) {{")
    for param in kernel.params:
        kind = f"__global {'' if param.role is ir.Role.OUTPUT else 'const '}{c_type(param.dtype)} *"
        lines.append(f"  {kind}{param.name} = ({kind})({param.name}_base + {param.name}_at);")
    lines += [f"  {each}" for each in writer.locals]
    text = "\n".join([*lines, *head, *body, "}"]) + "\n"
    return text, Launch(NAME, geometry, writer.scratch_bytes, checks)
