"""GroupQueryAttention becomes what it is made of: rotations, appending to the caches, attention.

present = append(past, rotate(K), first) y = attention(rotate(Q), present keys, present values), of
each query over the keys up to its own

`first` is where the new keys begin: 0 for a prompt, whose queries are all there is, else so many
places before the end of the text. One whose total length is known only at run time stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.graph import Node, Ref, Rewriter
from whence.ops.attributes import get_float, get_int
from whence.ops.definition import Attr
from whence.ops.neural.grouped_attention import APPEND, GROUP_QUERY, Heads, heads_of
from whence.ops.registry import one_of
from whence.passes.base import RulePass
from whence.passes.origins import lowering
from whence.passes.pattern import static_shape_of
from whence.provenance import EdgeKind
from whence.types import DType

_RULE = "grouped attention = rotate, append, attend"


@dataclass(frozen=True, slots=True)
class ExpandGroupedAttention(RulePass):
    name = "expand_grouped_attention"
    summary = "GroupQueryAttention becomes rotations, CacheAppend and Attention"
    anchors = one_of(GROUP_QUERY)

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        shape = static_shape_of(graph, node.operand("query"))
        total = graph.const_value(node.operand("total_sequence_length"))
        past = node.operand("past_key")
        cache = static_shape_of(graph, past)
        if shape is None or total is None or (past is not None and cache is None):
            return
        known = 0 if cache is None else cache[2]
        heads = heads_of(node.attrs, shape[2], packed=node.operand("key") is None)
        _Expansion(rewriter, node, shape[0], shape[1], known, int(total.reshape(-1)[0]), heads)()


class _Expansion:
    def __init__(
        self,
        rewriter: Rewriter,
        node: Node,
        batch: int,
        count: int,
        past: int,
        total: int,
        heads: Heads,
    ) -> None:
        self._node, self._batch, self._count = node, batch, count
        self._past, self._total, self._heads = past, total, heads
        self._make = lowering(rewriter, node, _RULE)
        self._edit = self._make.edit
        self._is_prompt = count == total
        assert isinstance(heads.size, int)
        self._size = heads.size

    def __call__(self) -> None:
        node, edit = self._node, self._edit
        last = self._make("Reshape", node.operand("seqlens_k"), self._ints(self._batch))
        lengths = self._make("Add", self._make.cast(last, DType.I64), self._ints(1))
        if self._is_prompt:
            first = self._ints(*[0] * self._batch)
        else:
            first = self._make("Sub", lengths, self._ints(self._count))
        query, key, value = self._projections()
        if get_int(node.attrs, "do_rotary", 0):
            positions = node.operand("position_ids") or self._positions(first)
            query = self._rotated(query, positions, self._heads.queries)
            key = self._rotated(key, positions, self._heads.keys)
        keys, values = (
            self._appended(past, new, first)
            for past, new in (
                (node.operand("past_key"), key),
                (node.operand("past_value"), value),
            )
        )
        result = self._attended(query, keys, values, lengths)
        edit.replace(node.ref(0), result)
        for index, made in ((1, keys), (2, values)):
            if index < len(node.outputs):
                edit.replace(node.ref(index), made)
        edit.apply()

    def _ints(self, *values: int) -> Ref:
        return self._edit.const(np.array(values, np.int64))

    def _projections(self) -> tuple[Ref, Ref, Ref]:
        """Heads side by side."""
        node = self._node
        query, key, value = (node.operand(name) for name in ("query", "key", "value"))
        assert query is not None
        if key is not None and value is not None:
            return query, key, value
        sizes = [count * self._size for count in (self._heads.queries, *[self._heads.keys] * 2)]
        split = self._edit.node(
            "Split",
            (query, self._ints(*sizes)),
            {"axis": 2},
            of=self._make.of,
            kind=EdgeKind.SPLIT,
            n_outputs=3,
        )
        return split.ref(0), split.ref(1), split.ref(2)

    def _positions(self, first: Ref) -> Ref:
        """[batch, count], from `first` on."""
        begin = self._make("Reshape", first, self._ints(self._batch, 1))
        return self._make("Add", begin, self._ints(*range(self._count)))

    def _rotated(self, data: Ref, positions: Ref, heads: int) -> Ref:
        node = self._node
        attrs: dict[str, Attr] = {
            "num_heads": heads,
            "interleaved": get_int(node.attrs, "rotary_interleaved", 0),
        }
        shape = static_shape_of(self._edit.graph, node.operand("cos_cache"))
        if shape is not None and 2 * shape[-1] < self._size:
            attrs["rotary_embedding_dim"] = 2 * shape[-1]
        return self._make(
            "RotaryEmbedding",
            data,
            node.operand("cos_cache"),
            node.operand("sin_cache"),
            positions,
            **attrs,
        )

    def _by_heads(self, data: Ref, heads: int) -> Ref:
        """[batch, heads, count, size]"""
        shape = self._ints(self._batch, self._count, heads, self._size)
        return self._make("Transpose", self._make("Reshape", data, shape), perm=(0, 2, 1, 3))

    def _appended(self, past: Ref | None, new: Ref, first: Ref) -> Ref:
        """[batch, heads, length, size]"""
        new = self._by_heads(new, self._heads.keys)
        if past is None or not self._past:
            return new
        attrs: dict[str, Attr] = {}
        if self._total > self._past:
            attrs["length"] = self._total
        return self._make(APPEND, past, new, first, **attrs)

    def _attended(self, query: Ref, keys: Ref, values: Ref, lengths: Ref) -> Ref:
        node = self._node
        query = self._by_heads(query, self._heads.queries)
        attrs: dict[str, Attr] = {"is_causal": 1}
        scale = get_float(node.attrs, "scale", 0.0)
        if scale:
            attrs["scale"] = scale
        if get_float(node.attrs, "softcap", 0.0) > 0:
            attrs["softcap"] = get_float(node.attrs, "softcap", 0.0)
        window = get_int(node.attrs, "local_window_size", -1)
        if window > 0:
            attrs["left_window_size"] = window - 1
        mask: Ref | None = None
        seen: Ref | None = lengths
        if self._is_prompt:
            # Queries begin at the first place, whatever the length of their text. Padding behind
            # its end sees no farther than the end.
            seen = None
            mask = self._make(
                "Less",
                self._ints(*range(max(self._past, self._total))),
                self._make("Reshape", lengths, self._ints(self._batch, 1, 1, 1)),
            )
        inputs = (query, keys, values, mask, None, None, seen)
        made = self._make("Attention", *inputs, **attrs)
        transposed = self._make("Transpose", made, perm=(0, 2, 1, 3))
        width = self._heads.queries * self._size
        return self._make("Reshape", transposed, self._ints(self._batch, self._count, width))
