"""torch.compile(backend="whence")."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import whence
from tests.pytorch import require_torch
from whence.errors import InputError
from whence.frontends.program_place import line_of
from whence.frontends.torch.places import dotted
from whence.torch_backend import compile_fx

torch = require_torch()
Module: Any = torch.nn.Module


class Net(Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.bn = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Sequential(torch.nn.Linear(8, 4))
        self.register_buffer("count", torch.zeros(()))
        self.seen: list[int] = []

    def forward(self, x: Any) -> Any:
        y = self.bn(self.conv(x)).relu_()
        torch._dynamo.graph_break()
        self.count.add_(1)
        y = y.mean((2, 3)).view(x.shape[0], -1)
        return self.head(y), {"wide": y * x.shape[2], "count": self.count + 0}, y.T


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _compiled(module: Any, **options: Any) -> Any:
    return torch.compile(module, backend=compile_fx, options={"threads": 1, **options})


def _same(found: Any, expected: Any) -> None:
    leaves = torch.utils._pytree.tree_leaves
    for ours, theirs in zip(leaves(found), leaves(expected), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def _eager(module: Any, x: Any) -> Any:
    """What the module itself gives, with the effect of one call on its buffer."""
    module.count.sub_(1)
    return module(x)


def test_a_module_with_a_graph_break_and_effects() -> None:
    module = Net().eval()
    model = _compiled(module)
    with torch.no_grad():
        for batch in (2, 2, 3, 5):
            x = torch.randn(batch, 3, 6, 6)
            _same(model(x), _eager(module, x))
    assert module.count == 4


def test_weights_that_change_are_noticed() -> None:
    module = Net().eval()
    model, x = _compiled(module), torch.randn(2, 3, 6, 6)
    with torch.no_grad():
        before = model(x)[0]
        module.conv.weight.mul_(2)
        _same(model(x), _eager(module, x))
        module.load_state_dict(Net().state_dict())
        after = model(x)
        _same(after, _eager(module, x))
        assert not torch.equal(before, after[0])
        module.head[0].weight.data = torch.ones(4, 8)
        _same(model(x), _eager(module, x))


def test_inference_mode() -> None:
    module = Net().eval()
    model, x = _compiled(module), torch.randn(2, 3, 6, 6)
    with torch.inference_mode():
        _same(model(x), _eager(module, x))


def test_weights_made_under_inference_mode_have_no_versions() -> None:
    with torch.inference_mode():
        module = Net().eval()
        model, x = _compiled(module), torch.randn(2, 3, 6, 6)
        for _ in range(2):
            _same(model(x), _eager(module, x))
        module.load_state_dict(Net().state_dict(), assign=True)
        _same(model(x), _eager(module, x))


def test_training_is_refused() -> None:
    model = _compiled(Net().eval())
    with pytest.raises(
        torch._dynamo.exc.BackendCompilerFailed, match="whence runs inference"
    ) as found:
        model(torch.randn(2, 3, 6, 6))
    assert isinstance(found.value.__cause__ or found.value.inner_exception, InputError)
    assert "conv.weight" in str(found.value)


def test_training_mode_is_refused_without_gradients_too() -> None:
    """Batch statistics and dropout are of training, whether or not gradients are recorded."""
    x = torch.randn(2, 3, 6, 6)
    for module in (torch.nn.BatchNorm2d(3), torch.nn.Dropout(0.5)):
        with (
            torch.no_grad(),
            pytest.raises(Exception, match=r"as in training; call \.eval\(\) first"),
        ):
            _compiled(module.train())(x)


def test_options() -> None:
    with (
        torch.no_grad(),
        pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="no option 'speed'"),
    ):
        _compiled(Net().eval(), speed=11)(torch.randn(2, 3, 6, 6))


def test_a_function_and_sizes_as_arguments() -> None:
    def scaled(x: Any, n: int) -> Any:
        return torch.cat([x, x * n], 0)[: n + 1], x.shape[0] * n

    model = torch.compile(scaled, backend=compile_fx, dynamic=True)
    with torch.no_grad():
        for n in (2, 3, 7):
            x = torch.randn(4, 2)
            _same(model(x, n), scaled(x, n))


def test_tensors_made_by_the_traced_code() -> None:
    def shifted(x: Any) -> Any:
        return x + torch.tensor([1.0, 2.0]) * torch.as_tensor([[3.0]])

    x = torch.randn(4, 2)
    with torch.no_grad():
        _same(torch.compile(shifted, backend=compile_fx)(x), shifted(x))


def test_the_backend_is_registered() -> None:
    from importlib.metadata import entry_points

    (found,) = [
        each for each in entry_points(group="torch_dynamo_backends") if each.name == "whence"
    ]
    assert found.load() is compile_fx


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("L['self']._modules['conv']._parameters['weight']", "conv.weight"),
        ("L['self']._modules['fc']._modules['0']._buffers['mean']", "fc.0.mean"),
        ("L['self'].layer1[0].conv", "layer1.0.conv"),
        ("L['x']", "x"),
        ("G['table']", "table"),
    ],
)
def test_paths_of_modules(name: str, path: str) -> None:
    assert dotted(name) == path


def test_the_line_is_the_innermost_outside_pytorch() -> None:
    stack = (
        'File "/home/me/net.py", line 7, in forward\n    y = self.body(x)\n'
        'File "/env/lib/site-packages/timm/models/resnet.py", line 12, in forward\n'
        '    self.conv(x)\nFile "/env/lib/site-packages/torch/nn/modules/conv.py", line 9, in forward'
    )
    assert line_of(stack) == "/env/lib/site-packages/timm/models/resnet.py:12"
    assert line_of('File "torch/fx/passes/runtime_assert.py", line 24, in insert') == ""


class Inner(Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(16, 16)
        self.second = torch.nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.second(x).relu()


def test_a_profile_by_line_and_module_with_graph_breaks() -> None:
    module = torch.nn.Sequential(Inner(), Inner()).eval()
    profile = whence.profile(_compiled(module), (torch.randn(4, 16),), runs=3, warmup=1)
    assert profile.attributed_ns + sum(profile.residual_ns.values()) == profile.wall_ns
    assert sum(profile.runs_ns) == profile.wall_ns
    assert "python" in profile.residual_ns
    lines = {row.line.rpartition("/")[2] for row in profile.sources if row.time_ns}
    wanted = {line_in(Inner.forward, "self.first(x)"), line_in(Inner.forward, "self.second(x)")}
    assert lines == {f"test_dynamo.py:{number}" for number in wanted}
    assert {group.key for group in profile.by("module")} >= {
        "0.first",
        "0.second",
        "1.first",
        "1.second",
    }
    breaks = [note for note in profile.notes if note.startswith("graph break at")]
    assert len(breaks) == 2
    where = f"test_dynamo.py:{line_in(Inner.forward, 'graph_break()')}: Call to"
    assert all(where in note for note in breaks)
    assert len({row.id for row in profile.sources}) == len(profile.sources)
    kernels = {row.id for row in profile.kernels}
    assert {kernel for row in profile.sources for kernel in row.kernels} <= kernels
    assert profile.coverage.lost == 0
    assert profile.coverage.source_ops == len(profile.sources)


def line_in(function: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(index for index, line in enumerate(lines) if text in line)


def test_a_profile_needs_inputs_and_whence() -> None:
    module = torch.nn.Linear(2, 2).eval()
    with pytest.raises(InputError, match="profiled with inputs"):
        whence.profile(_compiled(module))
    with pytest.raises(InputError, match="another backend"):
        whence.profile(torch.compile(module, backend="eager"), torch.zeros(1, 2))
