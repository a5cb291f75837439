"""KV groups: which layers share a block table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.program.operations import KVGroup, KVLayer


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one attention layer keeps per token, and how far back it looks (None: all the way)."""

    kv_heads: int
    head_dim: int
    window: int | None


def group_layers(
    layers: Sequence[LayerShape],
) -> tuple[tuple[KVLayer, ...], tuple[KVGroup, ...], int]:
    """The layers with their places, the groups, and layers_per_group.

    Layers of one window go into groups of as many layers as the rarest window has, so that blocks of all
    groups are alike and one pool serves them: 15 windowed and 3 full layers make five windowed groups and a
    full one of 3 layers each. The last group of a window may be short.
    """
    by_window: dict[int | None, list[int]] = {}
    for number, shape in enumerate(layers):
        by_window.setdefault(shape.window, []).append(number)
    layers_per_group = min((len(numbers) for numbers in by_window.values()), default=0)
    groups: list[KVGroup] = []
    places: dict[int, KVLayer] = {}
    for window, numbers in by_window.items():
        for first in range(0, len(numbers), layers_per_group):
            members = tuple(numbers[first : first + layers_per_group])
            for index, number in enumerate(members):
                shape = layers[number]
                places[number] = KVLayer(shape.kv_heads, shape.head_dim, len(groups), index, window)
            groups.append(KVGroup(members, window))
    return tuple(places[number] for number in range(len(layers))), tuple(groups), layers_per_group
