"""Writes a Llama of 1.07 billion random weights as a directory of bfloat16 safetensors, to measure speed with.

    python benchmarks/make_random_llama.py OUT [--layers 16] [--seed 0] [--tokenizer smollm2]

The tokenizer is that of a GGUF model with byte-level BPE (--tokenizer), written as tokenizer.json; the vocabulary has
as many tokens. Weights are normal with the spread that keeps activations and logits near one, so that neither exponents
nor attention are out of the ordinary. The same seed gives the same file. transformers, converters to GGUF and to
OpenVINO read it, and

    octavo quantize OUT OUT-w4.gguf --format w4

makes what Octavo and llama.cpp run.
"""

from __future__ import annotations

import argparse
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from octavo.loaders.checkpoint import open_checkpoint
from octavo.loaders.gguf_writer import require_room
from octavo.loaders.hub import resolve_model
from octavo.text.gguf_vocabulary import CONTROL, GGUFVocabulary, read_vocabulary

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM = 2048, 8192, 32, 8, 64
ROWS_PER_PIECE = 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokenizer", default="smollm2", help="alias or GGUF file")
    options = parser.parse_args()
    source = open_checkpoint(resolve_model(options.tokenizer))
    metadata = source.tokenizer_files()
    if isinstance(metadata, Path):
        parser.error(f"--tokenizer {options.tokenizer}: must be a GGUF file")
    vocabulary = read_vocabulary(metadata)
    options.out.mkdir(parents=True, exist_ok=True)
    write_tokenizer(options.out, vocabulary, str(metadata.get("tokenizer.chat_template", "")))
    write_json(options.out / "config.json", model_config(options.layers, vocabulary))
    write_weights(options.out / "model.safetensors", options.layers, len(vocabulary.tokens), options.seed)


def model_config(layers: int, vocabulary: GGUFVocabulary) -> dict[str, Any]:
    """config.json."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "vocab_size": len(vocabulary.tokens),
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": vocabulary.bos_token_id,
        "eos_token_id": vocabulary.eos_token_id,
    }


def tensor_shapes(layers: int, vocab_size: int) -> dict[str, tuple[tuple[int, ...], float]]:
    """name -> (shape, spread of its values; 0 for norms, which are ones)."""
    shapes: dict[str, tuple[tuple[int, ...], float]] = {"model.embed_tokens.weight": ((vocab_size, HIDDEN), 0.02)}
    # What is added to the residual shares its growth out over all additions.
    share = (2 * layers) ** -0.5
    for layer in range(layers):
        linears = {
            "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN, 1.0),
            "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN, 1.0),
            "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN, 1.0),
            "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM, share),
            "mlp.gate_proj": (INNER, HIDDEN, 1.0),
            "mlp.up_proj": (INNER, HIDDEN, 1.0),
            "mlp.down_proj": (HIDDEN, INNER, share),
        }
        for name, (rows, columns, gain) in linears.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = ((rows, columns), gain * columns**-0.5)
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"model.layers.{layer}.{name}.weight"] = ((HIDDEN,), 0.0)
    shapes["model.norm.weight"] = ((HIDDEN,), 0.0)
    return shapes


def write_weights(path: Path, layers: int, vocab_size: int, seed: int) -> None:
    """model.safetensors, a thousand rows at a time."""
    shapes = tensor_shapes(layers, vocab_size)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (shape, _) in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    require_room(path.parent, offset + len(encoded) + 8)
    generator = np.random.default_rng(seed)
    temporary = path.with_name(path.name + ".part")
    with temporary.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        for name, (shape, spread) in shapes.items():
            write_tensor(file, pieces(generator, shape, spread))
            print(f"{name} {shape}", flush=True)
    temporary.replace(path)


def pieces(generator: np.random.Generator, shape: tuple[int, ...], spread: float) -> Iterator[npt.NDArray[np.float32]]:
    """The values of a tensor."""
    for first in range(0, shape[0], ROWS_PER_PIECE):
        part = (min(ROWS_PER_PIECE, shape[0] - first), *shape[1:])
        if spread:
            yield generator.standard_normal(part, np.float32) * np.float32(spread)
        else:
            yield np.ones(part, np.float32)


def write_tensor(file: BinaryIO, values: Iterator[npt.NDArray[np.float32]]) -> None:
    """As bfloat16, rounded to the nearest."""
    for part in values:
        bits = part.reshape(-1).view(np.uint32)
        file.write(((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2").tobytes())


def write_tokenizer(folder: Path, vocabulary: GGUFVocabulary, chat_template: str) -> None:
    """tokenizer.json and tokenizer_config.json."""
    if vocabulary.model != "gpt2" or vocabulary.pre != "smollm":
        raise SystemExit(
            f"the tokenizer is {vocabulary.model} with {vocabulary.pre!r}; gpt2 with 'smollm' is known here"
        )
    tokens = vocabulary.tokens
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    control = vocabulary.ids_of_type(CONTROL)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": token_id, "content": tokens[token_id], **flags} for token_id in control],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: token_id for token_id, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in vocabulary.merges],
        },
    }
    write_json(folder / "tokenizer.json", document)
    named = {"bos_token": vocabulary.bos_token_id, "eos_token": vocabulary.eos_token_id}
    named["pad_token"] = vocabulary.padding_token_id
    config: dict[str, Any] = {name: tokens[token_id] for name, token_id in named.items() if token_id is not None}
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": False, "chat_template": chat_template}
    write_json(folder / "tokenizer_config.json", config)


def write_json(path: Path, document: dict[str, Any]) -> None:
    """A JSON file."""
    path.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
