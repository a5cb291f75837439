"""Writes tests/loaders/data/quantised_blocks.npz: random blocks of every tensor kind with their values.

The values are those of the `gguf` package. Usage, where gguf and numpy are installed:
python scripts/make_quantised_blocks_file.py
"""

from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

KINDS = ["BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
# Where the float16 scales of a block are, in bytes: random bits there would be NaN or huge.
SCALES = {"Q8_0": (0,), "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q2_K": (80, 82)}
SCALES |= {"Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}


def main() -> None:
    """Makes the file."""
    random = np.random.default_rng(59)
    arrays = {}
    for kind in KINDS:
        number = GGMLQuantizationType[kind]
        _, block_bytes = GGML_QUANT_SIZES[number]
        count = 4 if block_bytes > 2 else 64
        blocks = random.integers(0, 256, (count, block_bytes), dtype=np.uint8)
        for at in SCALES.get(kind, ()):
            scales = random.normal(0, 0.02, count).astype("<f2")
            blocks[:, at : at + 2] = scales.view(np.uint8).reshape(count, 2)
        if kind == "BF16":
            blocks[:, 1] &= 0x3F  # no NaN
        arrays[f"{kind}_raw"] = blocks.reshape(-1)
        arrays[f"{kind}_values"] = np.asarray(dequantize(blocks, number), dtype=np.float32).reshape(-1)
    out = Path(__file__).parent.parent / "tests/loaders/data/quantised_blocks.npz"
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out, **arrays)


if __name__ == "__main__":
    main()
