"""torch.compile(backend="whence")."""

from __future__ import annotations

import gc
import inspect
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import whence
from tests.pytorch import require_torch
from whence.errors import InputError
from whence.frontends.program_place import line_of
from whence.frontends.torch.sources import dotted
from whence.interop.torch import dynamo, parameters
from whence.interop.torch.compiled_graph import CompiledGraph
from whence.interop.torch.dynamo import compile_graph_module
from whence.interop.torch.effects import is_free_of_effects
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


@pytest.mark.parametrize(
    "change",
    [
        lambda linear: linear.weight.mul_(2),
        lambda linear: setattr(linear.weight, "data", torch.full((8, 8), 0.5)),
        lambda linear: linear.weight.set_(torch.full((8, 8), 0.5)),
        lambda linear: linear.load_state_dict(torch.nn.Linear(8, 8).state_dict()),
        lambda linear: linear.load_state_dict(torch.nn.Linear(8, 8).state_dict(), assign=True),
        lambda linear: setattr(linear, "weight", torch.nn.Parameter(torch.full((8, 8), 0.5))),
    ],
    ids=["in place", "data", "set_", "load_state_dict", "assign", "replaced"],
)
@pytest.mark.parametrize("is_native", [True, False], ids=["in C", "in Python"])
def test_each_change_of_a_parameter_is_noticed(
    change: Any, is_native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert parameters.native_check() is not None
    if not is_native:
        monkeypatch.setattr(parameters, "native_check", lambda: None)
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
    model, x = _compiled(module), torch.randn(3, 8)
    with torch.no_grad():
        before = model(x)
        assert torch.equal(model(x), before)
        change(module[0])
        _same(model(x), module(x))
        assert not torch.allclose(model(x), before)


def test_a_parameter_at_the_address_of_one_that_is_gone() -> None:
    """Parameters with gaps are copied, so that nothing else keeps their memory."""
    module = torch.nn.Linear(8, 8, bias=False).eval()
    model, x = _compiled(module), torch.randn(3, 8)
    with torch.no_grad():
        for _ in range(8):
            module.weight.data = torch.randn(8, 8).T
            _same(model(x), module(x))


def test_a_parameter_stays_the_same_tensor_to_pytorchs_libraries() -> None:
    """What is compared is asked of the tensor that the parameter was when it was compiled."""
    module = torch.nn.Linear(8, 8).eval()
    model = _compiled(module)
    with torch.no_grad():
        model(torch.randn(3, 8))
        with pytest.raises(RuntimeError, match="weakref"):
            torch.utils.swap_tensors(module.weight, torch.nn.Parameter(torch.ones(8, 8)))


@pytest.mark.parametrize(
    "change",
    [
        lambda linear: setattr(linear.weight, "data", torch.randn(8, 8)),
        lambda linear: setattr(linear, "weight", torch.nn.Parameter(torch.randn(8, 8))),
    ],
    ids=["data", "replaced"],
)
def test_what_was_compiled_for_parameters_that_are_gone_is_dropped(change: Any) -> None:
    made: list[Any] = []

    def counted(graph: Any) -> Any:
        executable = whence.compile(graph, threads=1)
        made.append(weakref.ref(executable))
        return executable

    module = torch.nn.Linear(8, 8).eval()
    backend = lambda graph, inputs: compile_graph_module(graph, inputs, counted)  # noqa: E731
    model, x = torch.compile(module, backend=backend), torch.randn(3, 8)
    with torch.no_grad():
        for _ in range(4):
            change(module)
            model(x)
    gc.collect()
    assert len(made) == 4
    assert sum(each() is not None for each in made) == 1


def test_two_modules_with_the_same_code_keep_what_was_compiled_for_each() -> None:
    count = 0

    def counted(graph: Any) -> Any:
        nonlocal count
        count += 1
        return whence.compile(graph, threads=1)

    class Layer(Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return self.linear(x).relu()

    def backend(graph: Any, inputs: Any) -> Any:
        return compile_graph_module(graph, inputs, counted)

    pair = [Layer().eval(), Layer().eval()]
    models, x = [torch.compile(each, backend=backend) for each in pair], torch.randn(3, 8)
    with torch.no_grad():
        for _ in range(3):
            for model, module in zip(models, pair, strict=True):
                _same(model(x), module(x))
    assert count == 2


def _function_of(module: Any, *args: Any) -> Any:
    """What the backend returned for the one graph of a call."""
    found: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        found.append(compile_fx(graph, inputs, options={"threads": 1}))
        return found[-1]

    with torch.no_grad():
        given = [each.clone() if isinstance(each, torch.Tensor) else each for each in args]
        expected = module(*given)
        _same(torch.compile(module, backend=backend)(*args), expected)
    _same(args, given)
    (only,) = found
    return only


def _is_direct(function: Any) -> bool:
    return isinstance(getattr(function, "__self__", None), CompiledGraph)


def _add_in_place(x: Any, y: Any) -> Any:
    x.add_(1)
    return x * y


def test_a_graph_without_effects_is_called_without_pytorchs_wrapper() -> None:
    module, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval(), torch.ones(3, 8)
    assert _is_direct(_function_of(module, x))
    assert _is_direct(_function_of(lambda x, n: (x * n, x + n), x, 3))


def test_writing_to_arguments_is_left_to_pytorch() -> None:
    assert not _is_direct(_function_of(_add_in_place, torch.randn(3, 8), torch.randn(3, 8)))


def test_a_result_that_is_a_view_of_an_argument() -> None:
    def written(x: Any) -> Any:
        x.add_(1)
        return x[1:]

    x = torch.ones(3)
    with torch.no_grad():
        part = torch.compile(written, backend=compile_fx)(x)
        x.zero_()
    assert part.tolist() == [0, 0]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ((y := x * 2), y[1:]),
        lambda x: ((y := x * 2), y.T),
        lambda x: ((y := x * 2), y.view(-1), 3),
        lambda x: ((y := x * 2)[:2], y[1:]),
        lambda x: ((y := x * 2)[1:, 1], y[:, 1:3], x + 1),
        lambda x: tuple((x * 2).chunk(2, 1)),
        lambda x: ((y := x * 2), y.detach()),
    ],
    ids=["rows", "transposed", "flat", "overlap", "columns", "chunks", "same"],
)
def test_results_that_share_memory_still_do(function: Any) -> None:
    x = torch.randn(3, 4)
    model = torch.compile(function, backend=compile_fx)
    with torch.no_grad():
        for which in range(2):
            found, expected = model(x), function(x)
            _same(found, expected)
            found[which].zero_()
            expected[which].zero_()
            _same(found, expected)


def test_where_nothing_is_known_of_effects_pytorchs_wrapper_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch._guards.TracingContext, "get", object)
    module, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval(), torch.ones(3, 8)
    lowered = torch.fx.symbolic_trace(module).graph
    assert not is_free_of_effects(lowered, [x])


def test_a_graph_that_is_wrapped_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PyTorch's notes on effects are not found, every graph is."""
    monkeypatch.setattr(dynamo, "is_free_of_effects", lambda *_: False)
    module, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval(), torch.ones(3, 8)
    assert not _is_direct(_function_of(module, x))


def test_one_tensor_given_twice_and_written_to() -> None:
    model, x = torch.compile(_add_in_place, backend=compile_fx), torch.ones(3)
    with torch.no_grad():
        assert model(x, x).tolist() == [4, 4, 4]
    assert x.tolist() == [2, 2, 2]


def test_arguments_that_overlap_and_are_written_to_are_refused_in_words() -> None:
    model, x = torch.compile(_add_in_place, backend=compile_fx), torch.ones(4)
    with torch.no_grad(), pytest.raises(Exception, match=r"'as_strided_scatter'.*no mapping"):
        model(x[:3], x[1:])


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(4, 6).T,
        lambda: torch.randn(8, 12)[::2, ::2].T,
        lambda: torch.randn(6, 4).requires_grad_(),
        lambda: torch.randn(6, 4).to(torch.bfloat16),
        lambda: torch.randn(6, 4, dtype=torch.complex64).conj().imag,
    ],
    ids=["transposed", "gaps", "with gradient", "bfloat16", "negative"],
)
def test_inputs_in_other_forms(make: Any) -> None:
    def doubled(x: Any) -> Any:
        return x.detach() * 2 + 1

    x = make()
    with torch.no_grad():
        _same(torch.compile(doubled, backend=compile_fx)(x), doubled(x))


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
