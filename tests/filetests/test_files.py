"""Every case of every file: the graph, run through what the file names, becomes the text below
it.
"""

from __future__ import annotations

import difflib
import functools
from pathlib import Path

import pytest

from tests.filetests.case_files import Case, CaseFile, all_files, read_cases
from tests.filetests.running import CaseError, pass_classes, result_of
from whence.errors import WhenceError

_HERE = Path(__file__).parent
_KNOWN = functools.cache(pass_classes)


@pytest.mark.parametrize(
    "path", list(all_files(_HERE)), ids=lambda path: str(path.relative_to(_HERE))
)
def test_file(path: Path, bless: bool) -> None:
    file = read_cases(path)
    wrong, differs = [], False
    for case in file.cases:
        try:
            why, case.expected = _run(file, case, bless)
        except (CaseError, WhenceError) as error:
            why = str(error)
        else:
            differs |= bool(why)
        wrong += [f"{path}:{case.line}: {case.title}\n{why}"] if why else []
    if bless:
        path.write_text(str(file), encoding="utf-8")
    # What cannot be run has to be mended: blessing would not change it.
    hint = ["If this is right: pytest tests/filetests --bless"] if differs else []
    assert not wrong, "\n\n".join([*wrong, *hint])


def _run(file: CaseFile, case: Case, bless: bool) -> tuple[str, str | None]:
    """In what a case differs from what it expects, and what it is to expect from now on."""
    found = result_of(file, case, _KNOWN())
    if bless or found == case.expected:
        return "", found
    if case.expected is None:
        return "the case has no result yet", None
    was, now = (each.splitlines() or ["unchanged"] for each in (case.expected, found))
    diff = difflib.unified_diff(was, now, "expected", "found", lineterm="")
    return "\n".join(diff), case.expected


def test_files_are_in_the_form_that_blessing_writes() -> None:
    """So that blessing one case leaves the others of its file alone."""
    for path in all_files(_HERE):
        assert path.read_text(encoding="utf-8") == str(read_cases(path)), path


def test_titles_tell_cases_apart() -> None:
    for path in all_files(_HERE):
        titles = [case.title for case in read_cases(path).cases]
        assert len(titles) == len(set(titles)), path
        assert titles, path


def _one_case(tmp_path: Path, text: str) -> str:
    path = tmp_path / "one.graph"
    path.write_text(text, encoding="utf-8")
    file = read_cases(path)
    try:
        return _run(file, file.cases[0], bless=False)[0]
    except (CaseError, WhenceError) as error:
        return str(error)


_CASE = """# About.

run: remove_no_ops

=== an identity leaves
%x f32[4] = Input()
%a = Identity(%x)
%b = Relu(%a)
%y = Output(%b)
"""


def test_a_wrong_result_is_shown_as_a_difference(tmp_path: Path) -> None:
    assert "the case has no result yet" in _one_case(tmp_path, _CASE)
    why = _one_case(tmp_path, _CASE + "--- unchanged\n")
    assert "-unchanged" in why
    assert "+%b f32[4] = Relu(%x) from[b]" in why


def test_what_cannot_be_read_is_told_with_its_line_in_the_file(tmp_path: Path) -> None:
    assert _one_case(tmp_path, _CASE.replace("Relu(%a)", "Relu(%a")).startswith("line 8, column")
    assert _one_case(tmp_path, _CASE.replace("remove_no_ops", "no_such")) == "no pass 'no_such'"
    why = _one_case(tmp_path, _CASE.replace("remove_no_ops", "remove_no_op"))
    assert why.startswith("no pass 'remove_no_op'; did you mean remove_no_ops")
    assert _one_case(tmp_path, _CASE.replace("Relu(%a)", "Relu(%w)")).count("line 8, column") == 1


def test_blessing_is_offered_only_where_it_would_help(tmp_path: Path) -> None:
    path = tmp_path / "one.graph"
    for text, offered in ((_CASE, True), (_CASE.replace("Relu(", "Rleu("), False)):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(AssertionError) as raised:
            test_file(path, bless=False)
        assert ("--bless" in str(raised.value)) == offered


def test_a_pass_that_changes_outputs_is_found(tmp_path: Path, monkeypatch) -> None:
    known = _KNOWN()

    def wrong(self, rewriter) -> None:
        graph = rewriter.graph
        graph.set_inputs(graph.outputs[0], [graph.inputs[0].ref()])

    monkeypatch.setattr(known["remove_no_ops"], "run", wrong)
    assert "changed output 'y' by" in _one_case(tmp_path, _CASE)
