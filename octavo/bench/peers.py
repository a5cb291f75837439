"""Other engines that `octavo bench compare` runs beside this one: each in a process of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Protocol

BATCHED_BENCH = "llama-batched-bench"
DRIVER = Path(__file__).parent / "drivers" / "peer_driver.py"


@dataclass(frozen=True, slots=True)
class Work:
    """Random prompts at once, greedy, end of sequence ignored."""

    concurrency: int
    input_len: int
    output_len: int
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """Seconds that some work took."""

    first_s: float | None
    """To the end of the prefill, when the last sequence has its first token; None where the engine does not tell"""
    wall_s: float
    """To the last token"""


class Peer(Protocol):
    """An engine that can be given work."""

    name: str
    version: str

    def run(self, work: Work) -> Taken:
        """Does it. Raises PeerError where the engine fails."""
        ...

    def close(self) -> None:
        """Ends its process, if it has one."""
        ...


class PeerError(RuntimeError):
    """Another engine did not start, or failed."""


class LlamaCpp:
    """llama.cpp by its llama-batched-bench, which loads the model anew for each piece of work.

    It computes the prompts in one batch, then one token of each sequence at a time, as often as asked; it samples
    nothing. Its prefill gives the first token here, so one decode step less is asked for.
    """

    def __init__(self, model: Path, threads: int, directory: Path | None = None) -> None:
        """directory: where llama-batched-bench is; None: on the PATH. Raises PeerError where it is not."""
        found = shutil.which(BATCHED_BENCH, path=None if directory is None else str(directory))
        if found is None:
            raise PeerError(f"no {BATCHED_BENCH} in {directory or 'PATH'}")
        self._program = Path(found)
        self._model, self._threads = model, threads
        self.name = f"llama.cpp {_last_part(model.name)}"
        self.version = self._version()

    def run(self, work: Work) -> Taken:
        """Does it."""
        decode = max(1, work.output_len - 1)
        room = work.concurrency * (-(-(work.input_len + decode) // 256) * 256)
        lengths = ("-npp", work.input_len, "-ntg", decode, "-npl", work.concurrency, "-c", room, "-b", 2048)
        lines = self._call("-m", self._model, "-t", self._threads, *lengths, "--output-format", "jsonl").splitlines()
        for line in lines:
            if line.startswith("{"):
                row = json.loads(line)
                tail = row["t_tg"] if work.output_len > 1 else 0.0
                return Taken(row["t_pp"], row["t_pp"] + tail)
        raise PeerError(f"{self.name}: no result in: {' / '.join(lines)[-500:]}")

    def close(self) -> None:
        """No process is left."""

    def _version(self) -> str:
        found = re.search(r"version: (\S+)", self._call("--version", both=True))
        return f"llama.cpp {found[1] if found else '(version not told)'}"

    def _call(self, *arguments: object, both: bool = False) -> str:
        # Builds that keep their libraries beside their programs are not always told so.
        paths = [str(self._program.resolve().parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        done = subprocess.run(
            [str(self._program), *map(str, arguments)],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(paths)},
        )
        if done.returncode != 0:
            raise PeerError(f"{self.name} ended with {_code(done.returncode)}: {done.stderr.strip()[-500:]}")
        return done.stdout + (done.stderr if both else "")


class InterpreterPeer:
    """An engine that is a Python library: peer_driver.py in an interpreter that has it."""

    def __init__(self, kind: str, python: str, model: Path, threads: int) -> None:
        """kind: openvino or transformers. Starts the process and waits for the model; raises PeerError."""
        self.name = f"{kind} {_last_part(model.name)}"
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                [python, str(DRIVER), kind, str(model), str(threads)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
        except OSError as error:
            self._errors.close()
            raise PeerError(f"{self.name}: {python} does not start: {error}") from None
        try:
            self.version: str = self._answer()["version"]
        except PeerError:
            self.close()
            raise

    def run(self, work: Work) -> Taken:
        """Does it."""
        assert self._process.stdin is not None
        with suppress(OSError):  # the answer, which does not come then, says why
            print(json.dumps(asdict(work)), file=self._process.stdin, flush=True)
        return Taken(**self._answer())

    def close(self) -> None:
        """Ends the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.terminate()
        self._process.wait()
        self._errors.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._errors.seek(0)
            words = self._errors.read().decode(errors="replace").strip()
            raise PeerError(f"{self.name} ended with {_code(code)}: {words[-500:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _code(code: int) -> str:
    """An exit code in words: a build for another machine ends with SIGILL."""
    return f"code {code}" if code >= 0 else signal.Signals(-code).name


def _last_part(name: str) -> str:
    """What tells models of one family apart: "SmolLM2-135M-Instruct.Q4_0" -> "Q4_0", "ov-int4" -> "int4"."""
    name = name.removesuffix(".gguf")
    return re.split(r"[.-]", name)[-1] or name


def make_peers(
    threads: int,
    llama_models: Sequence[Path],
    llama_directory: Path | None,
    interpreters: Sequence[tuple[str, str | None, Sequence[Path]]],
) -> tuple[list[Peer], dict[str, str]]:
    """The engines that are there, started, and why the others are not, by name.

    interpreters: (kind, python, models) of those that are Python libraries.
    """
    peers: list[Peer] = []
    absent: dict[str, str] = {}
    if not llama_models:
        absent["llama.cpp"] = "no GGUF file for it (--llama-model)"
    for model in llama_models:
        try:
            peers.append(LlamaCpp(model, threads, llama_directory))
        except PeerError as error:
            absent["llama.cpp"] = f"{error} (--llama-cpp)"
    for kind, python, models in interpreters:
        if python is None or not models:
            absent[kind] = f"no interpreter (--{kind}-python)" if python is None else f"no model (--{kind}-model)"
            continue
        for model in models:
            try:
                peers.append(InterpreterPeer(kind, python, model, threads))
            except PeerError as error:
                absent[f"{kind} {_last_part(model.name)}"] = str(error)
    return peers, absent
