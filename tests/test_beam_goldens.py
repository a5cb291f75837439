"""Beams of small and of real models equal those of transformers in fp32: ids and scores, batched and alone."""

import json
from pathlib import Path

import pytest
from support.real_models import NAMES, read_goldens

from octavo.beam_search_params import BeamSearchParams
from octavo.engine.engine import Engine, EngineConfig, Request
from octavo.loaders.checkpoint import open_checkpoint
from octavo.models.registry import build_program
from octavo.sampling.sampler import Sampler

DATA = Path(__file__).parent
SMALL = json.loads((DATA / "models" / "data" / "beams.json").read_text())


def search(executor, program, rows, prompts, alone=False):
    """[(ids of all beams, scores)] of rows that share their ends of sequence."""
    config = EngineConfig(
        num_blocks=4000, block_size=16, max_model_len=min(1024, program.max_model_len), max_num_batched_tokens=512
    )
    ends = rows[0]["eos_token_ids"]
    engine = Engine(executor, Sampler(program.vocab_size), program, config, ends)
    beams, scores = [[[] for _ in row["beams"]] for row in rows], [[0.0] * len(row["beams"]) for row in rows]
    for number, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
        engine.add_request(Request(str(number), prompt, BeamSearchParams(**row["params"])))
        while engine.has_unfinished and (alone or number == len(rows) - 1):
            for update in engine.step():
                if update.token_id >= 0:
                    beams[int(update.request_id)][update.index].append(update.token_id)
                if update.beam is not None:
                    scores[int(update.request_id)][update.index] = update.beam.score
    assert engine.stats().referenced_blocks == 0
    return list(zip(beams, scores, strict=True))


def check(found, rows):
    for (beams, scores), row in zip(found, rows, strict=True):
        assert beams == row["beams"], row["params"]
        assert scores == pytest.approx(row["scores"], abs=2e-4), row["params"]


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "batched"])
@pytest.mark.parametrize("name", sorted({row["model"] for row in SMALL}))
def test_small_models(name, alone, make_executor):
    """F22"""
    rows = [row for row in SMALL if row["model"] == name]
    assert len(rows) == 27
    rows = rows[::9] if alone else rows
    checkpoint = open_checkpoint(DATA / "models" / "data" / name)
    program = build_program(checkpoint.config)
    executor = make_executor(program, checkpoint)
    check(search(executor, program, rows, [row["prompt_token_ids"] for row in rows], alone), rows)


@pytest.mark.real_model
@pytest.mark.parametrize("name", NAMES)
def test_real_models(name):
    """F22: widths 2, 4 and 8, length penalties 0.5, 1 and 2, early stopping or not, of 12 and of 56 tokens."""
    from octavo.executors.native import NativeExecutor
    from octavo.loaders.aliases import ALIASES
    from octavo.loaders.hub import octavo_home

    path = octavo_home() / "models" / ALIASES[name].filename
    if not path.exists():
        pytest.skip(f"{path} is not there")
    rows = json.loads((DATA / "data" / f"beams_{name}.json").read_text())
    prompts = read_goldens(name)
    checkpoint = open_checkpoint(path)
    program = build_program(checkpoint.config)
    executor = NativeExecutor(program, checkpoint, "float32", num_threads=2)

    def check_all(rows, alone=False):
        check(search(executor, program, rows, [prompts[row["prompt"]].prompt_token_ids for row in rows], alone), rows)

    for ends in sorted({tuple(row["eos_token_ids"]) for row in rows}):
        check_all([row for row in rows if row["eos_token_ids"] == list(ends)])
    long = [row for row in rows if row["params"]["max_tokens"] > 12]
    assert len(long) >= 2 and max(len(beam) for row in long for beam in row["beams"]) == 56
    check_all(long[-1:], alone=True)
    executor.close()
