"""config.json -> ModelConfig, for the Llama, Mistral, Qwen2, Qwen3 and Gemma3 causal models of transformers.

Both spellings of rotary positions are read: rope_theta with rope_scaling, and the newer rope_parameters,
which Gemma 3 has one of per kind of layer. Whatever changes a model's output and is not known here is an
error, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from octavo.loaders.config_checks import MAX_LAYERS, check_config, is_finite_number, shown, windows
from octavo.loaders.rope_scaling import normalize_rope
from octavo.loaders.tensor_source import CheckpointError
from octavo.models.model_config import ModelConfig

VISION_ARCHITECTURES: Final = ("Gemma3ForConditionalGeneration",)

_FAMILIES: Final = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Gemma3ForCausalLM": "gemma3",
    "Gemma3ForConditionalGeneration": "gemma3",
}
_MODEL_TYPES: Final = {
    "llama": "llama",
    "mistral": "mistral",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma3_text": "gemma3",
}
# What transformers takes for an absent key, where that is more than "the usual".
_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "llama": {"vocab_size": 32000, "max_position_embeddings": 2048, "bos_token_id": 1, "eos_token_id": 2},
    "mistral": {
        "vocab_size": 32000,
        "max_position_embeddings": 131072,
        "num_key_value_heads": 8,
        "sliding_window": 4096,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "qwen2": {
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
        "sliding_window": 4096,
        "max_window_layers": 28,
    },
    "qwen3": {
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
        "head_dim": 128,
        "sliding_window": 4096,
        "max_window_layers": 28,
    },
    "gemma3": {
        "vocab_size": 262208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
        "query_pre_attn_scalar": 256,
        "bos_token_id": 2,
        "eos_token_id": 1,
    },
}
# Keys that change what a model computes and that no recipe knows, with the values that leave it as it is.
_NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "quantization_config": (None,),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "attention_sinks": (None, False),
    "use_attention_sinks": (None, False),
    "num_local_experts": (None, 0),
    "num_experts": (None, 0),
    "use_bidirectional_attention": (None, False),
    "partial_rotary_factor": (None, 1, 1.0),
    "clip_qkv": (None,),
    "logit_scale": (None, 1, 1.0),
    "logits_scaling": (None, 1, 1.0),
    "embedding_multiplier": (None, 1, 1.0),
    "residual_multiplier": (None, 1, 1.0),
    "attention_multiplier": (None,),
    "no_rope_layers": (None, []),
    "adapter_path": (None,),
}
_ACTIVATIONS: Final = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_pytorch_tanh",
}


@dataclass(frozen=True, slots=True)
class _Fields:
    """The typed fields of a configuration; each error names file, field and value."""

    document: Mapping[str, Any]
    defaults: Mapping[str, Any]
    where: Path

    def fail(self, key: str, why: str) -> CheckpointError:
        return CheckpointError(f"{self.where}: {key}: {why}")

    def get(self, key: str) -> Any:
        """The value, or the family's default where it is absent; an explicit null stays None."""
        return self.document[key] if key in self.document else self.defaults.get(key)

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.get(key)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(key, f"is {shown(value)}, it must be an integer")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.get(key)
        if value is None:
            value = default
        if not is_finite_number(value):
            raise self.fail(key, f"is {shown(value)}, it must be a finite number")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.get(key)
        if value is None:
            value = default
        if not isinstance(value, bool):
            raise self.fail(key, f"is {shown(value)}, it must be true or false")
        return value

    def tokens(self, key: str) -> tuple[int, ...]:
        """A token id, a list of them, or null."""
        value = self.get(key)
        ids = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(token, int) and not isinstance(token, bool) for token in ids):
            raise self.fail(key, f"is {shown(value)}, it must be a token id or a list of them")
        return tuple(ids)


def hf_model_config(
    document: Mapping[str, Any], generation: Mapping[str, Any], where: Path
) -> tuple[ModelConfig, bool | None]:
    """The configuration in config.json (`document`, at `where`) with the end tokens of
    generation_config.json.

    The second value is what config.json says about tie_word_embeddings, None where it says nothing (a Gemma
    then is tied). Raises CheckpointError on anything missing, malformed or not supported.
    """
    family, text = _family(document, where)
    fields = _Fields(text, _DEFAULTS[family], where)
    for source in (document, text):
        for key, neutral in _NEUTRAL.items():
            if key in source and source[key] not in neutral:
                raise fields.fail(key, f"is {shown(source[key])}, which is not supported")
    layers = fields.integer("num_hidden_layers")
    heads = fields.integer("num_attention_heads")
    hidden = fields.integer("hidden_size")
    if not 1 <= layers <= MAX_LAYERS:
        raise fields.fail("num_hidden_layers", f"is {layers}, it must be from 1 to {MAX_LAYERS}")
    window, layer_windows = _layer_windows(fields, family, layers)
    theta, scaling, local_theta = _rope(fields, family)
    qkv_bias, out_bias = _attention_biases(fields, family)
    bos, eos = _special_tokens(fields, generation)
    config = ModelConfig(
        family=family,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=fields.integer("num_key_value_heads", heads),
        head_dim=_head_dim(fields, hidden, heads),
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        max_position_embeddings=fields.integer("max_position_embeddings"),
        rope_theta=theta,
        rope_scaling=scaling,
        hidden_act=_activation(fields, family),
        attention_bias=qkv_bias,
        attention_out_bias=out_bias,
        mlp_bias=family == "llama" and fields.flag("mlp_bias"),
        sliding_window=window,
        layer_windows=layer_windows,
        rope_local_theta=local_theta,
        query_pre_attn_scalar=fields.number("query_pre_attn_scalar", 256) if family == "gemma3" else None,
        bos_token_id=bos,
        eos_token_ids=eos,
    )
    tied: bool | None = None
    # transformers looks at the outer object of a model with images, which is tied unless it says otherwise.
    for source in (document, text):
        if tied is None and source.get("tie_word_embeddings") is not None:
            tied = _Fields(source, {}, where).flag("tie_word_embeddings")
    return check_config(config, where), True if tied is None and family == "gemma3" else tied


def _family(document: Mapping[str, Any], where: Path) -> tuple[str, Mapping[str, Any]]:
    """The recipe's name, and the object that describes the language model."""
    architectures = document.get("architectures")
    if architectures is None:
        family = _MODEL_TYPES.get(str(document.get("model_type")))
    elif isinstance(architectures, list) and len(architectures) == 1:
        family = _FAMILIES.get(str(architectures[0]))
    else:
        family = None
    if family is None:
        raise CheckpointError(
            f"{where}: architectures is {shown(architectures)} and model_type "
            f"{shown(document.get('model_type'))}; supported: {', '.join(_FAMILIES)}"
        )
    text = document.get("text_config", document) if str(architectures) == str(list(VISION_ARCHITECTURES)) else document
    if not isinstance(text, dict):
        raise CheckpointError(f"{where}: text_config: is {shown(text)}, it must be an object")
    return family, text


def _head_dim(fields: _Fields, hidden: int, heads: int) -> int:
    if fields.get("head_dim") is not None:
        return fields.integer("head_dim")
    if heads < 1 or hidden % heads:
        raise fields.fail("hidden_size", f"is {hidden}, it must be a multiple of the {heads} attention heads")
    return hidden // heads


def _activation(fields: _Fields, family: str) -> str:
    key, default = ("hidden_activation", "gelu_pytorch_tanh") if family == "gemma3" else ("hidden_act", "silu")
    value = fields.get(key)
    activation = _ACTIVATIONS.get(str(default if value is None else value))
    if activation is None:
        raise fields.fail(key, f"is {shown(value)}, supported: {', '.join(_ACTIVATIONS)}")
    return activation


def _attention_biases(fields: _Fields, family: str) -> tuple[bool, bool]:
    """Whether q, k and v have biases, and whether o has one."""
    if family == "qwen2":
        return True, False
    if family == "mistral":
        return False, False
    both = fields.flag("attention_bias")
    return both, both


def _layer_windows(fields: _Fields, family: str, layers: int) -> tuple[int | None, tuple[bool, ...]]:
    if family == "llama":
        return None, ()
    window = None if fields.get("sliding_window") is None else fields.integer("sliding_window")
    if family in ("qwen2", "qwen3") and not fields.flag("use_sliding_window"):
        window = None
    usual = _usual_windows(fields, family, layers, window)
    flags = _layer_types(fields, layers) or usual
    if family == "mistral" and flags != usual:
        raise fields.fail("layer_types", "differ from layer to layer, which a Mistral's do not")
    if window is None and any(flags):
        raise fields.fail("layer_types", "use a sliding window, but there is none")
    return windows(window, flags)


def _layer_types(fields: _Fields, layers: int) -> list[bool] | None:
    """Per layer whether it uses the window, as layer_types says; None where it says nothing."""
    types = fields.get("layer_types")
    if types is None:
        return None
    known = {"sliding_attention": True, "full_attention": False}
    if not isinstance(types, list) or not all(isinstance(kind, str) and kind in known for kind in types):
        raise fields.fail("layer_types", f"is {shown(types)}, it must list {' and '.join(known)}")
    if len(types) != layers:
        raise fields.fail("layer_types", f"has {len(types)} elements for {layers} layers")
    return [known[kind] for kind in types]


def _usual_windows(fields: _Fields, family: str, layers: int, window: int | None) -> list[bool]:
    """Per layer whether it uses the window, where layer_types does not say."""
    if window is None and family != "gemma3":
        return [False] * layers
    if family == "mistral":
        return [True] * layers
    if family == "gemma3":
        pattern = "sliding_window_pattern" if fields.get("sliding_window_pattern") else "_sliding_window_pattern"
        period = fields.integer(pattern, 6)
        if period < 1:
            raise fields.fail(pattern, f"is {period}, it must be at least 1")
        return [(layer + 1) % period != 0 for layer in range(layers)]
    first = fields.integer("max_window_layers")
    return [layer >= first for layer in range(layers)]


def _rope(fields: _Fields, family: str) -> tuple[float, dict[str, Any] | None, float | None]:
    """(rope_theta, rope_scaling, rope_local_theta) of a ModelConfig."""
    default_theta = 1_000_000.0 if family == "gemma3" else 10_000.0
    theta = fields.number("rope_theta", default_theta)
    local_theta = fields.number("rope_local_base_freq", 10_000.0) if family == "gemma3" else None
    parameters, old = fields.get("rope_parameters"), fields.get("rope_scaling")
    key = "rope_parameters" if parameters else "rope_scaling"
    if parameters and old and parameters != old:
        raise fields.fail("rope_scaling", "differs from rope_parameters; only one of them may be given")
    scaling = parameters or old or None
    if isinstance(scaling, dict) and ("full_attention" in scaling or "sliding_attention" in scaling):
        if unknown := sorted(scaling.keys() - {"full_attention", "sliding_attention"}):
            raise fields.fail(key, f"has the unknown kinds of layers {', '.join(unknown)}")
        local = scaling.get("sliding_attention")
        scaling = scaling.get("full_attention")
        local_scaling = normalize_rope(local, f"{fields.where}: {key}.sliding_attention")
        if local is not None:
            local_theta = _theta(fields, local, local_theta if local_theta is not None else theta)
        if family != "gemma3" or local_scaling is not None:
            raise fields.fail(f"{key}.sliding_attention", "only Gemma 3 has rope of its own there, and unscaled")
    normalized = normalize_rope(scaling, f"{fields.where}: {key}")
    if scaling is not None:
        theta = _theta(fields, scaling, theta)
    if normalized is not None and normalized["rope_type"] in ("yarn", "llama3"):
        limit = fields.integer("max_position_embeddings")
        normalized.setdefault("original_max_position_embeddings", limit)
    return theta, normalized, local_theta


def _theta(fields: _Fields, parameters: Mapping[str, Any], default: float) -> float:
    return _Fields(parameters, {}, fields.where).number("rope_theta", default)


def _special_tokens(fields: _Fields, generation: Mapping[str, Any]) -> tuple[int | None, tuple[int, ...]]:
    """The begin token, and the end tokens of both files, config.json's first; the family's where both are
    silent."""
    said = _Fields(fields.document, {}, fields.where)
    generated = _Fields(generation, {}, fields.where.with_name("generation_config.json"))
    bos = said.tokens("bos_token_id") or generated.tokens("bos_token_id") or fields.tokens("bos_token_id")
    eos = said.tokens("eos_token_id") + generated.tokens("eos_token_id") or fields.tokens("eos_token_id")
    return (bos[0] if bos else None), tuple(dict.fromkeys(eos))
