"""Brings an operator of any opset to the meaning it has in the newest one that the `onnx` package
knows.

An adapter knows one change: what an operator meant before opset N, said as opset N says it. They
are applied one after the other, so a change is described once, however many opsets ago it was.
Changes that only widened what was allowed (more element types, negative axes, new attributes whose
default is the old behaviour) need none.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from types import MappingProxyType

from onnx import defs

from whence.errors import ModelError, UnsupportedError
from whence.frontends.families import joined, tables
from whence.frontends.naming import quoted
from whence.frontends.onnx import classical, microsoft, upgrades
from whence.frontends.onnx.microsoft.search import MICROSOFT
from whence.frontends.onnx.record import EVERY_OPSET, Adapter, FileScope, OpRecord, Rewrite
from whence.ops.registry import REGISTRY

OLDEST_OPSET = 1
NEWEST_OPSET = defs.onnx_opset_version()


def _by_operator(adapters: Iterable[Adapter]) -> Mapping[str, tuple[Adapter, ...]]:
    table: dict[str, tuple[Adapter, ...]] = {}
    for adapter in sorted(adapters, key=lambda adapter: adapter.before):
        table[adapter.op] = (*table.get(adapter.op, ()), adapter)
    return MappingProxyType(table)


_ADAPTERS: Mapping[str, Mapping[str, tuple[Adapter, ...]]] = MappingProxyType(
    {
        "": _by_operator(
            chain.from_iterable(tables(upgrades.__name__, upgrades.__path__, "ADAPTERS"))
        ),
        "ai.onnx.ml": _by_operator(classical.ADAPTERS),
        MICROSOFT: {
            op: (Adapter(op, EVERY_OPSET, restate),)
            for op, restate in joined(
                microsoft.__name__, microsoft.__path__, "RESTATEMENTS"
            ).items()
        },
    }
)


@cache
def native_operators(domain: str) -> frozenset[str]:
    """The operators that ONNX defines in a domain, in any opset."""
    return frozenset(
        schema.name for schema in defs.get_all_schemas_with_history() if schema.domain == domain
    )


def last_break(domain: str, op: str) -> int:
    """The opset since which an operator means what it means now; earlier ones say it otherwise."""
    return max(
        (
            adapter.before
            for adapter in _ADAPTERS.get(domain, {}).get(op, ())
            if adapter.before != EVERY_OPSET
        ),
        default=1,
    )


class Upgrader:
    """Upgrades the operators of a file from the opsets that it states for its domains."""

    def __init__(self, opsets: Mapping[str, int]) -> None:
        version = opsets.get("", NEWEST_OPSET)
        if not OLDEST_OPSET <= version <= NEWEST_OPSET:
            raise UnsupportedError(
                f"the model is written in opset {version}; whence reads {OLDEST_OPSET} to"
                f" {NEWEST_OPSET}. onnx.version_converter may convert it"
            )
        self.opsets = dict(opsets)
        self._first: dict[tuple[str, str], Adapter | None] = {}

    def __call__(self, record: OpRecord, scope: FileScope) -> Sequence[OpRecord]:
        """The operators of the newest opset that say the same, in the order they must run."""
        key = (record.domain, record.op)
        if key not in self._first:
            self._check_known(record)
            self._first[key] = _next_adapter(record, self.opsets.get(record.domain, 1))
        adapter = self._first[key]
        return (record,) if adapter is None else _apply(adapter, record, scope)

    def rule(self, record: OpRecord) -> str:
        """How the ledger calls what was done to an operator that became several."""
        if record.domain == MICROSOFT:
            return f"{record.domain}::{record.op} in operators of ONNX"
        return (
            f"{record.op} of opset {self.opsets.get(record.domain, 1)} in the terms of opset"
            f" {NEWEST_OPSET}"
        )

    def _check_known(self, record: OpRecord) -> None:
        key = f"{record.domain}::{record.op}" if record.domain else record.op
        # The names whence has for itself (`Input`, `FusedConv`) mean nothing in a file. They are in
        # no domain: a definition in a domain is of what files have.
        if key in REGISTRY and (record.domain or record.op in native_operators("")):
            return
        if record.op not in _ADAPTERS.get(record.domain, {}):
            where = _domain(record.domain)
            raise UnsupportedError(
                f"operator {quoted(record.name)} is a {quoted(record.op)} of {where}, which whence"
                f" does not know{_similar(record)}"
            )


def _domain(name: str) -> str:
    return f"domain {quoted(name)}" if name else "the default domain"


def _similar(record: OpRecord) -> str:
    """What the file may have meant: the same operator of another domain, or a similar name."""
    known = {tuple(name.rpartition("::")[::2]) for name in REGISTRY if "::" in name}
    known |= {("", name) for name in native_operators("") & REGISTRY.keys()}
    known |= {(domain, name) for domain, table in _ADAPTERS.items() for name in table}
    elsewhere = min((domain for domain, name in known if name == record.op), default=None)
    if elsewhere is not None:
        return f"; there is one of {_domain(elsewhere)}"
    names = [name for domain, name in sorted(known) if domain == record.domain]
    close = difflib.get_close_matches(record.op, names, n=2, cutoff=0.75)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def _next_adapter(record: OpRecord, version: int) -> Adapter | None:
    """The first change that an operator of this opset has not seen."""
    for adapter in _ADAPTERS.get(record.domain, {}).get(record.op, ()):
        if version < adapter.before:
            return adapter
    return None


def _restated(adapter: Adapter, record: OpRecord, scope: FileScope) -> Sequence[OpRecord]:
    try:
        return adapter.restate(record, Rewrite(record, scope))
    except (ArithmeticError, IndexError, KeyError, TypeError, ValueError) as error:
        # Attributes and shapes that no such operator has: Python says how, the user needs to know
        # where.
        raise ModelError(f"{record}: its attributes and inputs do not fit: {error}") from error


def _apply(adapter: Adapter, record: OpRecord, scope: FileScope) -> Sequence[OpRecord]:
    upgraded: list[OpRecord] = []
    version = EVERY_OPSET if adapter.newest else adapter.before
    for restated in _restated(adapter, record, scope):
        following = _next_adapter(restated, version)
        if following is None:
            upgraded.append(restated)
        else:
            upgraded.extend(_apply(following, restated, scope))
    return upgraded
