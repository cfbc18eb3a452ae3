"""Programs of torch.export: what the user wrote is what the ledger says."""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whence
from tests.pytorch import require_torch
from whence.attribution.modules import find_modules
from whence.cli.why import find_source
from whence.errors import InputError, ModelError, UnsupportedError
from whence.frontends.torch.exported import export_module, read_exported
from whence.provenance import Reason

torch = require_torch()
Module: Any = torch.nn.Module


class Block(Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.bn = torch.nn.BatchNorm2d(8)
        torch.nn.init.normal_(self.bn.running_mean)

    def forward(self, x: Any) -> Any:
        y = self.conv(x)
        y = self.bn(y)
        return y.relu_()


class Net(Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = Block()
        self.head = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(8, 4))

    def forward(self, x: Any) -> dict[str, Any]:
        y = self.stem(x)
        first, second = y.split(4, 1)
        y = torch.cat([second, first], 1).mean((2, 3))
        return {"scores": self.head(y.view(x.shape[0], -1)), "size": x.shape[1]}


@pytest.fixture
def net() -> Any:
    torch.manual_seed(0)
    return Net().eval()


def line_of(function: Any, text: str) -> int:
    """The line of this file that holds `text` in a function's source."""
    lines, first = inspect.getsourcelines(function)
    return first + next(index for index, line in enumerate(lines) if text in line)


def test_source_operators_have_module_and_line(net: Any) -> None:
    program = export_module(net, (torch.randn(2, 3, 6, 6),))
    graph = read_exported(program)
    sources = {source.name: source for source in graph.ledger.sources}
    traced = [node.name for node in program.graph.nodes if node.op == "call_function"]
    assert list(sources) == traced
    conv, norm = sources["conv2d"], sources["batch_norm"]
    assert (conv.op, conv.module) == ("aten.conv2d", "stem.conv")
    assert (norm.op, norm.module) == ("aten.batch_norm", "stem.bn")
    file = str(Path(__file__))
    assert conv.line == f"{file}:{line_of(Block.forward, 'self.conv(x)')}"
    assert norm.line == f"{file}:{line_of(Block.forward, 'self.bn(y)')}"
    assert "in forward" in conv.stack
    assert find_modules(graph)[conv.id].path == "stem.conv"


def test_folded_normalisation_shows_both(net: Any) -> None:
    graph = read_exported(export_module(net, (torch.randn(2, 3, 6, 6),)))
    by_name = {source.name: source.id for source in graph.ledger.sources}
    whence.prepare(graph)
    assert graph.ledger.lost() == []
    wanted = {by_name["conv2d"], by_name["batch_norm"], by_name["relu_"]}
    assert any(wanted <= node.origin for node in graph if "Conv" in node.op)
    assert "BatchNormalization" not in graph.op_counts


def test_operators_are_found_by_module_and_line(net: Any) -> None:
    graph = read_exported(export_module(net, (torch.randn(2, 3, 6, 6),)))
    modules = find_modules(graph)

    def found(wanted: str) -> str:
        return find_source(graph.ledger, wanted, modules).name

    assert found("stem.conv") == "conv2d"
    assert found("stem.bn") == "batch_norm"
    assert found(f"test_exported.py:{line_of(Block.forward, 'self.conv(x)')}") == "conv2d"
    assert found(f"{__file__}:{line_of(Block.forward, 'self.bn(y)')}") == "batch_norm"
    both = line_of(Net.forward, "torch.cat")
    with pytest.raises(ModelError, match=f"line 'test_exported.py:{both}' has 2 operators"):
        found(f"test_exported.py:{both}")


def test_what_picks_a_result_is_accounted_for(net: Any) -> None:
    graph = read_exported(export_module(net, (torch.randn(2, 3, 6, 6),)))
    names = {source.id: source.name for source in graph.ledger.sources}
    picked = [
        names[number]
        for stone in graph.ledger.tombstones
        if stone.reason is Reason.ABSORBED
        for number in stone.origin
    ]
    assert picked == ["getitem", "getitem_1"]


def test_parameters_are_read_where_they_lie(net: Any) -> None:
    graph = read_exported(export_module(net, (torch.randn(2, 3, 6, 6),)))
    consts = {node.name: node.value for node in graph if node.value is not None and node.name}
    assert set(consts) == {name for name in net.state_dict() if "num_batches" not in name}
    for name, tensor in net.state_dict().items():
        if name in consts:
            assert consts[name].ctypes.data == tensor.data_ptr(), name


def test_a_module_gives_what_pytorch_gives(net: Any) -> None:
    x = torch.randn(2, 3, 6, 6)
    model = whence.compile(net, (x,), threads=1)
    with torch.no_grad():
        expected = net(x)
    found = model(x)
    assert found.keys() == expected.keys()
    assert found["size"] == 3
    torch.testing.assert_close(found["scores"], expected["scores"], rtol=1e-4, atol=1e-5)
    # Arrays in, arrays out.
    arrays = model(x.numpy())
    np.testing.assert_array_equal(arrays, found["scores"].numpy())
    with pytest.raises(InputError, match="other arguments"):
        model(x, x)


def test_open_dimensions_have_the_names_of_the_user(net: Any) -> None:
    batch, height = torch.export.Dim("batch"), torch.export.Dim("height", min=2)
    x = torch.randn(2, 3, 6, 6)
    model = whence.compile(net, (x,), dynamic_shapes=({0: batch, 2: height},), threads=1)
    assert str(model.inputs[0].type) == "f32[batch,3,height,6]"
    for shape in ((2, 3, 6, 6), (5, 3, 4, 6)):
        x = torch.randn(*shape)
        with torch.no_grad():
            expected = net(x)["scores"]
        torch.testing.assert_close(model(x)["scores"], expected, rtol=1e-4, atol=1e-5)


def test_arithmetic_on_open_sizes() -> None:
    class Sizes(Module):
        def forward(self, x: Any) -> Any:
            rows = x.shape[0]
            steps = torch.arange(rows * 2 + 1) // rows
            return x.view(rows * 2, 2) * rows, x.sum() / rows, steps, torch.zeros(rows + 1)

    x = torch.randn(6, 4)
    shapes = ({0: torch.export.Dim("rows", min=2)},)
    graph = read_exported(export_module(Sizes().eval(), (x,), dynamic_shapes=shapes))
    for rows in (6, 9):
        x = torch.randn(rows, 4)
        for ours, theirs in zip(graph.run([x.numpy()]), Sizes()(x), strict=True):
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5, atol=1e-6)


def test_rounding_of_open_sizes() -> None:
    class Rounded(Module):
        def forward(self, x: Any) -> Any:
            half, zero = x.shape[0] / 2, x.sum() * 0
            return zero + math.ceil(half), zero + math.floor(-half), zero + math.trunc(-half)

    shapes = ({0: torch.export.Dim("rows", min=2)},)
    graph = read_exported(export_module(Rounded().eval(), (torch.randn(7, 2),), None, shapes))
    for rows in (6, 9):
        made = graph.run([np.ones((rows, 2), np.float32)])
        assert made == [math.ceil(rows / 2), math.floor(-rows / 2), math.trunc(-rows / 2)]


def test_indices_of_open_sizes() -> None:
    class Pick(Module):
        def forward(self, x: Any, i: Any) -> Any:
            return x[i, i[:, :1]]

    x, i = torch.randn(5, 5), torch.randint(0, 5, (3, 2))
    shapes = (None, {0: torch.export.Dim("rows", min=2)})
    graph = read_exported(export_module(Pick().eval(), (x, i), dynamic_shapes=shapes))
    i = torch.randint(0, 5, (4, 2))
    np.testing.assert_array_equal(graph.run([x.numpy(), i.numpy()])[0], x[i, i[:, :1]].numpy())


def test_a_buffer_that_is_written_is_state() -> None:
    class Counter(Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x: Any) -> Any:
            self.count.add_(1)
            return x + self.count

    model = whence.compile(Counter().eval(), (torch.zeros(2),), threads=1)
    assert [model(torch.zeros(2)).tolist() for _ in range(2)] == [[1.0, 1.0], [2.0, 2.0]]
    model.reset()
    assert model(torch.zeros(2)).tolist() == [1.0, 1.0]


def test_arguments_by_name_and_fixed_ones() -> None:
    class Scaled(Module):
        def forward(self, x: Any, *, scale: Any, power: int = 2) -> Any:
            return x**power * scale

    x, scale = torch.randn(3), torch.tensor(2.0)
    model = whence.compile(Scaled().eval(), (x,), kwargs={"scale": scale, "power": 3}, threads=1)
    torch.testing.assert_close(model(x, power=3, scale=scale), x**3 * scale)
    with pytest.raises(InputError, match="'power' is 2, and the model was exported for 3"):
        model(x, scale=scale, power=2)
    with pytest.raises(InputError, match="by name scale, power"):
        model(x, scale=scale)


def test_tensors_by_name_whatever_the_module_was_exported_with() -> None:
    class Affine(Module):
        def forward(self, x: Any, scale: Any, power: int = 2) -> Any:
            return {"y": x**power * scale}

    x, scale = torch.randn(3), torch.tensor(2.0)
    model = whence.compile(Affine().eval(), (x, scale, 3), threads=1)
    for found in (
        model(x, scale, 3),
        model({"x": x, "scale": scale}),
        model(power=3, scale=scale, x=x),
        model(x, power=3, scale=scale),
    ):
        torch.testing.assert_close(found["y"], x**3 * scale)
    with pytest.raises(InputError, match="'power' is 2, and the model was exported for 3"):
        model(x, scale=scale, power=2)
    for args, kwargs in (((x,), {"scale": scale}), (({"x": x},), {}), ((), {"z": x})):
        with pytest.raises(InputError, match="it takes x: f32"):
            model(*args, **kwargs)


def test_a_module_is_profiled_with_the_arguments_of_a_call(net: Any) -> None:
    x = torch.randn(2, 3, 6, 6)
    for inputs in ((x,), {"x": x}, x):
        profile = whence.profile(net, inputs, runs=2, warmup=1, threads=1)
        assert profile.coverage.lost == 0
        assert {row.module for row in profile.sources} >= {"stem.conv", "stem.bn", "head.1"}
    with pytest.raises(InputError, match=r"whence.profile\(module, \(x,\)\)"):
        whence.profile(net)
    with pytest.raises(InputError, match=r"torch.export.export\(module, args\)"):
        whence.profile(net, (x,), exact=True)


def test_a_call_does_not_go_through_the_list_of_parameters(
    net: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signature has a line for each of them, hundreds in large modules."""
    x = torch.randn(2, 3, 6, 6)
    program = export_module(net, (x,))
    model = whence.compile(program, threads=1)
    expected = model(x)

    def refuse(_: Any) -> Any:
        raise AssertionError("the signature was read in a call")

    monkeypatch.setattr(type(program), "graph_signature", property(refuse))
    torch.testing.assert_close(model(x), expected)


def test_a_saved_program(net: Any, tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    x = torch.randn(2, 3, 6, 6)
    program = export_module(net, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(program, path)
    graph = whence.load(path, shapes={"x": (4, 3, 6, 6)})
    assert str(graph.inputs[0].type) == "f32[4,3,6,6]"
    assert {source.module for source in graph.ledger.sources} >= {"stem.conv", "stem.bn", "head.1"}
    with torch.no_grad():
        expected = net(x)["scores"].numpy()
    np.testing.assert_allclose(
        whence.load(path).run([x.numpy()])[0], expected, rtol=1e-4, atol=1e-5
    )


def test_an_operator_without_mapping_is_named() -> None:
    class Odd(Module):
        def forward(self, x: Any) -> Any:
            return torch.special.bessel_j0(x)

    class Outer(Module):
        def __init__(self) -> None:
            super().__init__()
            self.odd = Odd()

        def forward(self, x: Any) -> Any:
            return self.odd(x)

    with pytest.raises(
        UnsupportedError, match=r"aten\.special_bessel_j0.*module 'odd'.*test_exported.py:\d+"
    ):
        whence.compile(Outer().eval(), (torch.eye(3),))


def test_what_cannot_be_compiled_is_refused_in_words(net: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="example inputs"):
        whence.compile(net)
    with pytest.raises(InputError, match="training mode"):
        whence.compile(Net(), (torch.randn(2, 3, 6, 6),))
    with pytest.raises(InputError, match="for a module of PyTorch"):
        whence.compile(read_exported(export_module(net, (torch.randn(2, 3, 6, 6),))), (1,))
    with pytest.raises(InputError, match="for a module of PyTorch"):
        whence.compile(tmp_path / "model.onnx", (torch.randn(2, 3, 6, 6),))

    class Breaks(Module):
        def forward(self, x: Any) -> Any:
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(
        UnsupportedError, match=r"torch\.export cannot trace Breaks.*torch\.compile"
    ):
        whence.compile(Breaks().eval(), (torch.ones(2),))

    class Writes(Module):
        def forward(self, x: Any) -> Any:
            return x.add_(1)

    with pytest.raises(UnsupportedError, match="writes to its argument 'x'"):
        whence.compile(Writes().eval(), (torch.ones(2),))
    broken = tmp_path / "broken.pt2"
    broken.write_bytes(b"no archive")
    with pytest.raises(ModelError, match=r"no program of torch\.export"):
        whence.load(broken)


@pytest.mark.parametrize("kind", ["BatchNorm2d", "Dropout"])
def test_a_module_in_training_mode_is_refused(kind: str) -> None:
    module = {"BatchNorm2d": torch.nn.BatchNorm2d(3), "Dropout": torch.nn.Dropout(0.5)}[kind]
    program = torch.export.export(module.train(), (torch.randn(2, 3, 6, 6),))
    with pytest.raises(UnsupportedError, match=r"as in training; call \.eval\(\) first"):
        read_exported(program)
