"""Models with sizes that only a run knows, each with the calls that make them large, small, 1 and
0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_DICE = np.random.default_rng(16)
Feeds = dict[str, np.ndarray]


class Case(NamedTuple):
    model: str
    """In ONNX's text form."""
    calls: Sequence[Feeds]
    most_compilations: int = 3
    """Of what is behind the size: for open sizes, and where they occur for 0 and for 1."""


def _floats(*shape: int) -> np.ndarray:
    return _DICE.standard_normal(shape).astype(np.float32)


def _text(name: str, values: np.ndarray) -> str:
    shape = ",".join(map(str, values.shape))
    items = ", ".join(f"{float(value):.4f}" for value in values.reshape(-1))
    return f"float[{shape}] {name} = {{{items}}}"


def _marks(length: int, count: int) -> np.ndarray:
    """So many positive numbers among others."""
    marks = -np.ones(length, np.float32)
    marks[_DICE.permutation(length)[:count]] = 1
    return marks


_COUNTS = (5, 12, 0, 1, 20, 3)
_W = _text("w", _floats(8, 6))

NON_ZERO = Case(
    f"""
picked (float[20] x, float[20,8] rows) => (float[n,6] y)
<{_W}, float zero = {{0}}, int64[1] first = {{0}}> {{
  m = Greater(x, zero)
  at = NonZero(m)
  i = Squeeze(at, first)
  r = Gather(rows, i)
  a = MatMul(r, w)
  b = Relu(a)
  y = Softmax(b)
}}""",
    [{"x": _marks(20, count), "rows": _floats(20, 8)} for count in _COUNTS],
)

RANGE = Case(
    f"""
positions (float[20] x) => (float[n,6] y)
<{_W}, float zero = {{0}}, int64 none = {{0}}, int64 one = {{1}}, float[1,8] steps = {{0,1,2,3,4,5,6,7}}, int64[1] last = {{1}}> {{
  m = Greater(x, zero)
  c = Cast <to = 7> (m)
  n = ReduceSum <keepdims = 0> (c)
  r = Range(none, n, one)
  f = Cast <to = 1> (r)
  u = Unsqueeze(f, last)
  p = Mul(u, steps)
  s = Sin(p)
  y = MatMul(s, w)
}}""",
    [{"x": _marks(20, count)} for count in _COUNTS],
)

SLICE = Case(
    f"""
cut (float[1,4,24] x, int64[1] begin, int64[1] end) => (float[1,3,m] y)
<{_text("w", _floats(3, 4, 3))}, int64[1] axis = {{2}}> {{
  s = Slice(x, begin, end, axis)
  c = Conv <pads = [1, 1]> (s, w)
  y = Sigmoid(c)
}}""",
    [
        {"x": _floats(1, 4, 24), "begin": np.array([begin]), "end": np.array([end])}
        for begin, end in ((0, 9), (3, 24), (-7, 1000), (4, 5), (2, 4))
    ],
)

RESIZE = Case(
    f"""
resized (float[1,2,6,8] x, int64[4] size) => (float[1,3,h,v] y)
<{_text("w", _floats(3, 2, 3, 3))}> {{
  r = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (x, , , size)
  c = Conv <pads = [1, 1, 1, 1]> (r, w)
  y = Relu(c)
}}""",
    [
        {"x": _floats(1, 2, 6, 8), "size": np.array([1, 2, height, width])}
        for height, width in ((12, 16), (9, 5), (3, 30), (1, 7))
    ],
)

RESHAPE = Case(
    f"""
folded (float[24,8] x, int64[3] size, int64[2] grown) => (float[a,b,6] y, float[c,d] z)
<{_W}, float[1,1] one = {{1}}> {{
  r = Reshape(x, size)
  m = MatMul(r, w)
  y = Tanh(m)
  e = Expand(one, grown)
  z = Softmax(e)
}}""",
    [
        {"x": _floats(24, 8), "size": np.array(size), "grown": np.array(grown)}
        for size, grown in (
            ((4, -1, 8), (3, 4)),
            ((2, 12, 8), (5, 2)),
            ((1, -1, 8), (2, 1)),
            ((12, 2, 8), (7, 9)),
        )
    ],
)

_BOXES = np.array(
    [[[0.1 * at, 0.1 * at, 0.1 * at + 0.05, 0.1 * at + 0.05] for at in range(8)]], np.float32
)
SUPPRESSION = Case(
    f"""
boxes (float[1,8,4] boxes, float[1,1,8] scores) => (float[n,6] y)
<int64 most = {{8}}, float overlap = {{0.5}}, float least = {{0.5}}, int64 two = {{2}},
 int64[1] first = {{0}}, {_text("v", _floats(4, 6))}> {{
  found = NonMaxSuppression(boxes, scores, most, overlap, least)
  at = Gather <axis = 1> (found, two)
  flat = Squeeze(boxes, first)
  b = Gather(flat, at)
  y = MatMul(b, v)
}}""",
    [
        {"boxes": _BOXES, "scores": (_marks(8, count) / 2 + 0.5).reshape(1, 1, 8)}
        for count in (3, 5, 0, 1, 8)
    ],
)

LOOP = Case(
    f"""
iterations (float[1,8] x, int64 n) => (float[m,1,6] y)
<{_W}, bool yes = {{1}}> {{
  last, all = Loop (n, yes, x) <body = iteration (int64 i, bool c, float[1,8] h) => (bool go, float[1,8] k, float[1,8] s) {{
    go = Identity(c)
    k = Tanh(h)
    s = Add(k, h)
  }}>
  a = MatMul(all, w)
  y = Softmax(a)
}}""",
    [{"x": _floats(1, 8), "n": np.array(iterations)} for iterations in (4, 7, 0, 1, 2)],
)

BRANCHES = Case(
    f"""
either (float[3,8] x, bool c) => (float[n,6] y)
<{_W}> {{
  r = If (c) <
    then_branch = yes () => (float[3,8] a) {{ a = Relu(x) }},
    else_branch = no () => (float[6,8] b) {{ b = Concat <axis = 0> (x, x) }}
  >
  p = MatMul(r, w)
  y = Softmax(p)
}}""",
    [{"x": _floats(3, 8), "c": np.array(choice)} for choice in (True, False, True)],
)

COMPRESSED = Case(
    f"""
chosen (float[20] x, float[20,8] rows, int64[1] k) => (float[n,6] y, float[q] best, float[u] unlike)
<{_W}, float zero = {{0}}> {{
  m = Greater(x, zero)
  r = Compress <axis = 0> (rows, m)
  p = MatMul(r, w)
  y = Softmax(p)
  best, where = TopK(x, k)
  unlike = Unique(x)
}}""",
    [
        {"x": _marks(20, count), "rows": _floats(20, 8), "k": np.array([largest])}
        for count, largest in ((5, 3), (12, 1), (0, 4), (1, 20))
    ],
)

# Behind one such size another, of a value that only the first decides.
TWICE = Case(
    f"""
twice (float[20] x, float[20,8] rows) => (float[n,6] y)
<{_W}, float zero = {{0}}, int64[1] last = {{-1}}> {{
  m = Greater(x, zero)
  r = Compress <axis = 0> (rows, m)
  p = MatMul(r, w)
  s = ReduceMax <keepdims = 0> (p, last)
  t = Greater(s, zero)
  q = Compress <axis = 0> (p, t)
  y = Softmax(q)
}}""",
    [{"x": _marks(20, count), "rows": _floats(20, 8)} for count in (5, 12, 18, 0, 1)],
)

# Open in its input as well.
OPEN_INPUT = Case(
    f"""
open (float[length] x, float[length,8] rows) => (float[n,6] y)
<{_W}, float zero = {{0}}> {{
  m = Greater(x, zero)
  d = Mul(rows, rows)
  r = Compress <axis = 0> (d, m)
  p = MatMul(r, w)
  y = Softmax(p)
}}""",
    [
        {"x": _marks(length, count), "rows": _floats(length, 8)}
        for length, count in ((20, 5), (20, 12), (31, 9), (31, 31), (12, 4))
    ],
    most_compilations=1,
)

# And with sizes of its inputs behind the size that only the run knows.
OPEN_SIZES_BEHIND = Case(
    f"""
open_behind (float[batch,length,8] rows, float[length] x) => (float[batch,n,6] y, int64[1] d)
<{_W}, float zero = {{0}}, int64[1] two = {{2}}, int64[3] more = {{-1, 3, 2}}, int64[2] back = {{-1, 6}}> {{
  m = Greater(x, zero)
  r = Compress <axis = 1> (rows, m)
  p = MatMul(r, w)
  s = Shape <end = 1> (rows)
  q = Concat <axis = 0> (s, more)
  z = Reshape(p, q)
  g = Sigmoid(z)
  u = Concat <axis = 0> (s, back)
  y = Reshape(g, u)
  t = Mul(s, two)
  k = Shape <start = 1, end = 2> (y)
  d = Add(t, k)
}}""",
    [
        {"x": _marks(length, count), "rows": _floats(batch, length, 8)}
        for batch, length, count in ((3, 20, 6), (3, 20, 12), (5, 31, 7), (2, 31, 30), (2, 12, 4))
    ],
    most_compilations=1,
)

CASES = {
    "NonZero": NON_ZERO,
    "Range": RANGE,
    "Slice": SLICE,
    "Resize": RESIZE,
    "Reshape and Expand": RESHAPE,
    "NonMaxSuppression": SUPPRESSION,
    "Loop": LOOP,
    "If": BRANCHES,
    "Compress, TopK and Unique": COMPRESSED,
    "two in a row": TWICE,
    "open inputs": OPEN_INPUT,
    "open sizes behind it": OPEN_SIZES_BEHIND,
}
