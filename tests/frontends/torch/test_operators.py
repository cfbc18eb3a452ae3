"""Every group of ATen operators against PyTorch, by the reference implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from tests.pytorch import require_torch
from whence.frontends.torch.exported import export_module, read_exported
from whence.frontends.torch.tensors import array_of

torch = require_torch()
F = torch.nn.functional
Module: Any = torch.nn.Module
Cases = Mapping[str, Callable[..., Any]]


class _All(Module):
    """The results of many functions of the same inputs, so that they are traced at once."""

    def __init__(self, cases: Cases) -> None:
        super().__init__()
        self.cases = cases

    def forward(self, *inputs: Any) -> dict[str, Any]:
        return {name: case(*inputs) for name, case in self.cases.items()}


def _check(cases: Cases, *inputs: Any, tolerance: float = 2e-6) -> None:
    module = _All(cases).eval()
    program = export_module(module, inputs)
    graph = read_exported(program)
    assert graph.ledger.lost() == []
    traced = [node.name for node in program.graph.nodes if node.op == "call_function"]
    assert [source.name for source in graph.ledger.sources][: len(traced)] == traced
    with torch.no_grad():
        expected = module(*inputs)
    found = graph.run([array_of(each) for each in inputs])
    leaves = torch.utils._pytree.tree_leaves(expected)
    names = [
        name
        for name, value in expected.items()
        for _ in range(len(value) if isinstance(value, tuple | list) else 1)
    ]
    assert len(found) == len(leaves)
    for name, ours, theirs in zip(names, found, leaves, strict=True):
        wanted = array_of(theirs)
        assert ours.dtype == wanted.dtype, name
        assert ours.shape == wanted.shape, name
        np.testing.assert_allclose(
            ours.astype(np.float64),
            wanted.astype(np.float64),
            rtol=tolerance * 10,
            atol=tolerance,
            err_msg=name,
        )


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_activations() -> None:
    x = torch.randn(2, 6, 5)
    _check(
        {
            "relu": F.relu,
            "relu6": F.relu6,
            "sigmoid": torch.sigmoid,
            "tanh": torch.tanh,
            "silu": F.silu,
            "mish": F.mish,
            "hardswish": F.hardswish,
            "hardsigmoid": F.hardsigmoid,
            "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.7),
            "gelu": F.gelu,
            "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
            "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
            "elu": lambda x: F.elu(x, 0.7),
            "selu": F.selu,
            "celu": lambda x: F.celu(x, 0.7),
            "softplus": F.softplus,
            "softplus_steep": lambda x: F.softplus(8 * x, beta=3.0, threshold=4.0),
            "logsigmoid": F.logsigmoid,
            "softsign": F.softsign,
            "glu": lambda x: F.glu(x, 1),
            "softmax": lambda x: torch.softmax(x, -1),
            "log_softmax": lambda x: torch.log_softmax(x, 1),
            "prelu": lambda x: F.prelu(x, torch.linspace(0.1, 0.6, 6)),
            "dropout": lambda x: F.dropout(x, 0.5, False),
            "softmin": lambda x: F.softmin(x, 1),
            "threshold": lambda x: F.threshold(x, 0.1, 2.0),
            "hardshrink": lambda x: F.hardshrink(x, 0.3),
            "softshrink": lambda x: F.softshrink(x, 0.3),
        },
        x,
    )


def test_functions_of_one_element() -> None:
    positive, whole = torch.rand(3, 4) + 0.1, torch.randint(-4, 5, (3, 4))
    _check(
        {
            "exp": lambda x, n: x.exp(),
            "exp2": lambda x, n: x.exp2(),
            "expm1": lambda x, n: torch.expm1(x - 0.5),
            "log": lambda x, n: x.log(),
            "log2": lambda x, n: x.log2(),
            "log10": lambda x, n: x.log10(),
            "log1p": lambda x, n: x.log1p(),
            "sqrt": lambda x, n: x.sqrt(),
            "rsqrt": lambda x, n: x.rsqrt(),
            "reciprocal": lambda x, n: x.reciprocal(),
            "square": lambda x, n: x.square(),
            "trigonometry": lambda x, n: (x.sin(), x.cos(), x.tan(), x.atan(), x.sinh()),
            "arc": lambda x, n: (torch.asin(x / 2), torch.acos(x / 2), torch.asinh(x)),
            "erf": lambda x, n: x.erf(),
            "rounding": lambda x, n: ((4 * x - 2).floor(), (4 * x - 2).ceil(), (4 * x).round()),
            "trunc": lambda x, n: (4 * x - 2).trunc(),
            "whole": lambda x, n: (n.abs(), -n, n.sign(), n.float().sqrt().isnan(), n.sin()),
            "not": lambda x, n: (~n, ~(n > 0), torch.logical_not(n)),
            "clamp": lambda x, n: (x.clamp(0.2, 0.7), x.clamp(min=0.5), x.clamp_max(0.3)),
            "clamp_tensor": lambda x, n: torch.clamp(x, min=x.mean(0), max=x.amax(0)),
            "infinite": lambda x, n: torch.isinf(x / (n.float() * 0)),
            "sgn": lambda x, n: torch.sgn(x - 0.5),
        },
        positive,
        whole,
    )


def test_arithmetic_of_two() -> None:
    a, b, n = torch.randn(3, 4), torch.rand(4) + 0.5, torch.randint(1, 9, (3, 4))
    _check(
        {
            "add": lambda a, b, n: (a + b, torch.add(a, b, alpha=2), a + 1, n + 2, n + 0.5),
            "sub": lambda a, b, n: (a - b, 1 - a, torch.sub(a, b, alpha=0.5), n - 2),
            "mul": lambda a, b, n: (a * b, a * 3, n * n, a * n, (a > 0) * (b > 1)),
            "div": lambda a, b, n: (a / b, a / 3, n / 3, 1 / b),
            "floor": lambda a, b, n: (
                a // b,
                n // 3,
                (n - 5) // 3,
                torch.div(a, b, rounding_mode="floor"),
            ),
            "truncated": lambda a, b, n: (
                torch.div(a, b, rounding_mode="trunc"),
                torch.div(n - 5, 3, rounding_mode="trunc"),
            ),
            "remainder": lambda a, b, n: (
                a % b,
                (n - 5) % 3,
                torch.fmod(a, b),
                torch.fmod(n - 5, 3),
            ),
            "exact remainder": lambda a, b, n: (a % 0.1, a % -0.1, a % torch.inf, a % -torch.inf),
            "pow": lambda a, b, n: (b**2, b**0.5, 2**a, b**a, n**2),
            "extremes": lambda a, b, n: (torch.maximum(a, b), torch.minimum(a, b), torch.max(a, b)),
            "addcmul": lambda a, b, n: (torch.addcmul(a, a, b, value=2), torch.addcdiv(a, a, b)),
            "lerp": lambda a, b, n: (torch.lerp(a, b, 0.3), torch.lerp(a, a + 1, a)),
            "bits": lambda a, b, n: (n & 3, n | 4, n ^ 5, n << 2, n >> 1),
            "truths": lambda a, b, n: ((a > 0) & (b > 1), (a > 0) | (b > 1), (a > 0) ^ (b > 1)),
            "compare": lambda a, b, n: (a == b, a != b, a < b, a <= 0, n > 3, n >= 4.5, n == 3),
            "logic": lambda a, b, n: (torch.logical_and(n, a > 0), torch.logical_xor(a > 0, b > 1)),
            "where": lambda a, b, n: (torch.where(a > 0, a, b), torch.where(n > 3, n, 0)),
            "masked_fill": lambda a, b, n: a.masked_fill(a > 0, -1.0),
            "triangles": lambda a, b, n: (a.tril(), a.triu(1), a.tril(-1)),
            "hypot": lambda a, b, n: torch.hypot(a, b),
            "promotion": lambda a, b, n: (n + a, n.int() + n, (a > 0) + 1, n * True),
        },
        a,
        b,
        n,
    )


def test_convolutions() -> None:
    x, w = torch.randn(2, 4, 9, 8), torch.randn(6, 4, 3, 3)
    _check(
        {
            "plain": F.conv2d,
            "bias": lambda x, w: F.conv2d(x, w, torch.ones(6), stride=2, padding=1),
            "dilated": lambda x, w: F.conv2d(x, w, dilation=2, padding=(2, 1)),
            "groups": lambda x, w: F.conv2d(x, w[:, :2], groups=2),
            "same": lambda x, w: F.conv2d(x, w, padding="same", dilation=2),
            "valid": lambda x, w: F.conv2d(x, w, padding="valid"),
            "unbatched": lambda x, w: F.conv2d(x[0], w),
            "one": lambda x, w: F.conv1d(x[:, :, 0], w[:, :, 0], stride=2),
            "three": lambda x, w: F.conv3d(x[:, :, None], w[:, :, None]),
            "transposed": lambda x, w: F.conv_transpose2d(
                x, w.transpose(0, 1), stride=2, padding=1, output_padding=1
            ),
        },
        x,
        w,
        tolerance=2e-5,
    )


def test_products() -> None:
    a, b = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    _check(
        {
            "linear": lambda a, b: (F.linear(a, b[0].T), F.linear(a[0], b[0].T, torch.ones(5))),
            "linear_bias": lambda a, b: F.linear(a, b[0].T, torch.arange(5.0)),
            "matmul": lambda a, b: (a @ b, a @ b[0], a[0] @ b[0], a[0] @ b[0, :, 0]),
            "bmm": torch.bmm,
            "addmm": lambda a, b: torch.addmm(torch.ones(5), a[0], b[0], beta=2, alpha=0.5),
            "baddbmm": lambda a, b: torch.baddbmm(torch.ones(2, 3, 5), a, b, beta=2, alpha=0.5),
            "einsum": lambda a, b: torch.einsum("bij,bjk->bki", a, b),
            "outer": lambda a, b: torch.outer(a[0, 0], b[0, 0]),
            "dot": lambda a, b: torch.dot(a[0, 0], b[0, :, 0]),
        },
        a,
        b,
        tolerance=1e-5,
    )


def test_normalisation() -> None:
    x = torch.randn(2, 6, 5, 4)
    mean, variance, weight = torch.randn(6), torch.rand(6) + 0.5, torch.randn(6)
    _check(
        {
            "batch": lambda x, m, v, w: F.batch_norm(x, m, v, w, m, eps=1e-3),
            "plain_batch": lambda x, m, v, w: F.batch_norm(x, m, v),
            "layer": lambda x, m, v, w: (
                F.layer_norm(x, (5, 4)),
                F.layer_norm(x, (4,), w[:4], m[:4]),
            ),
            "group": lambda x, m, v, w: (F.group_norm(x, 3), F.group_norm(x, 2, w, m, 1e-3)),
            "instance": lambda x, m, v, w: F.instance_norm(x, weight=w, bias=m),
            "rms": lambda x, m, v, w: (F.rms_norm(x, (4,)), F.rms_norm(x, (4,), w[:4], 1e-5)),
            "unit": lambda x, m, v, w: F.normalize(x, dim=1),
            "local": lambda x, m, v, w: F.local_response_norm(x, 3),
        },
        x,
        mean,
        variance,
        weight,
        tolerance=1e-5,
    )


def test_pooling() -> None:
    x = torch.randn(2, 3, 9, 12)
    _check(
        {
            "max": lambda x: (F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 2, ceil_mode=True)),
            "max_dilated": lambda x: F.max_pool2d(x, 2, 1, 0, 2),
            "max_one": lambda x: F.max_pool1d(x[0], 3),
            "average": lambda x: (F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, False, False)),
            "divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
            "global": lambda x: F.adaptive_avg_pool2d(x, 1),
            "adaptive": lambda x: (F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_avg_pool2d(x, 7)),
            "adaptive_axis": lambda x: F.adaptive_avg_pool2d(x, (None, 5)),
            "adaptive_one": lambda x: F.adaptive_avg_pool1d(x[0], 5),
            "adaptive_max": lambda x: F.adaptive_max_pool2d(x, (3, 4)),
            "unbatched": lambda x: (F.max_pool2d(x[0], 2), F.avg_pool2d(x[0], 2)),
        },
        x,
    )


def test_reductions() -> None:
    x, n = torch.randn(3, 4, 5), torch.randint(0, 3, (3, 4))
    _check(
        {
            "sum": lambda x, n: (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), n.sum(1)),
            "mean": lambda x, n: (x.mean(), x.mean(-1), x.mean((1, 2), True)),
            "prod": lambda x, n: x.prod(1),
            "extremes": lambda x, n: (x.amax(1), x.amin((0, 1)), x.max(), n.min()),
            "with_position": lambda x, n: (*x.max(1), *x.min(-1, keepdim=True)),
            "positions": lambda x, n: (x.argmax(), x.argmin(1), x.argmax(-1, keepdim=True)),
            "truths": lambda x, n: ((x > 0).any(), (n > 0).all(1), n.any(0)),
            "spread": lambda x, n: (x.var(1), x.std(), x.var((1, 2), unbiased=False, keepdim=True)),
            "var_mean": lambda x, n: torch.var_mean(x, 1, correction=0),
            "norms": lambda x, n: (x.norm(), x.norm(dim=1), torch.linalg.vector_norm(x, 1, 2)),
            "logsumexp": lambda x, n: x.logsumexp(1),
            "cumulative": lambda x, n: (x.cumsum(1), n.cumsum(-1)),
            "whole": lambda x, n: n.float().mean(0),
        },
        x,
        n,
        tolerance=5e-6,
    )


def test_movement() -> None:
    x = torch.randn(2, 6, 4)
    _check(
        {
            "view": lambda x: (x.view(2, -1), x.reshape(12, 4), x.flatten(), x.flatten(0, 1)),
            "unflatten": lambda x: x.unflatten(1, (2, 3)),
            "axes": lambda x: (x.permute(2, 0, 1), x.transpose(-1, 0), x[0].T, x.movedim(0, 2)),
            "squeeze": lambda x: (x[:, :1].squeeze(1), x.unsqueeze(-1).squeeze(), x.unsqueeze(0)),
            "single": lambda x: (x.sum().squeeze(-1), x.sum().sum(0), x.sum().flatten(0, -1)),
            "expand": lambda x: (x[:, :1].expand(-1, 3, -1), x[0, 0].expand(2, 4)),
            "repeat": lambda x: (x.repeat(2, 1, 1), x[0].repeat(3, 1, 2), x.tile(2)),
            "slice": lambda x: (x[:, 1:5:2], x[..., -2:], x[1], x[:, -1], x.narrow(1, 2, 3)),
            "join": lambda x: (
                torch.cat([x, x], 1),
                torch.stack([x, -x], -1),
                torch.cat([x[:0, 0], x[:, 0]]),
            ),
            "divide": lambda x: (*x.split(4, 1), *x.chunk(3, 1), *x.split([1, 5], 1), *x.unbind(0)),
            "flip": lambda x: (x.flip(1), x.flip((0, 2))),
            "roll": lambda x: (x.roll(2, 1), x.roll((1, -1), (0, 2)), x.roll(3)),
            "pixels": lambda x: F.pixel_shuffle(x[None, :, :, None].reshape(1, 12, 2, 2), 2),
            "unshuffle": lambda x: F.pixel_unshuffle(x.reshape(1, 1, 8, 6), 2),
            "windows": lambda x: x.unfold(1, 3, 2),
            "cast": lambda x: (x.int(), x.double().float(), x.to(torch.int64), (x > 0).float()),
            "pad": lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 0, 2, 1), value=3.0)),
            "pad_modes": lambda x: (F.pad(x, (1, 2), "reflect"), F.pad(x, (2, 1), "replicate")),
            "wrap": lambda x: F.pad(x, (1, 2), "circular"),
            "copies": lambda x: (x.clone(), x.contiguous(), x.detach(), x + 0),
            "in_place": lambda x: x.clone().mul_(2).add_(1),
            "strided": lambda x: (
                x.as_strided((2, 6, 4), (24, 4, 1)),
                x.as_strided((3, 2), (2, 5), 4),
                x.transpose(1, 2).as_strided((4, 3), (1, 2)),
            ),
            "meshes": lambda x: torch.meshgrid(x[0, 0], x[0, :, 0], indexing="ij"),
        },
        x,
    )


def test_indexing() -> None:
    x, i = torch.randn(5, 4, 3), torch.tensor([[0, 3], [2, -1]])
    j = torch.tensor([[1], [2]])
    _check(
        {
            "embedding": lambda x, i, j: F.embedding(i.abs(), x[:, :, 0]),
            "select": lambda x, i, j: x.index_select(1, j[:, 0]),
            "gather": lambda x, i, j: torch.gather(x[:2, :, 0], 1, i.abs()),
            "first": lambda x, i, j: x[i],
            "second": lambda x, i, j: x[:, j],
            "two": lambda x, i, j: (x[i, j], x[:, i.abs() % 4, j]),
            "apart": lambda x, i, j: x[i, :, j],
            "scatter": lambda x, i, j: (
                torch.scatter(x[:2, :, 0], 1, i.abs(), x[2:4, :2, 1]),
                torch.scatter(x[:2, :, 0], 1, i.abs(), 7.0),
                torch.scatter_add(x[:2, :, 0], 1, i.abs(), x[2:4, :2, 1]),
            ),
            "put": lambda x, i, j: torch.index_put(x, (i,), torch.zeros(())),
            "put_two": lambda x, i, j: torch.index_put(x, (i.abs(), j), torch.ones(3), True),
            "masked": lambda x, i, j: torch.index_put(x, (x > 0,), torch.tensor(2.0)),
            "slice_scatter": lambda x, i, j: torch.slice_scatter(x, x[:2] * 0, 0, 1, 3),
            "select_scatter": lambda x, i, j: torch.select_scatter(x, x[:, 0] * 0, 1, -1),
            "topk": lambda x, i, j: torch.topk(x, 2, 1),
            "sort": lambda x, i, j: (*torch.sort(x, 0, descending=True), torch.argsort(x, 1)),
            "one_hot": lambda x, i, j: F.one_hot(i.abs(), 5),
        },
        x,
        i,
        j,
    )


def test_creation() -> None:
    x = torch.randn(2, 3)
    _check(
        {
            "full": lambda x: (torch.full((2, 2), 3.5), torch.full_like(x, 2), x.new_full((1,), 4)),
            "zeros": lambda x: (
                torch.zeros(2),
                torch.zeros_like(x),
                x.new_zeros(3),
                torch.ones(()),
            ),
            "ones": lambda x: (torch.ones_like(x, dtype=torch.int64), x.new_ones(2)),
            "arange": lambda x: (torch.arange(5), torch.arange(1, 2, 0.25), torch.arange(6, 1, -2)),
            "eye": lambda x: (torch.eye(3), torch.linspace(0, 1, 5)),
            "tensor": lambda x: x + torch.tensor([1.0, 2.0, 3.0]),
        },
        x,
    )


def test_resizing() -> None:
    x = torch.randn(1, 2, 5, 6)
    _check(
        {
            "nearest": lambda x: (F.interpolate(x, scale_factor=2), F.interpolate(x, size=(7, 9))),
            "exact": lambda x: F.interpolate(x, size=(7, 9), mode="nearest-exact"),
            "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
            "sized": lambda x: F.interpolate(x, size=(9, 4), mode="bilinear"),
            "aligned": lambda x: F.interpolate(
                x, size=(9, 11), mode="bilinear", align_corners=True
            ),
            "cubic": lambda x: F.interpolate(x, size=(9, 11), mode="bicubic"),
            "linear": lambda x: F.interpolate(x[0], scale_factor=3, mode="linear"),
        },
        x,
        tolerance=1e-5,
    )


def test_attention() -> None:
    q, k = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8)
    mask, hidden = torch.randn(5, 7), torch.rand(2, 1, 5, 7) > 0.4
    attend = F.scaled_dot_product_attention
    _check(
        {
            "plain": lambda q, k, m, h: attend(q, k, k + 1),
            "scaled": lambda q, k, m, h: attend(q, k, k, scale=0.7),
            "mask": lambda q, k, m, h: attend(q, k, k, m),
            "hidden": lambda q, k, m, h: attend(q, k, k, h),
            "causal": lambda q, k, m, h: attend(q, q, q, is_causal=True),
            "grouped": lambda q, k, m, h: attend(q, k[:, :2], k[:, :2], enable_gqa=True),
            "flat": lambda q, k, m, h: attend(q[:, 0], k[:, 0], k[:, 0]),
        },
        q,
        k,
        mask,
        hidden,
        tolerance=1e-5,
    )


def test_half_precision() -> None:
    x = torch.randn(3, 4, dtype=torch.bfloat16)
    _check({"add": lambda x: x + 1, "half": lambda x: x.half() * 2}, x, tolerance=1e-2)


def test_recurrent_layers_stay_whole() -> None:
    class Layers(Module):
        def __init__(self) -> None:
            super().__init__()
            self.both = torch.nn.LSTM(4, 5, batch_first=True, bidirectional=True)
            self.stack = torch.nn.LSTM(10, 3, num_layers=2, bias=False)
            self.gates = torch.nn.GRU(4, 6, num_layers=2, bidirectional=True)

        def forward(self, x: Any, h: Any) -> Any:
            y, last = self.both(x)
            return y, last, self.stack(y), self.gates(x, h)

    module = Layers().eval()
    x, h = torch.randn(2, 7, 4), torch.randn(4, 7, 6)
    graph = read_exported(export_module(module, (x, h)))
    assert graph.ledger.lost() == []
    assert (graph.op_counts["LSTM"], graph.op_counts["GRU"]) == (3, 2)
    with torch.no_grad():
        leaves = torch.utils._pytree.tree_leaves(module(x, h))
    for ours, theirs in zip(graph.run([x.numpy(), h.numpy()]), leaves, strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5, atol=1e-6)
