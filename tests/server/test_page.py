"""The page in a browser, over servers with the small model. page/checks.mjs has the steps.

Needs node, chromium (or $OCTAVO_CHROMIUM) and `npm install` in tests/server/page; skipped without, unless
$OCTAVO_REQUIRE_BROWSER is set.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_model import make_small_model
from support.running_server import Running, running

from octavo import AsyncLLM

PAGE = Path(__file__).parent / "page"
SCRIPT = PAGE / "checks.mjs"
CHECKS = re.findall(r"^checks\.(\w+) =", SCRIPT.read_text(), re.MULTILINE)
KEY = "a-key-for-tests"


def missing() -> str | None:
    """What the browser tests lack, in words."""
    chromium = os.environ.get("OCTAVO_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        return "no chromium"
    if shutil.which("node") is None:
        return "no node"
    if not (PAGE / "node_modules" / "playwright-core").is_dir():
        return f"no playwright-core: npm install --prefix {PAGE.relative_to(Path.cwd())}"
    return None


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Running]]:
    """One with 10,000 blocks and no key, one with a key; a step takes 30 ms, so that there is something to
    see."""
    model = make_small_model(tmp_path_factory.mktemp("page") / "small")
    with (
        running(slow_llm(model, 1250)) as plain,
        running(slow_llm(model, 16), api_keys=(KEY,)) as keyed,
    ):
        yield plain, keyed


def slow_llm(model: Path, max_num_seqs: int) -> AsyncLLM:
    """8 blocks of 8 tokens for each of its contexts of 64 tokens."""
    llm = AsyncLLM(str(model), block_size=8, kv_cache_memory="1GiB", max_num_seqs=max_num_seqs, threads=1)
    engine: Any = llm.loaded.engine
    engine._eos = ()  # random weights would end an answer anywhere
    step = engine.step

    def slow_step() -> Any:
        time.sleep(0.03)
        return step()

    engine.step = slow_step
    return llm


@pytest.fixture(scope="module")
def results(servers: tuple[Running, Running]) -> dict[str, dict[str, Any]]:
    """What each check found, all in one browser."""
    lack = missing()
    if lack is not None:
        message = f"the page is not tested in a browser: {lack}"
        pytest.fail(message) if os.environ.get("OCTAVO_REQUIRE_BROWSER") else pytest.skip(message)
    plain, keyed = servers
    orders = {
        "chromium": os.environ.get("OCTAVO_CHROMIUM") or shutil.which("chromium"),
        "url": f"http://127.0.0.1:{plain.port}/",
        "keyed": f"http://127.0.0.1:{keyed.port}/",
        "key": KEY,
    }
    done = subprocess.run(
        ["node", SCRIPT, json.dumps(orders)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("name", CHECKS)
def test_page(results: dict[str, dict[str, Any]], name: str) -> None:
    result = results[name]
    assert result["ok"], f"{result.get('error')}\n{result.get('complaints')}"


def test_blocks_are_free_when_the_browser_has_left(
    results: dict[str, dict[str, Any]], servers: tuple[Running, Running]
) -> None:
    for server in servers:
        server.client.headers["Authorization"] = f"Bearer {KEY}"
        server.assert_well()
