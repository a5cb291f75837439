"""The description of a program shows the model."""

from support.weights import small_config

from octavo.models.registry import build_program
from octavo.program.describe import describe

ATTENTION = """\
  normed = rms_norm residual, input_layernorm.weight [32] eps 1e-05
  qkv = linear normed, self_attn.q_proj.weight [32 x 32], self_attn.k_proj.weight [16 x 32], \
self_attn.v_proj.weight [16 x 32]
  rope q, 4 heads of 8, slowest 0.001 rad per position
  rope k, 2 heads of 8, slowest 0.001 rad per position
  write_kv k, v: 2 KV heads of 8
  attended = paged_attention q, 4 heads, scale 0.353553, full"""
REST = """\
  residual += linear attended, self_attn.o_proj.weight [32 x 32]
  normed = rms_norm residual, post_attention_layernorm.weight [32] eps 1e-05
  gate_up = linear normed, mlp.gate_proj.weight [48 x 32], mlp.up_proj.weight [48 x 32]
  gated = silu(gate) * up
  residual += linear gated, mlp.down_proj.weight [32 x 48]"""
LLAMA = f"""\
program: 27 operations, 21 weights of 19,616 numbers, vocabulary 64, context 128
buffers: 32, 32, 64, 96, 48, 32, 32, 96, 48 columns
KV group 0: layers 0-1, full attention
residual = embed embed_tokens.weight [64 x 32]
layers 0:
{ATTENTION}
{REST}
layers 1:
{ATTENTION}
  residual = its rows whose logits are wanted
  attended = its rows whose logits are wanted
{REST}
normed = rms_norm residual, norm.weight [32] eps 1e-05
logits = normed, lm_head.weight [64 x 32]"""


def test_layers_of_one_form_are_printed_once():
    assert describe(build_program(small_config())) == LLAMA


def test_layers_of_each_form_are_listed():
    windows = tuple(bool((i + 1) % 3) for i in range(7))
    config = small_config(
        family="gemma3",
        num_hidden_layers=7,
        layer_windows=windows,
        sliding_window=16,
        hidden_act="gelu_pytorch_tanh",
    )
    lines = describe(build_program(config)).splitlines()
    assert [line for line in lines if line.startswith("layers")] == ["layers 0-1, 3-4:", "layers 2, 5:", "layers 6:"]
    assert [line for line in lines if line.startswith("KV group")] == [
        "KV group 0: layers 0-1, window 16",
        "KV group 1: layers 3-4, window 16",
        "KV group 2: layers 6, window 16",
        "KV group 3: layers 2, 5, full attention",
    ]


def test_the_first_operation_after_the_layers_is_not_taken_for_one_of_them():
    lines = describe(build_program(small_config(num_hidden_layers=1))).splitlines()
    assert lines[-2].startswith("normed")
