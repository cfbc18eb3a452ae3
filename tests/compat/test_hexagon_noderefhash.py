"""The seed's prefilter, bit for bit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.compat.hexagon import id_mask, node_rehash_inputrefs
from whence.graph import Node, Ref

VECTORS = {
    1: 0x00080000,
    2: 0x00000080,
    3: 0x08000000,
    4: 0x00008000,
    5: 0x00000004,
    0x10: 0x10000000,
    0x1000: 0x00004000,
    0x1001: 0x00000004,
    0xFFFFFFFF: 0x00001000,
    0xFFFFFFFE: 0x01000000,
}


@pytest.mark.parametrize(("node_id", "mask"), VECTORS.items())
def test_published_vectors(node_id: int, mask: int) -> None:
    assert id_mask(node_id) == mask


@given(st.integers(1, 2**40))
def test_one_bit_of_32(node_id: int) -> None:
    mask = id_mask(node_id)
    assert mask.bit_count() == 1
    assert mask < 2**32


def test_a_node_has_the_bits_of_all_it_reads() -> None:
    node = Node(9, "Concat", (Ref(1), None, Ref(3, 2), Ref(1, 1)), ())
    assert node_rehash_inputrefs(node) == VECTORS[1] | VECTORS[3]
    assert node_rehash_inputrefs(Node(9, "Input")) == 0
    assert id_mask(5) == id_mask(0x1001)  # a prefilter: different ids may share a bit
