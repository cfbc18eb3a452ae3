"""Every public name has a docstring with an example, and the examples are true."""

from __future__ import annotations

import doctest
import enum
import inspect
import pathlib
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whence
import whence.errors
from tests.docs.models import write_models

API = Path(__file__).resolve().parents[2] / "docs" / "reference" / "api.md"
_ENTRY = re.compile(r"^::: (\S+)(?:\n    options: \{members: \[(.*?)\]\})?", re.M)
_HOW = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def documented() -> Iterator[tuple[str, Any]]:
    """What the page about Python lists, members too."""
    for entry in _ENTRY.finditer(API.read_text(encoding="utf-8")):
        path, members = entry[1], (entry[2] or "").split(", ")
        if path == "whence.errors":
            continue
        module, _, name = path.rpartition(".")
        value = getattr(import_module(module), name)
        yield path, value
        for member in filter(None, members):
            yield f"{path}.{member}", inspect.getattr_static(value, member)


def public() -> dict[str, Any]:
    found = {f"whence.{name}": getattr(whence, name) for name in whence.__all__}
    found.update(
        (f"whence.errors.{name}", value)
        for name, value in vars(whence.errors).items()
        if inspect.isclass(value) and value.__module__ == "whence.errors"
    )
    found.update(documented())
    # One thing has one entry, under its shortest name.
    by_value = {id(found[name]): name for name in sorted(found, key=len, reverse=True)}
    return {name: found[name] for name in by_value.values()}


PUBLIC = public()


def examples_of(name: str) -> list[doctest.DocTest]:
    value = PUBLIC[name]
    known = {"whence": whence, "np": np, "pathlib": pathlib}
    text = inspect.getdoc(value) or ""
    test = doctest.DocTestParser().get_doctest(text, dict(known), name, None, 0)
    return [test] if test.examples else []


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_it_has_an_example_that_is_true(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert inspect.getdoc(PUBLIC[name]), f"{name} has no docstring"
    tests = examples_of(name)
    assert tests, f"the docstring of {name} has no example"
    write_models(tmp_path)
    monkeypatch.chdir(tmp_path)
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=_HOW)
    for test in tests:
        # What is printed to whoever reads the page is text, so it is indented: Markdown would take
        # the prompt for a quotation.
        assert all(example.indent for example in test.examples), f"indent the example of {name}"
        runner.run(test, out=told.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(told)


def test_every_public_name_is_on_the_page() -> None:
    listed = {id(value) for _, value in documented()}
    errors = {name for name in whence.__all__ if name in vars(whence.errors)}
    missing = [
        name
        for name in whence.__all__
        if name not in errors and id(getattr(whence, name)) not in listed
    ]
    assert missing == []


def members() -> Iterator[tuple[str, Any]]:
    """What public classes have, also what the page does not list."""
    for name in whence.__all__:
        value = getattr(whence, name)
        for member, each in vars(value).items() if inspect.isclass(value) else ():
            is_ours = inspect.isfunction(each) or isinstance(
                each, (property, classmethod, staticmethod)
            )
            if is_ours and not member.startswith("_"):
                yield f"{name}.{member}", each


def test_every_method_and_property_of_a_public_class_has_a_docstring() -> None:
    assert [name for name, each in members() if not inspect.getdoc(each)] == []


def test_values_of_enumerations_are_inherited_from_no_one() -> None:
    """An enumeration without a docstring would show that of `IntFlag`."""
    for name, value in PUBLIC.items():
        if inspect.isclass(value) and issubclass(value, enum.Enum):
            assert value.__doc__ not in (enum.IntFlag.__doc__, enum.IntEnum.__doc__), name
