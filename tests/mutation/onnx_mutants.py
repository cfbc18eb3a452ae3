"""ONNX models changed in structured ways: attributes, shapes, types, constants, wiring, neighbours.

What comes out can be written as a file. Whether it makes sense is left to chance: either it runs
right or it is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import (
    AttributeProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    defs,
    helper,
    numpy_helper,
)

_NUMBERS = (
    -1,
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    16,
    -2,
    -3,
    100,
    1 << 31,
    -(1 << 31),
    (1 << 63) - 1,
    1 << 20,
)
_REALS = (0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("nan"), 3.0)
_WORDS = (
    "", "SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET", "reflect", "edge", "wrap", "constant",
    "linear", "cubic", "nearest", "forward", "reverse", "bidirectional", "LEFT", "RIGHT", "mean",
    "sum", "none", "max", "min", "add", "mul", "half_pixel", "align_corners", "asymmetric", "DCR",
    "CRD", "tf_crop_and_resize", "floor", "ceil", "zeros", "border", "reflection", "tanh",
    "ij,jk->ik", "ii->i", "...j->...",
)  # fmt: skip
_DTYPES = (
    np.float32, np.float16, np.float64, np.int8, np.uint8, np.int16, np.int32, np.int64,
    np.uint32, np.uint64, np.bool_,
)  # fmt: skip


class Mutant:
    """A model and its inputs, and the changes that can be made to both."""

    def __init__(self, model: bytes, inputs: tuple[np.ndarray, ...], rng: np.random.Generator):
        self.model = ModelProto.FromString(model)
        self.graph = self.model.graph
        self.rng = rng
        names = [each.name for each in self.graph.input]
        self.inputs = dict(zip(names, inputs, strict=False))
        self.done: list[str] = []

    def pick(self, among: Any) -> Any:
        return among[int(self.rng.integers(len(among)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def change(self) -> None:
        """One to four changes."""
        for _ in range(1 + int(self.rng.integers(4))):
            step = self.pick(_CHANGES)
            self.done.append(step.__name__)
            step(self)
        self.graph.ClearField("value_info") if self.chance(0.2) else None
        if self.has_loops:
            limit_loops(self)

    @property
    def has_loops(self) -> bool:
        return any(node.op_type in ("Loop", "Scan") for node in self.graph.node)

    def node(self) -> NodeProto:
        """An operator, often one of the graph that another holds."""
        found: NodeProto = self.pick(self.graph.node)
        bodies = [each.g for each in found.attribute if each.type == AttributeProto.GRAPH]
        bodies = [each for each in bodies if each.node]
        if bodies and self.chance(0.6):
            found = self.pick(self.pick(bodies).node)
        return found

    # ---- values ----

    def made_up(self, shape: Any, like: np.ndarray) -> np.ndarray:
        """An array in the range of another, if that has any elements."""
        size = int(np.prod(shape, dtype=np.int64))
        if like.dtype == np.bool_:
            return np.asarray(self.rng.random(shape) < 0.5)
        if like.size and self.chance(0.7):
            return np.resize(like.reshape(-1), size).reshape(shape)
        if like.dtype.kind == "f":
            return np.asarray(self.rng.standard_normal(shape)).astype(like.dtype)
        low, high = (int(like.min()), int(like.max())) if like.size else (0, 3)
        wide = np.uint64 if like.dtype == np.uint64 else np.int64
        made = self.rng.integers(low, high, shape, endpoint=True, dtype=wide)
        return np.asarray(made).astype(like.dtype)

    def spoiled(self, array: np.ndarray) -> np.ndarray:
        """The array with an element that may be out of place."""
        if array.size == 0:
            return array
        flat = array.copy().reshape(-1)
        at = int(self.rng.integers(flat.size))
        if array.dtype.kind in "fV":  # V: bfloat16 and others that NumPy does not have itself
            flat[at] = np.float64(self.pick(_REALS)).astype(array.dtype)
        elif array.dtype == np.bool_:
            flat[at] = not flat[at]
        else:
            limits = np.iinfo(array.dtype)
            number = self.pick((*_NUMBERS, int(flat[at]) + 1, int(flat[at]) - 1, -int(flat[at])))
            flat[at] = min(max(number, limits.min), limits.max)
        return flat.reshape(array.shape)

    def reshaped(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        dims = list(shape)
        what = int(self.rng.integers(6))
        at = int(self.rng.integers(len(dims))) if dims else 0
        if what == 0:
            dims.insert(at, self.pick((0, 1, 2, 3)))
        elif dims and what == 1:
            del dims[at]
        elif dims and what == 2:
            other = int(self.rng.integers(len(dims)))
            dims[at], dims[other] = dims[other], dims[at]
        elif dims:
            dims[at] = self.pick((0, 1, dims[at] + 1, max(dims[at] - 1, 0), 2, 17, dims[at] * 2))
        return tuple(dims) if np.prod(dims, dtype=np.int64) < 20_000 else shape

    def declare(self, name: str, array: np.ndarray) -> None:
        for each in self.graph.input:
            if each.name == name:
                each.CopyFrom(_declared(name, array.dtype, array.shape))
        self.inputs[name] = array

    def initialiser(self, name: str) -> TensorProto | None:
        return next((each for each in self.graph.initializer if each.name == name), None)


def _declared(name: str, dtype: Any, shape: Any) -> ValueInfoProto:
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape
    )


# ---- changes ----


def attribute(it: Mutant) -> None:
    node = it.node()
    known = {each.name: each for each in node.attribute}
    try:
        schema = defs.get_schema(node.op_type, domain=node.domain).attributes
    except defs.SchemaError:
        schema = {}
    names = sorted({*known, *schema})
    if not names:
        return
    name = it.pick(names)
    old = known.get(name)
    kind: Any = old.type if old is not None else getattr(schema[name].type, "value", None)
    if old is not None:
        node.attribute.remove(old)
        if it.chance(0.15):
            return
    value: Any
    if kind == AttributeProto.INT:
        value = int(it.pick((*_NUMBERS, *((old.i + 1, old.i - 1) if old is not None else ()))))
        value = min(max(value, -(1 << 63)), (1 << 63) - 1)
    elif kind == AttributeProto.FLOAT:
        value = it.pick(_REALS)
    elif kind == AttributeProto.STRING:
        value = it.pick(_WORDS)
    elif kind == AttributeProto.INTS:
        value = list(old.ints) if old is not None else []
        if value and it.chance(0.7):
            value[int(it.rng.integers(len(value)))] = it.pick(_NUMBERS)
        elif value and it.chance(0.5):
            value.pop()
        else:
            value.append(it.pick(_NUMBERS))
    elif kind == AttributeProto.TENSOR and old is not None:
        value = numpy_helper.from_array(it.spoiled(numpy_helper.to_array(old.t)))
    else:
        if old is not None:
            node.attribute.append(old)
        return
    node.attribute.append(helper.make_attribute(name, value, attr_type=kind))


def input_shape(it: Mutant) -> None:
    if it.inputs:
        name = it.pick(list(it.inputs))
        array = it.inputs[name]
        it.declare(name, it.made_up(it.reshaped(array.shape), array))


def input_type(it: Mutant) -> None:
    if it.inputs:
        name = it.pick(list(it.inputs))
        with np.errstate(all="ignore"):
            it.declare(name, it.inputs[name].astype(it.pick(_DTYPES)))


def input_values(it: Mutant) -> None:
    if it.inputs:
        name = it.pick(list(it.inputs))
        it.inputs[name] = it.spoiled(it.inputs[name])


def constant(it: Mutant) -> None:
    """An input becomes a constant of the file, as most operands of real models are."""
    if it.inputs:
        name = it.pick(list(it.inputs))
        array = it.inputs.pop(name)
        kept = [each for each in it.graph.input if each.name != name]
        del it.graph.input[:]
        it.graph.input.extend(kept)
        it.graph.initializer.append(numpy_helper.from_array(array, name))


def constant_values(it: Mutant) -> None:
    if not it.graph.initializer:
        constant(it)
    if it.graph.initializer:
        tensor = it.pick(it.graph.initializer)
        array = it.spoiled(numpy_helper.to_array(tensor))
        if it.chance(0.3):
            array = it.made_up(it.reshaped(array.shape), array)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def declared_type(it: Mutant) -> None:
    """A claim about a value that need not be true."""
    if it.chance(0.5) and it.graph.output:
        claim = it.pick(it.graph.output)
    else:
        names = [name for node in it.graph.node for name in node.output if name]
        claim = it.graph.value_info.add()
        claim.CopyFrom(_declared(it.pick(names), it.pick(_DTYPES[:8]), [2, 3]))
    kind = claim.type.tensor_type
    dims = [dim.dim_value or dim.dim_param for dim in kind.shape.dim]
    if it.chance(0.2):
        kind.ClearField("shape")
        return
    if it.chance(0.2):
        kind.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(it.pick(_DTYPES)))
    if dims:
        dims[int(it.rng.integers(len(dims)))] = it.pick((0, 1, 2, 3, 1000, 1 << 30, "n", "m"))
    if it.chance(0.2):
        dims.append(it.pick((1, 2)))
    fresh = helper.make_tensor_value_info(claim.name, kind.elem_type, dims)
    claim.CopyFrom(fresh)


def body_type(it: Mutant) -> None:
    """A claim about what a nested graph is given, or gives, or one value more or less."""
    held = [
        each.g
        for node in it.graph.node
        for each in node.attribute
        if each.type == AttributeProto.GRAPH
    ]
    if not held:
        return
    body = it.pick(held)
    values = it.pick((body.input, body.output))
    what = int(it.rng.integers(4))
    if what == 0 and values:
        del values[len(values) - 1 :]
    elif what == 1 and values:
        values.add().CopyFrom(it.pick(values))
    elif values:
        claim = it.pick(values)
        kind = claim.type.tensor_type
        dims = [dim.dim_value or dim.dim_param for dim in kind.shape.dim]
        if what == 2:
            dtype = helper.np_dtype_to_tensor_dtype(np.dtype(it.pick(_DTYPES)))
            claim.CopyFrom(helper.make_tensor_value_info(claim.name, dtype, dims))
        elif dims:
            dims[int(it.rng.integers(len(dims)))] = it.pick((0, 1, 2, 3, 17, "n"))
            claim.CopyFrom(helper.make_tensor_value_info(claim.name, kind.elem_type, dims))


_MOST_ITERATIONS = 20


def limit_loops(it: Mutant) -> None:
    """Every loop ends soon, whatever number says how long it is."""
    for node in [each for each in it.graph.node if each.op_type == "Loop"]:
        count = node.input[0] if node.input else ""
        stored = it.initialiser(count)
        if stored is not None and stored.data_type == TensorProto.INT64:
            array = np.minimum(numpy_helper.to_array(stored), _MOST_ITERATIONS)
            stored.CopyFrom(numpy_helper.from_array(array, count))
        elif count in it.inputs and it.inputs[count].dtype == np.int64:
            it.inputs[count] = np.minimum(it.inputs[count], _MOST_ITERATIONS)
        else:
            name = f"iterations{len(it.graph.initializer)}"
            it.graph.initializer.append(
                numpy_helper.from_array(np.array(_MOST_ITERATIONS, np.int64), name)
            )
            if node.input:
                node.input[0] = name


def open_dimension(it: Mutant) -> None:
    """An input whose size only the run knows."""
    found = [each for each in it.graph.input if each.type.tensor_type.shape.dim]
    if found:
        dims = it.pick(found).type.tensor_type.shape.dim
        it.pick(dims).dim_param = it.pick(("n", "m"))


def wiring(it: Mutant) -> None:
    node = it.node()
    if not node.input:
        return
    at = int(it.rng.integers(len(node.input)))
    what = int(it.rng.integers(5))
    names = [*it.inputs, *(each.name for each in it.graph.initializer)]
    if what == 0:
        other = int(it.rng.integers(len(node.input)))
        node.input[at], node.input[other] = node.input[other], node.input[at]
    elif what == 1 and names:
        node.input[at] = it.pick(names)
    elif what == 2:
        node.input[at] = ""
    elif what == 3:
        del node.input[len(node.input) - 1 :]
    elif names:
        node.input.append(it.pick(names))


_TAILS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("Relu", 1, {}), ("Neg", 1, {}), ("Abs", 1, {}), ("Sigmoid", 1, {}), ("Add", 2, {}), ("Mul", 2, {}),
    ("Transpose", 1, {}), ("Flatten", 1, {}), ("Concat", 2, {"axis": 0}), ("Concat", 2, {"axis": -1}),
    ("Cast", 1, {"to": 1}), ("Cast", 1, {"to": 3}), ("Cast", 1, {"to": 7}), ("Softmax", 1, {"axis": -1}),
    ("ReduceSum", 1, {"keepdims": 0}), ("ReduceMax", 1, {}), ("Shape", 1, {}), ("ArgMax", 1, {}),
    ("LeakyRelu", 1, {}), ("Identity", 1, {}), ("NonZero", 1, {}), ("Size", 1, {}), ("Not", 1, {}),
    ("Unique", 1, {}), ("Unique", 1, {"sorted": 0}), ("Unique", 1, {"axis": 0}),
)  # fmt: skip


def tail(it: Mutant) -> None:
    """Operators after an output, which fusion may take in."""
    output = it.pick(it.graph.output)
    value = output.name
    for number in range(1 + int(it.rng.integers(3))):
        op, arity, attrs = it.pick(_TAILS)
        made = f"{output.name}_tail{number}_{len(it.graph.node)}"
        it.graph.node.append(helper.make_node(op, [value] * arity, [made], **attrs))
        value = made
    output.CopyFrom(ValueInfoProto(name=value))


def head(it: Mutant) -> None:
    """An operator between an input and its readers."""
    if not it.inputs:
        return
    name = it.pick(list(it.inputs))
    op, arity, attrs = it.pick(_TAILS)
    made = f"{name}_head{len(it.graph.node)}"
    for node in it.graph.node:
        for at, each in enumerate(node.input):
            if each == name:
                node.input[at] = made
    node = helper.make_node(op, [name] * arity, [made], **attrs)
    nodes = [node, *it.graph.node]
    del it.graph.node[:]
    it.graph.node.extend(nodes)


def quantised(it: Mutant) -> None:
    """Codes where an input and an output were real numbers."""
    # A scale that is 0 divides by it, and kernels do not keep the sign of a zero.
    found = [
        name
        for name, array in it.inputs.items()
        if array.dtype == np.float32 and "scale" not in name
    ]
    if not found:
        return
    name = it.pick(found)
    dtype = it.pick((np.int8, np.uint8, np.int16))
    per_axis = it.chance(0.3) and it.inputs[name].ndim > 1
    size = it.inputs[name].shape[1] if per_axis else 1
    shape = (size,) if per_axis else ()
    scale = it.pick((0.1, 0.5, 0.01, 1.0, 0.0, 1e-30))
    zero = 0 if dtype is np.int16 else it.pick((0, 3, 100))
    prefix = f"{name}_codes{len(it.graph.node)}"
    it.graph.initializer.append(
        numpy_helper.from_array(np.full(shape, scale, np.float32), f"{prefix}_scale")
    )
    it.graph.initializer.append(
        numpy_helper.from_array(np.full(shape, zero, dtype), f"{prefix}_zero")
    )
    parameters = [f"{prefix}_scale", f"{prefix}_zero"]
    for node in it.graph.node:
        for at, each in enumerate(node.input):
            if each == name:
                node.input[at] = f"{prefix}_real"
    first = helper.make_node("DequantizeLinear", [name, *parameters], [f"{prefix}_real"])
    nodes = [first, *it.graph.node]
    del it.graph.node[:]
    it.graph.node.extend(nodes)
    codes = it.rng.integers(-20, 20, it.inputs[name].shape) + (30 if dtype is np.uint8 else 0)
    it.declare(name, codes.astype(dtype))
    output = it.pick(it.graph.output)
    if output.type.tensor_type.elem_type == TensorProto.FLOAT and not per_axis:
        it.graph.node.append(
            helper.make_node("QuantizeLinear", [output.name, *parameters], [f"{prefix}_out"])
        )
        output.CopyFrom(ValueInfoProto(name=f"{prefix}_out"))


_CHANGES: tuple[Callable[[Mutant], None], ...] = (
    (attribute,) * 6
    + (input_shape,) * 4
    + (constant,) * 5
    + (constant_values,) * 5
    + (input_values,) * 2
    + (declared_type,) * 3
    + (wiring,) * 2
    + (tail,) * 4
    + (head,) * 2
    + (quantised,) * 3
    + (open_dimension,) * 2
    + (body_type,) * 2
    + (input_type,)
)
