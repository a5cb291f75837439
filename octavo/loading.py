"""From options to a model that is ready to run: checkpoint, program, executor, KV memory, tokenizer,
engine."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.config import EngineOptions, format_bytes
from octavo.memory import core_facts, default_kv_bytes, memory_facts
from octavo.native_library import native_library
from octavo.tuning import stored_tuning

if TYPE_CHECKING:
    from octavo.engine.engine import Engine
    from octavo.executors.interface import Executor
    from octavo.executors.native import NativeExecutor
    from octavo.executors.reference import ReferenceExecutor
    from octavo.guidance import GrammarCompiler
    from octavo.loaders.checkpoint import Checkpoint
    from octavo.models.model_config import ModelConfig
    from octavo.program.operations import Program
    from octavo.text.tokenizer import Tokenizer

Progress = Callable[[str], None]
"""Told what is being done, in a few words"""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that is ready to run, and what was decided on the way."""

    options: EngineOptions
    path: Path
    config: ModelConfig
    fingerprint: str
    program: Program
    executor: Executor
    tokenizer: Tokenizer
    engine: Engine
    threads: int
    max_model_len: int
    """Tokens of prompt and answer together"""
    num_blocks: int
    block_bytes: int
    weight_bytes: int
    """Of the checkpoint's tensors, as stored"""
    kv_cache_dtype: str
    """How the executor keeps K and V"""
    grammars: GrammarCompiler
    """Compiles structured outputs; builds nothing before the first one"""
    block_size_reason: str = "as the options say"

    @property
    def vocab_size(self) -> int:
        return self.program.vocab_size

    @property
    def kv_cache_bytes(self) -> int:
        """The cap of the KV memory."""
        return self.num_blocks * self.block_bytes

    def close(self) -> None:
        """Frees the executor's threads and memory."""
        self.grammars.close()
        self.engine.close()
        self.executor.close()


def load(options: EngineOptions, progress: Progress | None = None) -> LoadedModel:
    """Loads a model. Raises ValueError (bad options or files) or OSError, naming what is wrong."""
    from octavo.loaders.checkpoint import open_checkpoint
    from octavo.loaders.hub import resolve_model
    from octavo.models.registry import build_program

    say = progress or (lambda _: None)
    path = resolve_model(options.model)
    say(f"opening {path.name}")
    checkpoint = open_checkpoint(path)
    tokenizer = _InBackground(lambda: _load_tokenizer(checkpoint))
    max_model_len = resolve_max_model_len(options, checkpoint.config)
    program = build_program(checkpoint.config, max_model_len)
    threads = options.threads or core_facts().usable
    options, reason = resolve_block_size(options, checkpoint.fingerprint, threads)
    say(f"blocks of {options.block_size} tokens: {reason}")
    say(f"loading {sum(source.raw.nbytes for source in checkpoint.tensors.values()) / 1e6:.0f} MB of weights")
    executor = build_executor(options, program, checkpoint, threads)
    try:
        warn_of_slow_activations(options, executor)
        if executor.kv_cache_dtype == "int8":
            say("checking what KV in int8 does to this model's distributions")
            warn_of_kv_drift(executor, program, tokenizer.result(), checkpoint.fingerprint)
        loaded = _assemble(options, checkpoint, program, executor, tokenizer.result(), threads, max_model_len)
        return replace(loaded, block_size_reason=reason)
    except BaseException:
        executor.close()
        raise


def _assemble(
    options: EngineOptions,
    checkpoint: Checkpoint,
    program: Program,
    executor: NativeExecutor | ReferenceExecutor,
    tokenizer: Tokenizer,
    threads: int,
    max_model_len: int,
) -> LoadedModel:
    from octavo.engine.cache_key import encode_fields
    from octavo.engine.engine import Engine
    from octavo.engine.engine_config import EngineConfig
    from octavo.guidance import GrammarCompiler
    from octavo.sampling.sampler import Sampler

    eos_token_ids = frozenset({*tokenizer.eos_token_ids, *checkpoint.config.eos_token_ids})
    block_size = _block_size(options)
    block_bytes = executor.block_bytes(block_size)
    num_blocks = choose_num_blocks(options, program, block_bytes, max_model_len)
    engine = Engine(
        executor=executor,
        sampler=Sampler(
            program.vocab_size,
            getattr(executor, "thread_team", None),
            instruction_set=options.instruction_set or "",
        ),
        program=program,
        config=EngineConfig(
            num_blocks=num_blocks,
            block_size=block_size,
            max_model_len=max_model_len,
            max_num_seqs=options.max_num_seqs,
            max_num_batched_tokens=options.max_num_batched_tokens,
            max_draft_tokens=options.max_draft_tokens,
            enable_prefix_caching=options.enable_prefix_caching,
            cache_namespace=encode_fields(
                [
                    ("model", checkpoint.fingerprint),
                    ("executor", executor.name),
                    ("dtype", options.dtype),
                    ("activation_dtype", options.activation_dtype),
                    ("kv_cache_dtype", executor.kv_cache_dtype),
                ]
            ),
        ),
        eos_token_ids=eos_token_ids,
    )
    return LoadedModel(
        options=options,
        path=checkpoint.path,
        config=checkpoint.config,
        fingerprint=checkpoint.fingerprint,
        program=program,
        executor=executor,
        tokenizer=tokenizer,
        engine=engine,
        threads=threads,
        max_model_len=max_model_len,
        num_blocks=num_blocks,
        block_bytes=block_bytes,
        weight_bytes=sum(source.raw.nbytes for source in checkpoint.tensors.values()),
        kv_cache_dtype=executor.kv_cache_dtype,
        grammars=GrammarCompiler(tokenizer, program.vocab_size, eos_token_ids),
    )


def resolve_max_model_len(options: EngineOptions, config: ModelConfig) -> int:
    """The option, or what the model was made for. Raises ValueError where the option is above what it can do."""
    from octavo.models.decoder import context_length, longest_context

    if options.max_model_len is None:
        return context_length(config)
    limit = longest_context(config)
    if options.max_model_len > limit:
        raise ValueError(f"max_model_len={options.max_model_len}: the model was made for at most {limit} tokens")
    return options.max_model_len


def resolve_block_size(options: EngineOptions, fingerprint: str, threads: int) -> tuple[EngineOptions, str]:
    """Options whose block size is a number, and why it is this one."""
    if options.block_size != "auto":
        return options, "as the options say"
    tuning = stored_tuning(fingerprint, threads)
    return replace(options, block_size=tuning.block_size), tuning.reason


def _block_size(options: EngineOptions) -> int:
    assert isinstance(options.block_size, int), "resolve_block_size() comes first"
    return options.block_size


def choose_num_blocks(options: EngineOptions, program: Program, block_bytes: int, max_model_len: int) -> int:
    """Blocks of the pool: what the cap holds, and never more than max_num_seqs full contexts can use.

    Raises ValueError where not even one block per KV group fits.
    """
    groups = len(program.kv_groups)
    block_size = _block_size(options)
    useful = options.max_num_seqs * groups * -(-max_model_len // block_size)
    cap = options.kv_cache_bytes
    if cap is None:
        cap = default_kv_bytes(memory_facts(), useful * block_bytes)
    num_blocks = min(cap // block_bytes, useful)
    if num_blocks < groups:
        given = options.kv_cache_memory or format_bytes(cap)
        raise ValueError(
            f"kv_cache_memory={given!r}: holds {num_blocks} blocks of {block_size} tokens; "
            f"the model needs at least {groups}, {format_bytes(groups * block_bytes)}"
        )
    return num_blocks


def warn_of_slow_activations(options: EngineOptions, executor: NativeExecutor | ReferenceExecutor) -> None:
    """A warning where 8-bit activations are slower than the exact ones, which tiles multiply (decision 8)."""
    if options.activation_dtype == "int8" and getattr(executor, "instruction_set", None) == "amx":
        warnings.warn(
            "activation_dtype='int8': with AMX it is slower than the default for prompts and many sequences, and less "
            "accurate; activation_dtype='auto' is the better one here.",
            RuntimeWarning,
            stacklevel=3,
        )


def warn_of_kv_drift(
    executor: NativeExecutor | ReferenceExecutor, program: Program, tokenizer: Tokenizer, fingerprint: str
) -> None:
    """The accuracy guard of KV in int8: a warning where it moves the model's distributions by more than KV_DRIFT_BOUND.

    Measured once per model file, executor and compute format; kept under $OCTAVO_HOME.
    """
    from octavo.kv_drift import KV_DRIFT_BOUND, find_kv_drift

    drift = find_kv_drift(executor, program, tokenizer.encode, fingerprint)
    if drift.mean_kl > KV_DRIFT_BOUND:
        warnings.warn(
            f"kv_cache_dtype='int8': this model's distributions move by {drift.mean_kl:.3g} nats on average over "
            f"{drift.positions} positions of a sample text, more than the bound of {KV_DRIFT_BOUND}, and "
            f"{1 - drift.top1_agreement:.0%} of them have another most likely token: answers suffer. "
            "kv_cache_dtype='auto' does not.",
            RuntimeWarning,
            stacklevel=3,
        )


def build_executor(
    options: EngineOptions, program: Program, checkpoint: Checkpoint, threads: int
) -> NativeExecutor | ReferenceExecutor:
    """The executor that the options ask for. "auto" takes native, and reference with a warning where it
    cannot be."""
    if options.executor == "reference":
        return _build(options, "reference", program, checkpoint, threads)
    reasons = unsupported_reasons("native", options)
    if options.executor == "native" or options.instruction_set is not None or not reasons:
        return _build(options, "native", program, checkpoint, threads)
    warnings.warn(
        "the native executor is not usable (" + "; ".join(reasons) + "): the reference executor runs instead, "
        "which is slow. `octavo doctor` says more.",
        RuntimeWarning,
        stacklevel=2,
    )
    return _build(options, "reference", program, checkpoint, threads)


def unsupported_reasons(name: str, options: EngineOptions | None = None) -> list[str]:
    """Why this machine, this installation or these options cannot use an executor; empty where they can."""
    if name == "reference":
        if options is not None and options.dtype == "bfloat16":
            return ["dtype='bfloat16': the reference executor computes in float32 only"]
        if options is not None and options.activation_dtype == "int8":
            return ["activation_dtype='int8': the reference executor computes in float32 only"]
        if options is not None and options.kv_cache_dtype == "bfloat16":
            return ["kv_cache_dtype='bfloat16': the reference executor keeps K and V in float32 or int8"]
        return []
    try:
        native = native_library()
        best = native.detect_isa()
    except ImportError as error:
        return [f"the native library is not built, or does not load: {error}"]
    except RuntimeError as error:
        return [str(error)]
    wanted = None if options is None else options.instruction_set
    if wanted is not None and not native.isa_supported(wanted):
        return [f"instruction_set={wanted!r}: the best that this machine has is {best!r}"]
    return []


def _build(
    options: EngineOptions, name: str, program: Program, checkpoint: Checkpoint, threads: int
) -> NativeExecutor | ReferenceExecutor:
    from octavo.loaders.checkpoint import check_weights

    reasons = unsupported_reasons(name, options)
    if reasons:
        raise ValueError(f"executor={name!r}: " + "; ".join(reasons))
    check_weights(program.weights, checkpoint)
    if name == "reference":
        from octavo.executors.reference import ReferenceExecutor

        assert options.kv_cache_dtype != "bfloat16", "unsupported_reasons() refuses it"
        return ReferenceExecutor(program, checkpoint, threads, options.kv_cache_dtype)
    from octavo.executors.native import NativeExecutor

    return NativeExecutor(
        program,
        checkpoint,
        options.dtype,
        threads,
        options.instruction_set,
        options.kv_cache_dtype,
        options.activation_dtype,
    )


def _load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    from octavo.text.tokenizer import load_tokenizer

    return load_tokenizer(checkpoint.tokenizer_files())


class _InBackground:
    """A value computed in a thread, while the weights are being packed by others."""

    def __init__(self, compute: Callable[[], Any]) -> None:
        self._compute = compute
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="octavo-tokenizer", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._compute()
        except BaseException as error:
            self._error = error

    def result(self) -> Any:
        """Waits for the value; raises what the computation raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value
