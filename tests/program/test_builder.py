"""The builder checks shapes, names weights, and shares buffers without mixing values up."""

import pytest

from octavo.program.buffers import operation_values
from octavo.program.builder import ProgramBuilder, Projection
from octavo.program.kv_groups import LayerShape, group_layers
from octavo.program.operations import Linear, SelectRows
from octavo.program.rope import make_rope


def finish(builder, x):
    wanted = builder.select_rows(x)
    builder.logits(wanted, "head")
    return builder.build()


def test_weights_are_named_with_their_shapes():
    builder = ProgramBuilder(50, 10)
    x = builder.embed("embed", 8)
    x = builder.rms_norm(x, "norm", 1e-5)
    builder.linear(x, (Projection("a", 3, bias=True), Projection("b", 5)), "y")
    assert finish(builder, x).weights == {
        "embed": (50, 8),
        "norm": (8,),
        "a.weight": (3, 8),
        "a.bias": (3,),
        "b.weight": (5, 8),
        "head": (50, 8),
    }


def test_a_weight_used_twice_must_agree_on_its_shape():
    builder = ProgramBuilder(50, 10)
    x = builder.embed("embed", 8)
    with pytest.raises(ValueError, match=r"weight embed is used as \[50, 8\] and as \[8\]"):
        builder.rms_norm(x, "embed", 1e-5)


def test_merged_linear_is_read_in_parts():
    builder = ProgramBuilder(50, 10)
    merged = builder.linear(builder.embed("embed", 8), (Projection("a", 3), Projection("b", 5)), "m")
    a, b = builder.split(merged, ("a", 3), ("b", 5))
    assert (a.buffer, a.offset, a.width, b.buffer, b.offset, b.width) == (
        merged.buffer,
        0,
        3,
        merged.buffer,
        3,
        5,
    )
    with pytest.raises(ValueError, match="do not add up to 8"):
        builder.split(merged, ("a", 3), ("b", 4))


def test_shape_errors_are_found_while_building():
    builder = ProgramBuilder(50, 10)
    x = builder.embed("embed", 8)
    wide = builder.linear(x, (Projection("w", 12),), "wide")
    layer = builder.kv_layer(kv_heads=2, head_dim=4)
    with pytest.raises(ValueError, match="write_kv: wide has 12 columns, not 8"):
        builder.write_kv(x, wide, layer)
    with pytest.raises(ValueError, match="3 heads are not a multiple of 2 KV heads"):
        builder.paged_attention(wide, layer, heads=3, scale=1.0)
    with pytest.raises(ValueError, match="paged_attention: wide has 12 columns, not 8"):
        builder.paged_attention(wide, layer, heads=2, scale=1.0)
    with pytest.raises(ValueError, match="gated_activation: wide"):
        builder.gated_activation(x, wide, "silu")
    with pytest.raises(ValueError, match="add_into: wide"):
        builder.add_into(x, wide)
    with pytest.raises(ValueError, match="rope: residual has 8 columns, not a multiple of 3 heads"):
        builder.rope(x, 3, make_rope(4, 1e4, None, 10))
    with pytest.raises(ValueError, match="rotary_dim 8 with 4 frequencies does not fit head_dim 4"):
        builder.rope(x, 2, make_rope(8, 1e4, None, 10))
    with pytest.raises(ValueError, match="logits: residual has tokens rows"):
        builder.logits(x, "head")
    with pytest.raises(ValueError, match="linear into residual"):
        builder.linear_into(x, x, Projection("p", 7))
    with pytest.raises(ValueError, match="ends with logits"):
        builder.build()


def test_buffers_are_shared_but_never_read_and_overwritten_by_one_operation():
    builder = ProgramBuilder(50, 10)
    residual = builder.embed("embed", 8)
    for number in range(4):
        normed = builder.rms_norm(residual, f"norm{number}", 1e-5)
        mixed = builder.linear(normed, (Projection(f"a{number}", 8),), "mixed")
        builder.linear_into(residual, mixed, Projection(f"b{number}", 8))
    program = finish(builder, residual)
    assert program.buffer_widths == (8, 8, 8, 8)
    for op in program.operations:
        values = operation_values(op)
        if isinstance(op, Linear | SelectRows):
            assert values["out"].buffer != values["x"].buffer
    linears = [op for op in program.operations if isinstance(op, Linear)]
    assert {(op.x.buffer, op.out.buffer) for op in linears if op.accumulate} == {(2, 0)}


def groups_of(windows):
    layers, groups, layers_per_group = group_layers([LayerShape(1, 8, w) for w in windows])
    for number, layer in enumerate(layers):
        assert groups[layer.group].layers[layer.index] == number
        assert groups[layer.group].window == layer.window == windows[number]
    return [group.layers for group in groups], layers_per_group


def test_one_group_where_all_layers_are_alike():
    assert groups_of([None] * 3) == ([(0, 1, 2)], 3)
    assert groups_of([16] * 3) == ([(0, 1, 2)], 3)


def test_groups_have_as_many_layers_as_the_rarer_kind():
    windows = [512 if (i + 1) % 6 else None for i in range(18)]
    groups, layers_per_group = groups_of(windows)
    assert layers_per_group == 3
    assert len(groups) == 6
    assert groups[-1] == (5, 11, 17)


def test_the_last_group_of_a_kind_may_be_short():
    assert groups_of([4, 4, None, 4, 4, None, 4]) == ([(0, 1), (3, 4), (6,), (2, 5)], 2)
