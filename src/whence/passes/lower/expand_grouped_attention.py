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
from whence.graph.maker import Maker
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
        assert isinstance(heads.size, int)
        make, length = lowering(rewriter, node, _RULE), int(total.reshape(-1)[0])
        _Expansion(node, make, shape[0], shape[1], known, length, heads, heads.size).apply()


@dataclass(frozen=True, slots=True)
class _Expansion:
    node: Node
    make: Maker
    batch: int
    count: int
    """Queries of each text."""
    past: int
    """Places in the caches that are given."""
    total: int
    heads: Heads
    size: int
    """Of a head."""

    @property
    def is_prompt(self) -> bool:
        return self.count == self.total

    def apply(self) -> None:
        node, edit = self.node, self.make.edit
        last = self.make("Reshape", node.operand("seqlens_k"), self._ints(self.batch))
        lengths = self.make("Add", self.make.cast(last, DType.I64), self._ints(1))
        if self.is_prompt:
            first = self._ints(*[0] * self.batch)
        else:
            first = self.make("Sub", lengths, self._ints(self.count))
        query, key, value = self._projections()
        if get_int(node.attrs, "do_rotary", 0):
            positions = node.operand("position_ids") or self._positions(first)
            query = self._rotated(query, positions, self.heads.queries)
            key = self._rotated(key, positions, self.heads.keys)
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
        return self.make.edit.const(np.array(values, np.int64))

    def _projections(self) -> tuple[Ref, Ref, Ref]:
        """Heads side by side."""
        node = self.node
        query, key, value = (node.operand(name) for name in ("query", "key", "value"))
        assert query is not None
        if key is not None and value is not None:
            return query, key, value
        sizes = [count * self.size for count in (self.heads.queries, *[self.heads.keys] * 2)]
        split = self.make.edit.node(
            "Split",
            (query, self._ints(*sizes)),
            {"axis": 2},
            of=self.make.of,
            kind=EdgeKind.SPLIT,
            n_outputs=3,
        )
        return split.ref(0), split.ref(1), split.ref(2)

    def _positions(self, first: Ref) -> Ref:
        """[batch, count], from `first` on."""
        begin = self.make("Reshape", first, self._ints(self.batch, 1))
        return self.make("Add", begin, self._ints(*range(self.count)))

    def _rotated(self, data: Ref, positions: Ref, heads: int) -> Ref:
        node = self.node
        attrs: dict[str, Attr] = {
            "num_heads": heads,
            "interleaved": get_int(node.attrs, "rotary_interleaved", 0),
        }
        shape = static_shape_of(self.make.edit.graph, node.operand("cos_cache"))
        if shape is not None and 2 * shape[-1] < self.size:
            attrs["rotary_embedding_dim"] = 2 * shape[-1]
        return self.make(
            "RotaryEmbedding",
            data,
            node.operand("cos_cache"),
            node.operand("sin_cache"),
            positions,
            **attrs,
        )

    def _by_heads(self, data: Ref, heads: int) -> Ref:
        """[batch, heads, count, size]"""
        shape = self._ints(self.batch, self.count, heads, self.size)
        return self.make("Transpose", self.make("Reshape", data, shape), perm=(0, 2, 1, 3))

    def _appended(self, past: Ref | None, new: Ref, first: Ref) -> Ref:
        """[batch, heads, length, size]"""
        new = self._by_heads(new, self.heads.keys)
        if past is None or not self.past:
            return new
        attrs: dict[str, Attr] = {}
        if self.total > self.past:
            attrs["length"] = self.total
        return self.make(APPEND, past, new, first, **attrs)

    def _attended(self, query: Ref, keys: Ref, values: Ref, lengths: Ref) -> Ref:
        node = self.node
        query = self._by_heads(query, self.heads.queries)
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
        if self.is_prompt:
            # Queries begin at the first place, whatever the length of their text. Padding behind
            # its end sees no farther than the end.
            seen = None
            mask = self.make(
                "Less",
                self._ints(*range(max(self.past, self.total))),
                self.make("Reshape", lengths, self._ints(self.batch, 1, 1, 1)),
            )
        inputs = (query, keys, values, mask, None, None, seen)
        made = self.make("Attention", *inputs, **attrs)
        transposed = self.make("Transpose", made, perm=(0, 2, 1, 3))
        width = self.heads.queries * self.size
        return self.make("Reshape", transposed, self._ints(self.batch, self.count, width))
