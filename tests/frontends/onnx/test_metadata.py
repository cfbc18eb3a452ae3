from __future__ import annotations

import pytest

from whence.frontends.onnx.metadata import program_place
from whence.frontends.program_place import ProgramPlace

STACK = (
    'File "/home/me/train.py", line 96, in forward\n    return self.network(x)\n  File'
    ' "/venv/lib/python3.11/site-packages/torch/nn/modules/container.py", line 250, in forward\n   '
    " input = module(input)\n"
)
TORCH = {
    "namespace": (
        ": __main__.Net/network: torch.nn.Sequential/network.0: torch.nn.Linear/linear:"
        " aten.linear.default"
    ),
    "pkg.torch.onnx.class_hierarchy": (
        "['__main__.Net', 'torch.nn.Sequential', 'torch.nn.Linear', 'aten.linear.default']"
    ),
    "pkg.torch.onnx.name_scopes": "['', 'network', 'network.0', 'linear']",
    "pkg.torch.onnx.stack_trace": STACK,
}


def test_torch_says_module_and_line() -> None:
    assert program_place("node_linear", TORCH) == ProgramPlace(
        "network.0", "/home/me/train.py:96", STACK
    )


def test_the_namespace_is_enough() -> None:
    place = program_place("node_linear", {"namespace": TORCH["namespace"]})
    assert (place.module, place.line) == ("network.0", "")


def test_onnxscript_has_its_own_keys() -> None:
    place = program_place(
        "n",
        {
            "pkg.onnxscript.name_scopes": "['', 'a.b', 'x']",
            "pkg.onnxscript.class_hierarchy": "['A', 'B', 'C']",
        },
    )
    assert place.module == "a.b"


def test_without_code_of_the_user_the_innermost_frame_counts() -> None:
    stack = (
        'File "/x/site-packages/torch/a.py", line 1, in f\nFile "/x/site-packages/torch/b.py", line'
        " 2, in g\n"
    )
    assert (
        program_place("n", {"pkg.torch.onnx.stack_trace": stack}).line
        == "/x/site-packages/torch/b.py:2"
    )


def test_the_line_is_that_of_the_model_library_not_of_pytorch() -> None:
    """The same as torch.export's graph of the same program gives."""
    frames = (
        "/env/lib/site-packages/torchvision/models/resnet.py:285",
        "/env/lib/site-packages/torch/nn/modules/container.py:253",
        "/env/lib/site-packages/torchvision/models/resnet.py:147",
        "{}/torch/nn/modules/batchnorm.py:210",
    )
    for root in ("/env/lib/site-packages", "/home/me/pytorch"):
        stack = "".join(
            'File "{}", line {}, in forward\n    call(x)\n'.format(
                *frame.format(root).rsplit(":", 1)
            )
            for frame in frames
        )
        place = program_place("n", {"pkg.torch.onnx.stack_trace": stack})
        assert place.line == frames[2]


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("/layer1/layer1.0/conv1/Conv", "layer1.0.conv1"),
        ("/encoder/layer.0/attention/self/query/MatMul", "encoder.layer.0.attention.self.query"),
        ("/Relu", ""),
        ("Conv_12", ""),
        ("", ""),
        ("a/b/Conv", ""),
    ],
)
def test_the_older_exporter_names_operators_by_module(name: str, module: str) -> None:
    assert program_place(name, {}).module == module
    assert program_place(name, {"other": "metadata"}).module == module


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "['a'",
        "{'a': 1}",
        "7",
        "[1, 2]",
        "__import__('os').abort()",
        "[" * 5000,
        "('x',) * 10**9",
        "['a', 'b']" * 10000,
    ],
)
def test_text_that_is_no_list_of_names_is_as_good_as_absent(text: str) -> None:
    assert (
        program_place(
            "n", {"pkg.torch.onnx.name_scopes": text, "pkg.torch.onnx.class_hierarchy": text}
        )
        == ProgramPlace()
    )


def test_an_operator_outside_any_module() -> None:
    assert (
        program_place(
            "n",
            {"pkg.torch.onnx.name_scopes": "['linear']", "pkg.torch.onnx.class_hierarchy": "['x']"},
        ).module
        == ""
    )
