"""Why an edge was not fused, in words. The first reason that would forbid it even if all others
were gone comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whence.fusion.groups import MissedFusion, MissReason
from whence.fusion.patterns import opaque_here
from whence.fusion.wiring import Wiring
from whence.graph.escaping import escape
from whence.ops.definition import Pattern
from whence.passes.operands import same_shape

_SENTENCES: Mapping[MissReason, str] = {
    MissReason.OPAQUE_PRODUCER: "producer is opaque ({producer})",
    MissReason.OPAQUE_CONSUMER: "consumer is opaque ({consumer})",
    MissReason.NOT_STATIC: "{failed_at} has a shape or a parameter that is known only at run time",
    MissReason.NOT_NUMBERS: "{failed_at} works on values that are not tensors of numbers",
    MissReason.STORED_INPUTS: "{consumer} reads its inputs many times, so they are stored first",
    MissReason.REDUCTION: "reduction cannot fuse forward ({producer})",
    MissReason.SECOND_ANCHOR: "group already has an anchor ({failed_at})",
    MissReason.NOT_ELEMENTWISE: (
        "{consumer} does not take the result of the group's anchor ({failed_at}) element by element"
    ),
    MissReason.SEVERAL_CONSUMERS: "output has {count} consumers",
    MissReason.GRAPH_OUTPUT: "output is an output of the model, with {count} consumers beside",
    MissReason.SEVERAL_OUTPUTS: "{failed_at} has several outputs, and cannot be the end of a group",
    MissReason.RECOMPUTED: (
        "{producer} would be computed many times over, for every element of {consumer}"
    ),
    MissReason.CYCLE: (
        "would create a cycle: a result of the group of {producer} reaches that of {consumer}"
        " through others too"
    ),
    MissReason.TOO_FAR: (
        "too many operators stand between {producer} and {consumer} to rule out a cycle"
    ),
    MissReason.IN_PLACE: (
        "{producer} writes where the output of {consumer} lies, so that nothing else is copied"
        " there"
    ),
    MissReason.DEPTH_LIMIT: "depth limit: the group would have more than {count} operators",
    MissReason.OUTPUT_LIMIT: "output limit: the group would store more than {count} results",
    MissReason.PATTERN: "{producer} and {consumer} do not fit into one loop nest",
    MissReason.DISABLED: "fusion is switched off",
}


def miss(
    wiring: Wiring,
    producer: int,
    consumer: int,
    reason: MissReason,
    *,
    failed_at: int | None = None,
    count: int = 0,
) -> MissedFusion:
    """The record of an edge between two positions. `failed_at` is the operator at which it failed,
    when that is not plain from the reason.
    """
    nodes = wiring.nodes
    text = _SENTENCES[reason].format(
        producer=escape(nodes[producer].op),
        consumer=escape(nodes[consumer].op),
        failed_at=escape(nodes[producer if failed_at is None else failed_at].op),
        count=count,
    )
    return MissedFusion(nodes[producer].id, nodes[consumer].id, reason, text)


def plain_miss(wiring: Wiring, producer: int, consumer: int) -> MissedFusion | None:
    """A reason that lies in the two operators themselves, whatever is around them."""
    for failed_at in (producer, consumer):
        if wiring.patterns[failed_at] is Pattern.OPAQUE:
            here = opaque_here(wiring.nodes[failed_at])
            alone = (
                MissReason.OPAQUE_PRODUCER if failed_at == producer else MissReason.OPAQUE_CONSUMER
            )
            return miss(wiring, producer, consumer, here or alone, failed_at=failed_at)
    if wiring.patterns[consumer] is Pattern.OUT_ELEMWISE_FUSABLE:
        return miss(wiring, producer, consumer, MissReason.STORED_INPUTS)
    return None


def shared_miss(wiring: Wiring, producer: int, consumer: int) -> MissedFusion | None:
    """The producer's result is needed elsewhere as well, or twice at one place."""
    readers = wiring.readers[producer]
    if wiring.is_output[producer]:
        return miss(wiring, producer, consumer, MissReason.GRAPH_OUTPUT, count=len(readers))
    uses = (
        sum(read.producer == producer for reader in readers for read in wiring.reads[reader])
        if len(readers) == 1
        else len(readers)
    )
    if uses > 1:
        return miss(wiring, producer, consumer, MissReason.SEVERAL_CONSUMERS, count=uses)
    return None


def nnvm_miss(
    wiring: Wiring, derived: Sequence[Pattern], producer: int, consumer: int, opt_level: int
) -> MissedFusion:
    """Why NNVM's rules keep two operators apart."""
    if opt_level < 1:
        return miss(wiring, producer, consumer, MissReason.DISABLED)
    plain = plain_miss(wiring, producer, consumer)
    if plain is not None:
        return plain
    if derived[producer] is Pattern.COMM_REDUCE:
        return miss(wiring, producer, consumer, MissReason.REDUCTION)
    shared = shared_miss(wiring, producer, consumer)
    if shared is not None:
        return shared
    if derived[producer] is Pattern.OUT_ELEMWISE_FUSABLE:
        operands = {read.producer for read in wiring.reads[consumer] if read.producer != producer}
        other = next(
            (operand for operand in operands if derived[operand] is Pattern.OUT_ELEMWISE_FUSABLE),
            None,
        )
        fits = any(
            same_shape(kind, wiring.nodes[consumer].type) for kind in wiring.nodes[producer].outputs
        )
        if other is not None and fits and wiring.patterns[consumer] <= Pattern.BROADCAST:
            return miss(wiring, producer, consumer, MissReason.SECOND_ANCHOR, failed_at=other)
        return miss(wiring, producer, consumer, MissReason.NOT_ELEMENTWISE, failed_at=producer)
    return miss(wiring, producer, consumer, MissReason.PATTERN)
