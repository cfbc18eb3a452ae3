from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from whence.codegen.cache import Cache
from whence.codegen.prelude import PRELUDE
from whence.codegen.target import Arch, Target
from whence.codegen.toolchain import COMPILE_FLAGS, SourceUnit, Toolchain

FUNCTIONS = ("exp", "expm1", "log", "tanh", "erf", "sigmoid", "softplus")
SUMS = {"erf_plus_1": "erf", "tanh_plus_1": "tanh"}
"""Functions that are 1 more than another."""
INTEGERS = (
    "int8_t",
    "int16_t",
    "int32_t",
    "int64_t",
    "uint8_t",
    "uint16_t",
    "uint32_t",
    "uint64_t",
)
FLOATS: dict[str, tuple[str, type[np.floating]]] = {
    "f": ("float", np.float32),
    "d": ("double", np.float64),
}
BINARY = ("max", "min", "div", "mod", "rem")

Array = np.ndarray
Call = Callable[..., Array]


def runnable() -> list[str]:
    """The host, and the lesser CPUs that it can stand for."""
    host = Target.host()
    lesser = [
        name
        for name in Target.names()
        if Target.named(name).system is host.system and Target.named(name).arch is host.arch
    ]
    return [
        name
        for name in lesser
        if Target.named(name).features <= host.features and name != "x86_64-amx"
    ]


def loop(name: str, result: str, *arguments: str, body: str) -> str:
    """A C function that computes `body` of a[i], b[i] for every i."""
    params = ", ".join(
        f"const {kind} *restrict {letter}" for letter, kind in zip("ab", arguments, strict=False)
    )
    return (
        f"void {name}({result} *restrict r, {params}, int64_t n) {{ for (int64_t i = 0; i < n; i++)"
        f" r[i] = {body}; }}\n"
    )


def source() -> str:
    text = [PRELUDE]
    for suffix, (kind, _) in FLOATS.items():
        text += [
            loop(f"{name}_{suffix}", kind, kind, body=f"w_{name}{suffix}(a[i])")
            for name in (*FUNCTIONS, *SUMS)
        ]
        text += [
            loop(f"{suffix}_to_{to}", to, kind, body=f"w_{suffix}_to_{to}(a[i])") for to in INTEGERS
        ]
        text.append(loop(f"half_{suffix}", "_Float16", kind, body="(_Float16)a[i]"))
    for kind in (*INTEGERS, "float", "double", "_Float16"):
        text += [
            loop(f"{name}_{kind}", kind, kind, kind, body=f"w_{name}_{kind}(a[i], b[i])")
            for name in BINARY
        ]
        text.append(loop(f"sign_{kind}", kind, kind, body=f"w_sign_{kind}(a[i])"))
    text.append(loop("bf16", "w_bf16", "float", body="w_to_bf16(a[i])"))
    text.append(loop("from_bf16", "float", "w_bf16", body="w_bf16_value(a[i])"))
    text.append(loop("from_half", "float", "_Float16", body="(float)a[i]"))
    text.append(loop("floordiv", "int64_t", "int64_t", "int64_t", body="w_floordiv(a[i], b[i])"))
    text.append(loop("floormod", "int64_t", "int64_t", "int64_t", body="w_floormod(a[i], b[i])"))
    return "".join(text)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("prelude") / "kernels")


@pytest.fixture(scope="module", params=runnable())
def call(request: pytest.FixtureRequest, cache: Cache) -> Call:
    """Calls a loop of the library: `call(name, result dtype, a, b)`."""
    library = ctypes.CDLL(
        str(
            Toolchain(Target.named(request.param), cache, 1).build_library(
                [SourceUnit("prelude", source())]
            )
        )
    )

    def run(name: str, dtype: type[np.generic], *arrays: Array) -> Array:
        arrays = tuple(np.ascontiguousarray(array) for array in arrays)
        result = np.empty(arrays[0].shape, dtype)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (result, *arrays)]
        getattr(library, name)(*pointers, ctypes.c_int64(result.size))
        return result

    return run


def reference(name: str, x: Array) -> Array:
    """The function in float64."""
    down = np.exp(-np.abs(x))
    exact: Array
    if name == "sigmoid":
        exact = np.where(x < 0, down, 1.0) / (1.0 + down)
    elif name == "softplus":
        exact = np.maximum(x, 0.0) + np.log1p(down)
    elif name == "erf":
        exact = np.array([math.erf(value) for value in x])
    else:
        exact = getattr(np, name)(x)
    return exact


def floats(rng: np.random.Generator) -> Array:
    """Numbers of every size: a dense grid where functions bend, and any bit pattern."""
    grid = np.linspace(-120, 120, 60_001)
    fine = np.linspace(-4.5, 4.5, 60_001)
    near_one = 1 + np.linspace(-0.5, 0.5, 20_001)
    bits = rng.integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)
    subnormal = rng.integers(0, 2**23, 5_000, dtype=np.uint32).view(np.float32)
    return np.concatenate(
        [
            grid.astype(np.float32),
            fine.astype(np.float32),
            near_one.astype(np.float32),
            bits,
            subnormal,
            -subnormal,
        ]
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_functions_are_within_3_ulp(
    call: Call, rng: np.random.Generator, name: str
) -> None:
    x = floats(rng)
    y = call(f"{name}_f", np.float32, x)
    exact = reference(name, x.astype(np.float64))
    rounded = exact.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(rounded))
    np.testing.assert_array_equal(np.isinf(y), np.isinf(rounded))
    finite = np.isfinite(rounded)
    ulps = np.abs(y[finite].astype(np.float64) - exact[finite]) / np.spacing(
        np.abs(rounded[finite])
    ).astype(np.float64)
    worst = ulps.argmax()
    assert ulps[worst] <= 3, (
        f"{name}({x[finite][worst]!r}) = {y[finite][worst]!r}, exactly {exact[finite][worst]!r}"
    )


@pytest.mark.parametrize("name", SUMS)
def test_sums_with_1_are_as_exact_as_a_number_near_1(
    call: Call, rng: np.random.Generator, name: str
) -> None:
    x = floats(rng)
    y = call(f"{name}_f", np.float32, x)
    exact = reference(SUMS[name], x.astype(np.float64)) + 1
    np.testing.assert_array_equal(np.isnan(y), np.isnan(exact))
    known = np.isfinite(exact)
    # The function of 3 units in the last place, and the sum's own rounding to one of twice that.
    assert np.abs(y[known] - exact[known]).max() <= 4 * np.spacing(np.float32(1))
    assert (np.nanmin(y), np.nanmax(y)) == pytest.approx((0.0, 2.0), abs=1e-37)
    np.testing.assert_allclose(
        call(f"{name}_d", np.float64, x[known].astype(np.float64)), exact[known], atol=1e-15
    )


@pytest.mark.parametrize("name", ["tanh", "erf", "sigmoid"])
def test_bounded_functions_stay_within_their_bounds(
    call: Call, rng: np.random.Generator, name: str
) -> None:
    y = call(f"{name}_f", np.float32, floats(rng))
    assert np.nanmax(y) == 1.0
    assert np.nanmin(y) == (0.0 if name == "sigmoid" else -1.0)


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0])


@pytest.mark.parametrize("suffix", ["f", "d"])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("exp", [1, 1, np.inf, 0, np.nan, math.e]),
        ("expm1", [0, 0, np.inf, -1, np.nan, math.expm1(1)]),
        ("log", [-np.inf, -np.inf, np.inf, np.nan, np.nan, 0]),
        ("tanh", [0.0, -0.0, 1, -1, np.nan, math.tanh(1)]),
        ("erf", [0.0, -0.0, 1, -1, np.nan, math.erf(1)]),
        ("sigmoid", [0.5, 0.5, 1, 0, np.nan, 1 / (1 + math.exp(-1))]),
        ("softplus", [math.log(2), math.log(2), np.inf, 0, np.nan, math.log1p(math.e)]),
    ],
)
def test_special_values(call: Call, suffix: str, name: str, expected: list[float]) -> None:
    dtype = FLOATS[suffix][1]
    y = call(f"{name}_{suffix}", dtype, SPECIAL.astype(dtype))
    np.testing.assert_allclose(y, np.array(expected, dtype), rtol=3e-7 if suffix == "f" else 1e-14)
    if name in ("tanh", "erf"):
        assert np.signbit(y[:2]).tolist() == [False, True]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64_functions(call: Call, rng: np.random.Generator, name: str) -> None:
    x = np.concatenate(
        [rng.normal(size=5000) * 10, rng.uniform(-700, 700, 5000), rng.normal(size=2000) * 1e-3]
    )
    x = np.abs(x) if name == "log" else x
    np.testing.assert_allclose(
        call(f"{name}_d", np.float64, x), reference(name, x), rtol=1e-14, atol=1e-307
    )


@pytest.mark.parametrize("kind", ["float", "double", "_Float16"])
def test_maximum_and_minimum_keep_nan(call: Call, rng: np.random.Generator, kind: str) -> None:
    dtype = {"float": np.float32, "double": np.float64, "_Float16": np.float16}[kind]
    a, b = (
        rng.choice(np.array([np.nan, np.inf, -np.inf, 0.0, 1.0, -1.0, 2.5]), 1000).astype(dtype)
        for _ in range(2)
    )
    np.testing.assert_array_equal(call(f"max_{kind}", dtype, a, b), np.maximum(a, b))
    np.testing.assert_array_equal(call(f"min_{kind}", dtype, a, b), np.minimum(a, b))
    np.testing.assert_array_equal(call(f"sign_{kind}", dtype, a), np.sign(a))


@pytest.mark.parametrize("kind", ["float", "double"])
def test_remainders_of_floats(call: Call, rng: np.random.Generator, kind: str) -> None:
    dtype = {"float": np.float32, "double": np.float64}[kind]
    a, b = (
        np.concatenate([rng.normal(size=500) * 10, [5, -5, 6, -6, np.inf, 1, np.nan, 0]]).astype(
            dtype
        )
        for _ in range(2)
    )
    b[500:508] = [3, 3, -3, -3, 2, np.inf, 1, 0]
    np.testing.assert_array_equal(call(f"rem_{kind}", dtype, a, b), np.fmod(a, b))
    ours, theirs = call(f"mod_{kind}", dtype, a, b), np.mod(a, b)
    finite = np.isfinite(a) & np.isfinite(b)
    np.testing.assert_array_equal(ours[finite], theirs[finite])
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))


@pytest.mark.parametrize("kind", INTEGERS)
def test_integer_arithmetic_has_no_undefined_corner(
    call: Call, rng: np.random.Generator, kind: str
) -> None:
    dtype = np.dtype(kind[:-2])
    info = np.iinfo(dtype)
    least, bits = int(info.min), int(info.bits)
    edges = [
        value
        for value in (info.min, info.min + 1, -7, -2, -1, 0, 1, 2, 7, info.max - 1, info.max)
        if info.min <= value <= info.max
    ]
    a, b = (grid.ravel() for grid in np.meshgrid(np.array(edges, dtype), np.array(edges, dtype)))
    a, b = (
        np.concatenate([edge, rng.integers(info.min, info.max, 300, dtype=dtype, endpoint=True)])
        for edge in (a, b)
    )

    def wrapped(value: int) -> int:
        return (value - least) % (1 << bits) + least

    def truncated(x: int, y: int) -> int:
        return 0 if y == 0 else wrapped(abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1))

    expected: dict[str, Callable[[int, int], int]] = {
        "max": max,
        "min": min,
        "div": truncated,
        "mod": lambda x, y: 0 if y == 0 else x % y,
        "rem": lambda x, y: 0 if y == 0 else int(math.copysign(1, x)) * (abs(x) % abs(y)),
    }
    for name in BINARY:
        result = call(f"{name}_{kind}", dtype.type, a, b)
        assert result.tolist() == [
            expected[name](x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)
        ], name
    assert call(f"sign_{kind}", dtype.type, a).tolist() == [(x > 0) - (x < 0) for x in a.tolist()]


def test_index_division_rounds_down(call: Call, rng: np.random.Generator) -> None:
    a, b = rng.integers(-1000, 1000, 2000), rng.integers(1, 50, 2000)
    np.testing.assert_array_equal(call("floordiv", np.int64, a, b), a // b)
    np.testing.assert_array_equal(call("floormod", np.int64, a, b), a % b)


@pytest.mark.parametrize("suffix", ["f", "d"])
@pytest.mark.parametrize("kind", INTEGERS)
def test_float_to_integer(call: Call, rng: np.random.Generator, suffix: str, kind: str) -> None:
    dtype, to = FLOATS[suffix][1], np.dtype(kind[:-2])
    corners = [0.9, -0.9, 1.5, -1.5, -1.0, 300.0, 70000.0, np.nan, np.inf, -np.inf, 1e300]
    powers = [
        sign * (2.0**exponent + shift)
        for exponent in (7, 8, 15, 16, 31, 32, 53, 63, 64)
        for sign in (1, -1)
        for shift in (-1, -0.5, 0, 0.5, 1)
    ]
    x = np.concatenate(
        [corners, powers, rng.uniform(-1e3, 1e3, 500), rng.uniform(-1e20, 1e20, 500)]
    ).astype(dtype)

    low, width = int(np.iinfo(to).min), int(np.iinfo(to).bits)

    def expected(value: float) -> int:
        bits = 64 if kind in ("uint32_t", "int64_t", "uint64_t") else 32
        whole = None if not math.isfinite(value) else math.trunc(value)
        if kind == "uint64_t" and value >= 2.0**63:
            whole = whole if whole is not None and whole < 2**64 else 0
        elif whole is None or not -(2 ** (bits - 1)) <= whole < 2 ** (bits - 1):
            whole = -(2 ** (bits - 1))
        return (whole - low) % (1 << width) + low

    assert call(f"{suffix}_to_{kind}", to.type, x).tolist() == [
        expected(float(value)) for value in x
    ]


def test_bfloat16(call: Call, rng: np.random.Generator) -> None:
    ties = np.arange(2**16, dtype=np.uint32)[::7] << 16 | np.uint32(0x8000)
    x = np.concatenate(
        [ties, ties - 1, ties + 1, rng.integers(0, 2**32, 50_000, dtype=np.uint32)]
    ).view(np.float32)
    ours, theirs = call("bf16", np.uint16, x), x.astype(ml_dtypes.bfloat16)
    number = ~np.isnan(x)
    np.testing.assert_array_equal(ours[number], theirs.view(np.uint16)[number])
    assert np.isnan(ours.view(ml_dtypes.bfloat16)[~number].astype(np.float32)).all()
    every = np.arange(2**16, dtype=np.uint16)
    np.testing.assert_array_equal(
        call("from_bf16", np.float32, every).view(np.uint32), every.astype(np.uint32) << 16
    )


def test_half(call: Call, rng: np.random.Generator) -> None:
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    np.testing.assert_array_equal(call("from_half", np.float32, every), every.astype(np.float32))
    for suffix, (_, dtype) in FLOATS.items():
        exact = every[np.isfinite(every)].astype(dtype)
        between = (np.sort(exact)[1:] + np.sort(exact)[:-1]) / 2
        corners = np.array(
            [
                65504,
                65519.99,
                65520,
                1e9,
                2**-25,
                2**-24,
                1e-300,
                np.inf,
                -np.inf,
                np.nan,
                0.0,
                -0.0,
            ],
            dtype,
        )
        x = np.concatenate(
            [
                exact,
                between,
                np.nextafter(between, dtype(1e9)),
                np.nextafter(between, dtype(-1e9)),
                corners,
                rng.normal(size=5000),
            ]
        ).astype(dtype)
        ours, theirs = call(f"half_{suffix}", np.float16, x), x.astype(np.float16)
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs))


# ---- the machine code ----


def assembly(target: Target, cache: Cache, folder: Path, text: str) -> str:
    (folder / "unit.c").write_text(PRELUDE + text)
    run = Toolchain(target, cache, 1)._run(
        ["-S", "unit.c", "-o", "unit.s", *COMPILE_FLAGS, *target.flags], folder
    )
    assert run.returncode == 0, run.stderr
    return (folder / "unit.s").read_text()


@pytest.mark.parametrize("target", ["x86_64-avx2", "x86_64-avx512", "aarch64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_loops_over_functions_are_vectorised(
    cache: Cache, tmp_path: Path, target: str, name: str
) -> None:
    machine = Target.named(target)
    text = assembly(machine, cache, tmp_path, loop("f", "float", "float", body=f"w_{name}f(a[i])"))
    fused = {
        4: r"fml[as]\s+v\d+\.4s",
        8: r"vfn?m(add|sub)\d+ps\s.*%ymm",
        16: r"vfn?m(add|sub)\d+ps\s.*%zmm",
    }[machine.lanes]
    assert len(re.findall(fused, text)) >= 4
    assert not re.search(r"^\s+(callq?|bl)\s", text, re.MULTILINE)


@pytest.mark.parametrize("target", ["x86_64-avx512", "aarch64"])
def test_a_largest_element_is_found_by_whole_vectors(
    cache: Cache, tmp_path: Path, target: str
) -> None:
    machine = Target.named(target)
    source = (
        "float f(const float *a, int64_t n) { float m = -__builtin_inff(); for (int64_t i = 0; i <"
        " n; i++) m = w_max_float(m, a[i]); return m; }"
    )
    pattern = r"vmaxps\s.*%zmm" if machine.arch is Arch.X86_64 else r"fmax\s+v\d+\.4s"
    assert re.search(pattern, assembly(machine, cache, tmp_path, source))


def test_a_relu_is_one_instruction(cache: Cache, tmp_path: Path) -> None:
    text = assembly(
        Target.named("x86_64-avx512"),
        cache,
        tmp_path,
        loop("f", "float", "float", body="w_max_float(a[i], 0.0f)"),
    )
    assert re.search(r"vmaxps\s.*%zmm", text)
    assert "vcmpunord" not in text
