"""Where everything came from: source operators, the ledger of transformations, and the tables that
carry origins in files.
"""

from whence.provenance.ledger import Edge, EdgeKind, Entry, Fate, Ledger, Reason, Tombstone
from whence.provenance.pass_report import PassReport
from whence.provenance.source import NO_ORIGIN, Origin, SourceOp, union_of

__all__ = [
    "NO_ORIGIN",
    "Edge",
    "EdgeKind",
    "Entry",
    "Fate",
    "Ledger",
    "Origin",
    "PassReport",
    "Reason",
    "SourceOp",
    "Tombstone",
    "union_of",
]
