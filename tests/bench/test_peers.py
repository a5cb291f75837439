"""Other engines, with small programs in their place."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from octavo.bench.peers import InterpreterPeer, LlamaCpp, PeerError, Taken, Work, make_peers

BENCH = """#!{python}
import json, os, signal, sys
arguments = sys.argv[1:]
if arguments == ["--version"]:
    sys.stderr.write("version: 4711 (abc)\\nbuilt with cc\\n")
    sys.exit()
value = lambda name: arguments[arguments.index(name) + 1]
if value("-m").endswith("bad.gguf"):
    sys.stderr.write("cannot load it")
    sys.exit(3)
if value("-m").endswith("foreign.gguf"):
    os.kill(os.getpid(), signal.SIGILL)
if value("-m").endswith("silent.gguf"):
    sys.exit()
assert value("--output-format") == "jsonl" and value("-t") == "2"
assert int(value("-c")) >= int(value("-npl")) * (int(value("-npp")) + int(value("-ntg")))
print("llama: some words")
print(json.dumps({{"pp": int(value("-npp")), "t_pp": 0.5, "t_tg": int(value("-ntg")) / 100, "pl": int(value("-npl"))}}))
"""
DRIVER = """
import json, sys
kind, model, threads = sys.argv[1:]
if model == "bad":
    sys.exit("no such model")
print(json.dumps({"version": f"{kind} 1 {threads}"}), flush=True)
for line in sys.stdin:
    work = json.loads(line)
    if work["concurrency"] == 13:
        sys.exit("thirteen is too many")
    print(json.dumps({"first_s": None, "wall_s": work["input_len"] + work["output_len"]}), flush=True)
"""


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """A directory with something that behaves like llama-batched-bench."""
    program = tmp_path / "llama-batched-bench"
    program.write_text(BENCH.format(python=sys.executable))
    program.chmod(0o755)
    return tmp_path


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "driver.py"
    path.write_text(DRIVER)
    monkeypatch.setattr("octavo.bench.peers.DRIVER", path)


def test_llama_cpp_decodes_one_token_less_than_is_asked_for(llama: Path) -> None:
    peer = LlamaCpp(Path("models/Smol.Q4_0.gguf"), 2, llama)
    assert (peer.name, peer.version) == ("llama.cpp Q4_0", "llama.cpp 4711")
    assert peer.run(Work(4, 100, 21)) == Taken(0.5, 0.5 + 0.2)
    assert peer.run(Work(1, 1024, 1)) == Taken(0.5, 0.5)


def test_llama_cpp_fails_with_its_own_words(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="code 3: cannot load it"):
        LlamaCpp(Path("bad.gguf"), 2, llama).run(Work(1, 8, 8))
    with pytest.raises(PeerError, match="ended with SIGILL"):
        LlamaCpp(Path("foreign.gguf"), 2, llama).run(Work(1, 8, 8))
    with pytest.raises(PeerError, match="no result in"):
        LlamaCpp(Path("silent.gguf"), 2, llama).run(Work(1, 8, 8))
    with pytest.raises(PeerError, match="no llama-batched-bench in /nowhere"):
        LlamaCpp(Path("m.gguf"), 2, Path("/nowhere"))


def test_a_library_works_in_its_own_interpreter(driver: None) -> None:
    peer = InterpreterPeer("openvino", sys.executable, Path("ov-int4"), 3)
    assert (peer.name, peer.version) == ("openvino int4", "openvino 1 3")
    assert peer.run(Work(1, 8, 5)) == Taken(None, 13)
    assert peer.run(Work(2, 9, 5)) == Taken(None, 14)
    with pytest.raises(PeerError, match="code 1: thirteen is too many"):
        peer.run(Work(13, 8, 8))
    with pytest.raises(PeerError, match="openvino int4 ended"):
        peer.run(Work(1, 8, 8))
    peer.close()


def test_what_does_not_start_says_why(driver: None) -> None:
    with pytest.raises(PeerError, match="no such model"):
        InterpreterPeer("openvino", sys.executable, Path("bad"), 1)
    with pytest.raises(PeerError, match="/nowhere/python does not start"):
        InterpreterPeer("openvino", "/nowhere/python", Path("m"), 1)


def test_engines_that_are_not_there_are_named(llama: Path, driver: None) -> None:
    peers, absent = make_peers(
        2,
        [Path("a.Q4_0.gguf"), Path("a.Q8_0.gguf")],
        llama,
        [
            ("openvino", sys.executable, [Path("int4"), Path("bad")]),
            ("transformers", None, [Path("bf16")]),
            ("other", sys.executable, []),
        ],
    )
    assert [peer.name for peer in peers] == ["llama.cpp Q4_0", "llama.cpp Q8_0", "openvino int4"]
    assert "no such model" in absent["openvino bad"]
    assert absent["transformers"] == "no interpreter (--transformers-python)"
    assert absent["other"] == "no model (--other-model)"
    for peer in peers:
        peer.close()
    assert make_peers(1, [], None, [])[1] == {"llama.cpp": "no GGUF file for it (--llama-model)"}
    assert "--llama-cpp" in make_peers(1, [Path("m.gguf")], Path("/nowhere"), [])[1]["llama.cpp"]
