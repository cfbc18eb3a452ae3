"""Running a case: the passes or the fusion that it names, with everything checked that always
holds.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from typing import Any

import whence.passes
from tests.filetests.case_files import Case, CaseFile
from tests.graph.structure import structure
from whence.errors import TextError
from whence.fusion import GroupLimits, check_fused, find_groups, fuse, print_fused
from whence.graph import Check, Graph, check_graph, print_graph
from whence.graph.parse import Parsed, parse_text
from whence.graph.printer import history_lines
from whence.passes.base import Pass
from whence.passes.equivalence import EquivalenceProbe
from whence.passes.manager import CheckLevel, run_passes
from whence.passes.simplify.gather_consts import GatherConsts
from whence.passes.simplify.remove_dead_nodes import RemoveDeadNodes

_TOLERANCE = 1e-4


class CaseError(Exception):
    """A case that cannot be run as it is written."""


def pass_classes() -> dict[str, type[Pass]]:
    """All passes by name."""
    for module in pkgutil.walk_packages(whence.passes.__path__, "whence.passes."):
        importlib.import_module(module.name)
    found: dict[str, type[Pass]] = {}
    waiting = Pass.__subclasses__()
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        # A slotted dataclass leaves the class it was made from behind.
        if "name" in vars(kind) and kind.__module__.startswith("whence."):
            found[kind.name] = getattr(importlib.import_module(kind.__module__), kind.__name__)
    return found


def read_passes(text: str, known: Mapping[str, type[Pass]]) -> list[Pass]:
    """`fold_constants dequantise=True, remove_dead_nodes` as passes."""
    found = []
    for each in text.split(","):
        name, *options = each.split()
        if name not in known:
            close = difflib.get_close_matches(name, known, n=2)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            raise CaseError(f"no pass '{name}'{hint}")
        given: dict[str, Any] = {}
        for option in options:
            key, _, value = option.partition("=")
            given[key] = _option(value, known)
        found.append(known[name](**given))
    return found


def _option(text: str, known: Mapping[str, type[Pass]]) -> Any:
    if text in known:
        return known[text]()
    if text in ("True", "False"):
        return text == "True"
    try:
        return int(text)
    except ValueError:
        return text


def result_of(file: CaseFile, case: Case, known: Mapping[str, type[Pass]]) -> str:
    """What comes out, as text; empty when nothing changes."""
    try:
        parsed = parse_text("\n" * (case.first - 1) + "\n".join(case.graph))
    except TextError as error:
        raise CaseError(str(error)) from error
    check_graph(parsed.graph, Check.HASH | Check.ORIGIN)
    run = file.setting(case, "run")
    if run.startswith("fusion"):
        return _fused(parsed, run)
    return _rewritten(file, case, parsed, read_passes(run, known))


def _fused(parsed: Parsed, run: str) -> str:
    graph = parsed.graph
    _, algorithm, *options = run.split()
    given = {key: _option(value, {}) for key, _, value in (each.partition("=") for each in options)}
    result = fuse(graph, find_groups(graph, algorithm, GroupLimits(**given) if given else None))
    check_fused(result)
    lines = print_fused(result).splitlines()
    return "".join(f"{_with_names(line, parsed.names)}\n" for line in lines)


def _rewritten(file: CaseFile, case: Case, parsed: Parsed, passes: list[Pass]) -> str:
    graph, before = parsed.graph, structure(parsed.graph)
    probe = EquivalenceProbe(graph)
    compared = not file.setting(case, "outputs").startswith("not compared")
    if compared and not probe.comparable:
        raise CaseError(f"outputs are not comparable: {probe.why_not}; say 'outputs: not compared'")
    reports = run_passes(graph, passes, check=CheckLevel.INVARIANTS)
    if compared:
        probe.compare(graph, passes[-1].name, float(file.setting(case, "tolerance") or _TOLERANCE))
    rules = {rule: count for report in reports for rule, count in report.rules.items()}
    after = _described(parsed, passes, rules)
    _check_once_is_enough(graph, passes, again=file.setting(case, "again"))
    if not rules and structure(graph) == before:
        return ""
    return after


def _described(parsed: Parsed, passes: list[Pass], rules: Mapping[str, int]) -> str:
    """The graph, which rules were applied how often, and what became of which node; nodes that the
    case names by the names it gives them.
    """
    graph, names = parsed.graph, parsed.names
    lines = print_graph(graph, spelled=parsed.spelled).splitlines()
    if not any(isinstance(each, RemoveDeadNodes | GatherConsts) for each in passes):
        # Other passes leave constants that nothing reads any more to those two.
        unread = {
            f"%{node.id} "
            for nested in graph.nested()
            for node in nested
            if node.is_const and not nested.consumers(node)
        }
        lines = [line for line in lines if f"{line.split()[0]} " not in unread]
    known = set(parsed.spelled.values())
    lines = [_rounded(line, known) for line in lines] + list(_account(graph, rules))
    return "".join(f"{_with_names(line, names)}\n" for line in lines)


def _rounded(line: str, known: set[str]) -> str:
    """Constants that a pass computed, with few digits: the last ones differ between machines."""
    found = re.search(r"= Const\(\) \{(.*)\}", line)
    if found is None or found[1] in known:
        return line
    short = re.sub(r"-?\d+\.\d+(e[+-]\d+)?", lambda each: f"{float(each[0]):.5g}", found[1])
    return line.replace(found[1], short)


def _with_names(line: str, names: Mapping[int, str]) -> str:
    line = re.sub(r"%(\d+)", lambda found: f"%{names.get(int(found[1]), found[1])}", line)
    line = re.sub(
        r"from\[([\d,]+)\]",
        lambda found: f"from[{','.join(names.get(int(n), n) for n in found[1].split(','))}]",
        line,
    )
    own = line.split()[0].removeprefix("%")
    return line.removesuffix(f"  # {own}")


def _account(graph: Graph, rules: Mapping[str, int]) -> Iterator[str]:
    for rule, count in rules.items():
        yield f"applied {count} {rule!r}"
    yield from (line for line in history_lines(graph) if line.startswith(("edge ", "gone ")))


def _check_once_is_enough(graph: Graph, passes: list[Pass], again: str) -> None:
    """Running the passes again changes nothing, nor does removing what nothing uses."""
    once = structure(graph)
    if not again.startswith("changes"):
        reports = run_passes(graph, passes, check=CheckLevel.INVARIANTS)
        if any(report.changes for report in reports) or structure(graph) != once:
            raise CaseError("running the passes again changes the graph once more")
        run_passes(graph, (RemoveDeadNodes(), GatherConsts()), check=CheckLevel.INVARIANTS)
        if structure(graph) != once:
            raise CaseError("something is left that no output uses")
    check_graph(graph, Check.ALL)
