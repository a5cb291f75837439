"""A model with quantised weights as a GGUF file."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Final

from octavo.loaders.checkpoint import Checkpoint, check_weights, open_checkpoint
from octavo.loaders.gguf import read_gguf
from octavo.loaders.gguf_writer import NewTensor, copied_metadata, require_room, scalar, write_gguf
from octavo.loaders.hub import resolve_model
from octavo.memory import core_facts
from octavo.models.registry import build_program
from octavo.quantize.calibration import measure_importance, require_memory
from octavo.quantize.check import Check, check_divergence, choose_baseline
from octavo.quantize.description import check_description, model_metadata, model_tensors
from octavo.quantize.tensors import (
    FLOAT_KINDS,
    Conversion,
    Format,
    Pieces,
    directory_conversions,
    gguf_conversions,
    new_tensors,
)
from octavo.quantize.vocabulary import check_same_ids, vocabulary_metadata
from octavo.text.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from octavo.text.tokenizer import Tokenizer

_FILE_TYPES: Final = {"w4": 3, "w8": 7}  # "mostly Q4_1", "mostly Q8_0"
_BLOCK_LAYOUT_VERSION: Final = 2
# Of the file that a copy was made of: its types, its padding, and how its own quantisation came about.
_NOT_COPIED: Final = ("general.alignment", "general.file_type", "general.quantization_version", "quantize.")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Quantized:
    """What was written."""

    path: Path
    format: Format
    num_weights: int
    old_bytes: int
    """of the original's tensors"""
    new_bytes: int
    """of the file"""
    kinds: Mapping[str, int]
    """kind -> number of tensors"""
    seconds: float
    """for calibration and writing, without the check"""
    check: Check | None
    """None where it was not wanted"""


class Quantization:
    """One model on its way to one file: everything that can be refused is refused at construction."""

    def __init__(
        self,
        model: str | Path,
        out: Path,
        target: Format,
        *,
        force: bool = False,
        requantize: bool = False,
        calibrate: bool = True,
        check: bool = True,
        threads: int | None = None,
    ) -> None:
        """`model`: what octavo loads; `out`: the file to write.

        force: replace `out` where it exists. requantize: take a model whose weights are quantised already. calibrate:
        with 4 bits, let errors count by how large the inputs of the weights are on a text. check: measure the
        divergence afterwards. Raises ValueError or OSError with what is wrong.
        """
        _check_place(out, force)
        self.out, self.target = out, target
        self.threads = threads or core_facts().usable
        self.original = open_checkpoint(resolve_model(model))
        check_weights(build_program(self.original.config).weights, self.original)
        self.tokenizer = load_tokenizer(self.original.tokenizer_files())
        if self.original.path.is_dir():
            self.metadata, self.conversions, self.extra = _from_directory(self.original, self.tokenizer, target)
        else:
            self.metadata, self.conversions, self.extra = _from_gguf(self.original, target)
        if not requantize:
            _refuse_quantized(self.original.path, self.conversions)
        self.metadata |= {
            "general.file_type": scalar("u32", _FILE_TYPES[target]),
            "general.quantization_version": scalar("u32", _BLOCK_LAYOUT_VERSION),
        }
        shapes = [*self.extra, *new_tensors(self.conversions)]
        self.new_bytes = sum(tensor.nbytes for tensor in shapes)
        if self.original.path.is_dir():
            check_description(self.original.config, self.metadata, shapes)
        require_room(out.parent, self.new_bytes)
        self.calibrate = calibrate and target == "w4"
        if self.calibrate:
            require_memory(self.original)
        self.baseline = choose_baseline(self.original, self.new_bytes) if check else None

    @property
    def old_bytes(self) -> int:
        """of the original's tensors, as stored"""
        return sum(source.raw.nbytes for source in self.original.tensors.values())

    def run(self, written: Callable[[int], None] = lambda _: None, say: Say = lambda _: None) -> Quantized:
        """Writes the file and checks it. `written` is told the bytes of each piece, `say` what is being done.

        Raises ValueError, naming the tensor, where a weight is not finite; then no file is left behind.
        """
        started = time.perf_counter()
        conversions = self.conversions
        if self.calibrate:
            say("weighing the inputs of the linears on a text")
            importance = measure_importance(self.original, self.tokenizer, self.threads)
            conversions = [replace(each, importance=importance.get(each.canonical)) for each in conversions]
        with ThreadPoolExecutor(self.threads, "octavo-quantize") as pool:
            tensors = [*self.extra, *new_tensors(conversions, Pieces(pool, 2 * self.threads))]
            size = write_gguf(self.out, self.metadata, tensors, written)
        seconds = time.perf_counter() - started
        check = None
        if self.baseline is not None:
            say("checking the divergence from the original")
            check = self._check(self.baseline)
        return Quantized(
            path=self.out,
            format=self.target,
            num_weights=sum(prod(each.source.shape) for each in self.conversions),
            old_bytes=self.old_bytes,
            new_bytes=size,
            kinds=dict(Counter(each.kind for each in self.conversions).most_common()),
            seconds=seconds,
            check=check,
        )

    def _check(self, baseline: str) -> Check:
        written = open_checkpoint(self.out)
        check_weights(build_program(written.config).weights, written)
        check_same_ids(self.tokenizer, load_tokenizer(written.tokenizer_files()), str(self.out))
        return check_divergence(self.original, written, self.tokenizer, self.target, baseline, self.threads)


_Parts = tuple[dict[str, bytes], list[Conversion], list[NewTensor]]
"""metadata, conversions, tensors that are written as they are"""


def _from_directory(original: Checkpoint, tokenizer: Tokenizer, target: Format) -> _Parts:
    config = original.config
    metadata = model_metadata(config, original.path.resolve().name)
    metadata |= vocabulary_metadata(original.path, tokenizer, config.vocab_size)
    return metadata, directory_conversions(list(original.tensors.values()), config, target), model_tensors(config)


def _from_gguf(original: Checkpoint, target: Format) -> _Parts:
    file = read_gguf(original.path)
    metadata = {key: value for key, value in copied_metadata(file).items() if not key.startswith(_NOT_COPIED)}
    return metadata, gguf_conversions(file, original.config, target), []


def _check_place(out: Path, force: bool) -> None:
    if out.is_dir():
        raise IsADirectoryError(f"{out}: is a directory; the name of a file is needed")
    if out.exists() and not force:
        raise FileExistsError(f"{out}: exists; --force replaces it")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"{out}: the directory {out.parent} does not exist")


def _refuse_quantized(path: Path, conversions: Sequence[Conversion]) -> None:
    """Raises ValueError where the weights have been rounded before: a second time makes a worse model."""
    counts = Counter(each.source.kind for each in conversions if each.source.kind not in FLOAT_KINDS)
    if counts:
        found = ", ".join(f"{number} x {kind}" for kind, number in counts.most_common())
        raise ValueError(
            f"{path}: is quantised already ({found}); its weights would be rounded a second time. Take the original, "
            "or --requantize to work from the dequantised weights"
        )
