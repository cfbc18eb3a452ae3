"""A spec becomes cells; what it says wrongly is said back."""

from __future__ import annotations

import dataclasses

import pytest

from tests.fleet.models import tiny_model
from whence.errors import InputError
from whence.fleet.cell import Cell
from whence.fleet.spec import combinations, read_spec
from whence.fleet.sweep import tasks_of


@pytest.fixture
def folder(tmp_path):
    for number, name in enumerate(("a", "b")):
        tiny_model(tmp_path / "models" / f"{name}.onnx", number)
    return tmp_path


def spec_of(folder, text):
    file = folder / "sweep.toml"
    file.write_text(text, encoding="utf-8")
    return read_spec(file)


def test_a_matrix_is_all_of_everything(folder):
    spec = spec_of(
        folder,
        """
        models = ["models/*.onnx"]
        engines = ["whence", "onnxruntime"]
        threads = [1, 2]
        targets = ["", "x86-64-v2"]
        [shapes.a]
        x = [[16, 64], [8, 64]]
        [limits]
        timeout = 5
        memory_gib = 2
        """,
    )
    found = list(combinations(spec))
    # Targets are ours alone: (2 shapes of a + 1 of b) × 2 threads × (2 targets + 1 other engine).
    assert len(found) == 3 * 2 * 3
    assert spec.limits.timeout == 5
    assert spec.limits.memory == 2 << 30
    shapes = {str(shapes) for path, *_, shapes, _, _ in found if path.stem == "a"}
    assert shapes == {"{'x': (16, 64)}", "{'x': (8, 64)}"}


def test_a_list_of_one_may_be_that_one(folder):
    spec = spec_of(folder, 'models = "models/a.onnx"\nthreads = 2\nengines = "onnxruntime"')
    assert (len(spec.models), spec.threads, spec.engines) == (1, (2,), ("onnxruntime",))


def test_a_name_with_brackets_may_be_that_of_a_file(folder):
    tiny_model(folder / "models" / "b[1].onnx")
    assert len(spec_of(folder, 'models = ["models/b[1].onnx"]').models) == 1


def test_cells_are_known_by_what_they_are_not_by_where_they_lie(folder):
    (first,) = [
        t.cell for t in tasks_of(spec_of(folder, 'models = ["models/a.onnx"]'), "n", folder)
    ]
    moved = folder / "elsewhere" / "renamed.onnx"
    moved.parent.mkdir()
    moved.write_bytes((folder / "models" / "a.onnx").read_bytes())
    (second,) = [
        t.cell for t in tasks_of(spec_of(folder, 'models = ["elsewhere/*.onnx"]'), "n", folder)
    ]
    assert first.key == second.key
    assert first.model != second.model


@pytest.mark.parametrize(
    "change",
    [
        {"model_sha256": "1" * 64},
        {"engine": "onnxruntime"},
        {"engine_version": "2"},
        {"target": "x86-64-v3"},
        {"threads": 3},
        {"shapes": {"x": (1,)}},
        {"version": "2"},
        {"machine": "icelake"},
        {"night": "2026-01-02"},
    ],
)
def test_every_fact_of_a_cell_is_in_its_key(change):
    cell = Cell("m", "0" * 64, night="2026-01-01")
    assert dataclasses.replace(cell, **change).key != cell.key


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models = [", "is not TOML"),
        ("models = []", "at least one model"),
        ('models = ["none/*.onnx"]', "matches no model"),
        ('models = ["models/none.onnx"]', "no such file"),
        ('models = ["models/a.onnx"]\nthread = [1]', "'thread', which a sweep does not know"),
        ('models = ["models/a.onnx"]\nthreads = ["two"]', "not a whole number"),
        ('models = ["models/a.onnx"]\nthreads = [-1]', "-1 threads"),
        ('models = ["models/a.onnx"]\ntargets = ["; rm -rf"]', "not the name of a target"),
        ('models = ["models/a.onnx"]\nversions = ["9.9"]', "no version of whence"),
        ('models = ["models/a.onnx"]\nengines = ["abacus"]', "'abacus' is not installed"),
        ('models = ["models/a.onnx"]\n[shapes.z]\nx = [1]', "none of the models"),
        ('models = ["models/a.onnx"]\n[limits]\ntimeout = "soon"', "not a number"),
        ('models = ["models/a.onnx"]\n[limits]\nmemory_gib = inf', "memory_gib is inf"),
        ('models = ["models/a.onnx"]\n[limits]\ntimeout = nan', "timeout is nan"),
        ('models = ["models/a.onnx"]\n[limits]\nspeed = 1', "'speed'"),
        ('models = ["models/a.onnx"]\nengines = [1]', "engines is not a list of texts"),
    ],
)
def test_what_is_wrong_is_said(folder, text, words):
    with pytest.raises(InputError, match=words):
        tasks_of(spec_of(folder, text), "", folder / "table")
