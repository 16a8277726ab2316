"""What a decoder model looks like, read from a Hugging Face config.json of either generation and checked at once.

Source: transformers 5.24, `configuration_<model>.py`, for the names and the defaults; where a model's defaults are not
Llama's, its own file has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from minisgl.models.expert_config import ExpertConfig
from minisgl.models.registry import MODELS, architecture_of_type, model_type_of
from minisgl.models.rope import RopeConfig
from minisgl.models.values import count, flag, names, positive
from minisgl.models.windows import LOCAL, kinds_of_layers, windows_of, within

if TYPE_CHECKING:
    from minisgl.models.base import BaseCausalLM


# Keys that classes of transformers heed and no file here does, with the one value that says nothing.
_UNHEEDED: dict[str, Any] = {"is_causal": True, "use_bidirectional_attention": False, "per_layer_config": {}}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of a model. Counts are those of the whole model, before tensor parallelism divides them.

    architecture: Hugging Face's class name. dtype: of the checkpoint. max_position_embeddings: the context length in
    tokens. layers_without_rope: whose q and k do not turn by position. windows: how many tokens each layer sees, itself
    included, 0: all; empty: no layer has a window. attn_scale: of q . k, None: 1 / sqrt(head_dim). attn_softcap,
    attn_sinks: see `minisgl.attention.AttnForm`. local_layers: those whose kind is sliding_attention, be their window
    ever so wide. local_rope: how these turn, None: as the others. hidden_act: a key of `minisgl.kernel.linear.GATES`.
    logit_softcap: a logit x becomes logit_softcap * tanh(x / logit_softcap); 0: x.
    embedding_multiplier: of token vectors. residual_multiplier: of what attention and MLP add. logits_scaling: logits
    are divided by it.
    """

    architecture: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_qo_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rope: RopeConfig = field(default_factory=RopeConfig)
    local_layers: frozenset[int] = frozenset()
    local_rope: RopeConfig | None = None
    rms_norm_eps: float = 1e-6
    attention_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool = False
    layers_without_rope: frozenset[int] = frozenset()
    windows: tuple[int, ...] = ()
    attn_scale: float | None = None
    attn_softcap: float = 0.0
    attn_sinks: bool = False
    hidden_act: str = "silu"
    logit_softcap: float = 0.0
    experts: ExpertConfig | None = None
    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    logits_scaling: float = 1.0
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        if self.num_qo_heads % self.num_kv_heads != 0:
            raise ValueError(f"num_kv_heads={self.num_kv_heads} does not divide num_qo_heads={self.num_qo_heads}")
        for rope in (self.rope, self.local_rope):
            if rope is not None:
                rope.check(self.head_dim)

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> ModelConfig:
        """The content of a config.json; nulls count as absent.

        ValueError that names what is missing, unknown or not supported here; nothing is ignored that changes logits.
        """
        architecture = architecture_of(config)
        model = MODELS[architecture]()
        _check_model_type(config, architecture)
        config = _without_nulls(model.plain_config(_with_defaults(config, model)))
        rope = RopeConfig.from_hf(config)
        context = rope.context(count(config, "max_position_embeddings"))
        kinds = kinds_of_layers(config)
        fields = model.config_fields(config)
        for each in (rope, fields.get("local_rope") or rope):
            _check_turning(each, model)
        _check_supported(config, model, kinds)
        num_qo_heads = count(config, "num_attention_heads")
        hidden_size = count(config, "hidden_size")
        return cls(
            architecture=architecture,
            num_layers=count(config, "num_hidden_layers"),
            hidden_size=hidden_size,
            intermediate_size=count(config, "intermediate_size"),
            num_qo_heads=num_qo_heads,
            num_kv_heads=count(config, "num_key_value_heads", num_qo_heads),
            head_dim=count(config, "head_dim", hidden_size // num_qo_heads),
            vocab_size=count(config, "vocab_size"),
            max_position_embeddings=context,
            rope=rope,
            rms_norm_eps=positive(config, "rms_norm_eps", 1e-6),
            attention_bias=flag(config, "attention_bias"),
            mlp_bias=flag(config, "mlp_bias"),
            tie_word_embeddings=flag(config, "tie_word_embeddings"),
            local_layers=frozenset(i for i, kind in enumerate(kinds) if kind == LOCAL),
            windows=windows_of(config, kinds, context),
            hidden_act=_activation(config),
            dtype=_dtype(config),
            **fields,
        )

    def serve(self, max_seq_len: int) -> ModelConfig:
        """The same model for sequences of up to max_seq_len tokens, by which longrope picks its factors."""
        return replace(self, max_position_embeddings=max_seq_len, windows=within(self.windows, max_seq_len))


def _with_defaults(config: Mapping[str, Any], model: type[BaseCausalLM]) -> dict[str, Any]:
    """A null may say something where a class has another default, such as no window; not so of rope parameters."""
    given = {key: value for key, value in config.items() if value is not None or key != "rope_parameters"}
    return {**model.config_defaults, **given}


def _without_nulls(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if value is not None}


def architecture_of(config: Mapping[str, Any]) -> str:
    """The class that a config.json names, or that its model_type stands for where it names none or several.

    ValueError where neither says it.
    """
    found, model_type = names(_without_nulls(config), "architectures"), config.get("model_type")
    if len(found) == 1:
        return found[0]
    of_type = architecture_of_type(model_type) if isinstance(model_type, str) else None
    if of_type is not None and (not found or of_type in found):
        return of_type
    if found:
        said = f"and model_type={model_type!r} does not say which" if model_type is not None else "and no model_type"
        raise ValueError(f"the model's config names {len(found)} architectures, {found}, {said}")
    if model_type is not None:
        known = ", ".join(sorted(map(model_type_of, MODELS.names)))
        raise ValueError(f"the model's config lacks 'architectures', and {model_type=} is unknown; known: {known}")
    raise ValueError("the model's config lacks 'architectures' and 'model_type'")


def _check_model_type(config: Mapping[str, Any], architecture: str) -> None:
    """What is built nearly like another model, and says so, may be quite another one to transformers."""
    expected = model_type_of(architecture)
    if (found := config.get("model_type")) not in (None, expected):
        raise ValueError(f"model_type={found!r} is not supported in {architecture}; only {expected!r} is")


def _check_turning(rope: RopeConfig, model: type[BaseCausalLM]) -> None:
    if (factor := rope.partial_rotary_factor) != 1 and not model.turns_in_part:
        raise ValueError(f"partial_rotary_factor={factor} is not supported in {model.__name__}; only 1.0 is")


def _check_supported(config: Mapping[str, Any], model: type[BaseCausalLM], kinds: list[str]) -> None:
    for key, nothing in _UNHEEDED.items():
        if (value := config.get(key, nothing)) != nothing:
            raise ValueError(f"{key}={value!r} is not supported; only {nothing!r} is")
    if (act := _activation(config)) not in model.activations:
        raise ValueError(f"hidden_act={act!r} is not supported; known: {', '.join(map(repr, model.activations))}")
    if LOCAL in kinds and not model.windowed:
        raise ValueError(f"layer_types has {LOCAL}, which is not supported in {model.__name__}")


def _activation(config: Mapping[str, Any]) -> Any:
    act = config.get("hidden_act", "silu")
    return "gelu_pytorch_tanh" if act in ("gelu_new", "gelu_fast") else act  # one formula, written in three ways


def _dtype(config: Mapping[str, Any]) -> torch.dtype:
    name = str(config.get("dtype", config.get("torch_dtype", "float32"))).removeprefix("torch.")
    if name not in DTYPES:
        raise ValueError(f"dtype={name!r} is not supported; known: {', '.join(DTYPES)}")
    return DTYPES[name]
