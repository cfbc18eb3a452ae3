"""Architectures of torchvision, timm and transformers with random weights, small images and short
texts, for `benchmarks.torch_check`.

    pip install 'whence[torch]' timm torchvision transformers
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_TINY_LLAMA = {
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 512,
}
_MINILM = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}


@dataclass(frozen=True)
class Subject:
    """A module with example inputs."""

    module: Any
    args: tuple[Any, ...]
    dynamic_shapes: Any = None


def _images(library: str, name: str, size: int, batch: int = 1, dynamic: bool = False) -> Subject:
    import torch

    declare_torchvision_operators()
    if library == "timm":
        import timm

        module = timm.create_model(name, pretrained=False)
    else:
        import torchvision

        options = {"weights": None}
        if name in ("googlenet", "inception_v3"):
            options |= {"aux_logits": False, "init_weights": True}
        module = getattr(torchvision.models, name)(**options)
    for each in module.modules():
        # A fresh network's statistics are 0 and 1: folding them would change nothing.
        if isinstance(each, torch.nn.modules.batchnorm._BatchNorm):
            torch.nn.init.normal_(each.running_mean, 0, 0.1)
            torch.nn.init.uniform_(each.running_var, 0.5, 1.5)
            torch.nn.init.uniform_(each.weight, 0.8, 1.2)
            torch.nn.init.normal_(each.bias, 0, 0.1)
        # Some have a last layer of zeros, whose results would equal anything's.
        if isinstance(each, torch.nn.Linear) and not each.weight.any():
            torch.nn.init.normal_(each.weight, 0, 0.02)
    shapes = ({0: torch.export.Dim("batch", min=1, max=64)},) if dynamic else None
    return Subject(module.eval(), (torch.randn(batch, 3, size, size),), shapes)


def _text(family: str, options: Mapping[str, Any], dynamic: bool = False) -> Subject:
    import torch

    declare_torchvision_operators()
    import transformers

    batch, length = (2, 32) if dynamic else (1, 32)
    ids = torch.randint(1, 1000, (batch, length))

    class First(torch.nn.Module):
        """The result that a model is used for."""

        def __init__(self, model: Any, field: str) -> None:
            super().__init__()
            self.model, self.field = model, field

        def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
            extra = {} if attention_mask is None else {"attention_mask": attention_mask}
            if self.field == "logits":
                extra["use_cache"] = False
            return getattr(self.model(input_ids=input_ids, **extra), self.field)

    args: tuple[Any, ...] = (ids,)
    if family == "bert":
        config = transformers.BertConfig(attn_implementation="sdpa", **options)
        module = First(transformers.BertModel(config), "last_hidden_state")
        args = (ids, torch.ones_like(ids))
    elif family == "gpt2":
        module = First(transformers.GPT2LMHeadModel(transformers.GPT2Config(**options)), "logits")
    else:
        config = transformers.LlamaConfig(**options)
        module = First(transformers.LlamaForCausalLM(config), "logits")
    shapes = None
    if dynamic:
        open_dims = {
            0: torch.export.Dim("batch", min=1, max=64),
            1: torch.export.Dim("seq", min=2, max=512),
        }
        shapes = tuple(open_dims for _ in args)
        if len(args) == 1:
            shapes = (*shapes, None)
            args = (*args, None)
    return Subject(module.eval(), args, shapes)


def _decode_step() -> Subject:
    """One token over a cache of 31."""
    import torch

    declare_torchvision_operators()
    import transformers

    config = transformers.LlamaConfig(**_TINY_LLAMA)
    layers, heads = config.num_hidden_layers, config.num_key_value_heads
    size = config.hidden_size // config.num_attention_heads

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = transformers.LlamaForCausalLM(config)

        def forward(self, input_ids: Any, position_ids: Any, *past: Any) -> Any:
            cache = transformers.DynamicCache()
            for layer in range(layers):
                cache.update(past[2 * layer], past[2 * layer + 1], layer)
            found = self.model(
                input_ids=input_ids,
                position_ids=position_ids,
                past_key_values=cache,
                use_cache=True,
            )
            present = [
                tensor
                for layer in found.past_key_values.layers
                for tensor in (layer.keys, layer.values)
            ]
            return (found.logits, *present)

    ids, positions = torch.randint(1, 1000, (1, 1)), torch.full((1, 1), 31)
    past = [torch.randn(1, heads, 31, size) for _ in range(2 * layers)]
    return Subject(Step().eval(), (ids, positions, *past))


SUBJECTS: Mapping[str, Callable[[], Subject]] = {
    "timm resnet18": lambda: _images("timm", "resnet18", 64),
    "timm resnet50": lambda: _images("timm", "resnet50", 64),
    "timm mobilenetv2_100": lambda: _images("timm", "mobilenetv2_100", 64),
    "timm mobilenetv3_large_100": lambda: _images("timm", "mobilenetv3_large_100", 64),
    "timm efficientnet_b0": lambda: _images("timm", "efficientnet_b0", 64),
    "timm convnext_tiny": lambda: _images("timm", "convnext_tiny", 64),
    "timm vit_tiny_patch16_224": lambda: _images("timm", "vit_tiny_patch16_224", 224),
    "timm vit_base_patch16_224": lambda: _images("timm", "vit_base_patch16_224", 224),
    "timm mixer_s32_224": lambda: _images("timm", "mixer_s32_224", 224),
    "torchvision resnet50": lambda: _images("torchvision", "resnet50", 64),
    "torchvision vgg11_bn": lambda: _images("torchvision", "vgg11_bn", 64),
    "torchvision alexnet": lambda: _images("torchvision", "alexnet", 128),
    "torchvision squeezenet1_1": lambda: _images("torchvision", "squeezenet1_1", 64),
    "torchvision densenet121": lambda: _images("torchvision", "densenet121", 64),
    "torchvision googlenet": lambda: _images("torchvision", "googlenet", 96),
    "torchvision shufflenet_v2_x1_0": lambda: _images("torchvision", "shufflenet_v2_x1_0", 64),
    "torchvision mnasnet1_0": lambda: _images("torchvision", "mnasnet1_0", 64),
    "torchvision regnet_y_400mf": lambda: _images("torchvision", "regnet_y_400mf", 64),
    "torchvision swin_t": lambda: _images("torchvision", "swin_t", 64),
    "transformers bert_base": lambda: _text("bert", {}),
    "transformers minilm_l6": lambda: _text("bert", _MINILM),
    "transformers distilgpt2": lambda: _text("gpt2", {"n_layer": 6}),
    "transformers llama_tiny": lambda: _text("llama", _TINY_LLAMA),
    "transformers llama_tiny, decode step": _decode_step,
    "timm resnet50, any batch": lambda: _images("timm", "resnet50", 64, 2, True),
    "timm vit_tiny, any batch": lambda: _images("timm", "vit_tiny_patch16_224", 224, 2, True),
    "transformers minilm_l6, any batch and length": lambda: _text("bert", _MINILM, True),
    "transformers distilgpt2, any batch and length": lambda: _text("gpt2", {"n_layer": 6}, True),
}

_LONG = {"timm vit_base_patch16_224", "torchvision vgg11_bn", "transformers bert_base"}
TIMED = tuple(
    name
    for name in SUBJECTS
    if name not in _LONG and "any batch" not in name and "decode step" not in name
)
"""Twenty that are timed: those with open sizes are not, nor those that take long to export."""


def declare_torchvision_operators() -> None:
    """torchvision built for CUDA does not load its operators beside a PyTorch without, and its
    import then fails for two whose schemas are missing. No model here uses them.
    """
    import importlib.util

    import torch

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if importlib.util.find_spec("torchvision") is None:
        return
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)


_KEPT: list[Any] = []
"""Operators are declared for as long as their library object lives."""
