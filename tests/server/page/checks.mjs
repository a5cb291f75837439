// Drives the page in a browser: node checks.mjs '{"chromium": PATH, "url": URL, "keyed": URL, "key": KEY}'
// Prints one line of JSON: what each check found, or how it failed.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { chromium } from "playwright-core";

const { chromium: executablePath, url, keyed, key } = JSON.parse(process.argv[2]);
const PATIENCE = 15000;
const checks = {};

checks.chat_streams_an_answer = async (page) => {
  await page.goto(url);
  await ask(page, "hi", { "max-tokens": 20 });
  const place = page.locator(".choice").first();
  const lengths = new Set();
  for (const end = Date.now() + PATIENCE; (await page.locator("#stop").isVisible()) && Date.now() < end; ) {
    lengths.add((await place.textContent()).length);
  }
  assert.ok(lengths.size >= 3, `the text came in ${lengths.size} pieces`);
  await page.waitForFunction(() => document.querySelector(".facts").textContent.includes("20 tokens"));
  assert.equal(await page.locator(".message.user").textContent(), "hi");
  assert.match(await page.locator(".facts").textContent(), /prompt tokens.*first text after \d+ ms.*cut at max tokens/);
  assert.equal(await page.locator("#prompt").inputValue(), "");
};

checks.stop_frees_the_blocks = async (page) => {
  await page.goto(url);
  await ask(page, "stop me", { "max-tokens": 30 });
  await page.waitForFunction(() => {
    const begun = document.querySelector(".choice")?.textContent.length > 2;
    if (begun) document.querySelector("#stop").click();
    return begun;
  });
  await page.waitForFunction(() => document.querySelector(".facts").textContent.includes("stopped"));
  await page.waitForFunction(() => document.querySelector("#tile-requests").textContent === "0 run, 0 wait");
  assert.ok((await page.locator(".choice").textContent()).length < 30);
  assert.equal(await page.locator("#send").isEnabled(), true);
};

checks.answers_share_blocks_and_the_map_shows_it = async (page) => {
  await page.goto(url);
  await ask(page, "share this", { n: 3, "max-tokens": 24 });
  await page.waitForFunction(() => document.querySelector("#request-rows").textContent.includes("n = 3"));
  assert.equal(await page.locator(".choice").count(), 3);
  assert.match(await page.locator("#tile-shared").textContent(), /^\d+, save \d+$/);
  assert.match(await page.locator("#request-rows tr").first().textContent(), /running/);
  const { shared, free } = await page.evaluate(cellColours);
  assert.notDeepEqual(shared, free);
  assert.match(await page.locator("#text-longest").textContent(), /192 tokens \(\d/);
  await settle(page);
};

checks.blocks_tell_their_owners_to_pointer_and_keys = async (page) => {
  await page.goto(url);
  await ask(page, "who owns this", { "max-tokens": 20 });
  await page.waitForFunction(() => document.querySelector("#request-rows tr[data-number]"));
  const ranges = await page.locator("#request-rows tr[data-number] .ranges").first().textContent();
  const block = Number(ranges.match(/^\d+/)[0]);
  const place = await page.evaluate(placeOf, block);
  await page.mouse.move(place.x, place.y);
  await page.waitForFunction((block) => document.querySelector("#tip").textContent.startsWith(`Block ${block}: `), block);
  assert.match(await page.locator("#tip").textContent(), /(owned|shared).*by .+; \d of 8 slots filled/);
  await page.focus("#map");
  for (const press of ["Home", "ArrowRight", "ArrowDown", "ArrowUp", "ArrowRight"]) await page.keyboard.press(press);
  assert.match(await page.locator("#block-info").textContent(), /^Block 2: /);
  await page.keyboard.press("End");
  assert.match(await page.locator("#block-info").textContent(), /^Block 9999: free/);
  await settle(page);
};

checks.a_request_can_be_shown_alone = async (page) => {
  await page.goto(url);
  await ask(page, "alone", { "max-tokens": 30 });
  // All in the page: the request ends within a second, and a row with it.
  const [pressed, veil] = await page.evaluate(async () => {
    while (!document.querySelector("#request-rows .pick")) await new Promise((resolve) => requestAnimationFrame(resolve));
    document.querySelector("#request-rows .pick").click();
    const pressed = document.querySelector("#request-rows .pick").getAttribute("aria-pressed");
    for (let frame = 0; frame < 2; frame++) await new Promise((resolve) => requestAnimationFrame(resolve));
    const marks = document.getElementById("marks");
    return [pressed, marks.getContext("2d").getImageData(0, marks.height - 2, 1, 1).data[3]];
  });
  assert.equal(pressed, "true");
  assert.ok(veil > 100, "free blocks are veiled");
  await settle(page);
};

checks.wrong_parameters_are_not_sent = async (page) => {
  await page.goto(url);
  await ask(page, "hi", { "max-tokens": 0 });
  assert.equal(await page.locator(".message").count(), 0);
  assert.equal(await page.evaluate(() => document.querySelector("#max-tokens").matches(":invalid")), true);
};

checks.what_the_server_refuses_is_shown = async (page) => {
  await page.goto(url);
  await ask(page, "x".repeat(300), {});
  await page.waitForSelector(".error");
  assert.match(await page.locator(".error").textContent(), /64/);
  assert.equal(await page.locator("#send").isEnabled(), true);
};

checks.data_needs_the_key_and_the_shell_does_not = async (page) => {
  await page.goto(keyed);
  await page.waitForFunction(() => document.querySelector("#connection").textContent.includes("key"));
  assert.equal(await page.locator("#pool").textContent(), "");
  await page.fill("#key", key);
  await page.press("#key", "Enter");
  await page.waitForSelector('#connection[data-state="live"]');
  assert.match(await page.locator("#pool").textContent(), /blocks of 8 tokens/);
  await ask(page, "hi", { "max-tokens": 3 });
  await page.waitForFunction(() => document.querySelector(".facts")?.textContent.includes("3 tokens"));
  const kept = await page.evaluate(() => [JSON.stringify(sessionStorage), JSON.stringify(localStorage), document.cookie]);
  assert.ok(kept[0].includes(key) && !kept[1].includes(key) && !kept[2].includes(key));
};

checks.a_phone_shows_all_without_sideways_scrolling = async (page) => {
  await page.setViewportSize({ width: 360, height: 740 });
  await page.goto(url);
  await page.click("#parameters summary");
  await page.waitForSelector('#connection[data-state="live"]');
  const found = await page.evaluate(() => ({
    wide: document.documentElement.scrollWidth,
    map: document.getElementById("cells").getBoundingClientRect().width,
    small: [...document.querySelectorAll("button:not([hidden]), input")].filter(
      (element) => element.checkVisibility() && element.getBoundingClientRect().height < 24,
    ).length,
  }));
  assert.ok(found.wide <= 360, `the page is ${found.wide} wide`);
  assert.ok(found.map > 250 && found.map <= 340);
  assert.equal(found.small, 0, "things to press are large enough");
};

checks.text_has_contrast_in_both_schemes = async (page) => {
  const ratios = {};
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await page.goto(url);
    Object.assign(ratios, await page.evaluate(contrasts, colorScheme));
  }
  for (const [what, ratio] of Object.entries(ratios)) assert.ok(ratio >= 4.5, `${what} has a contrast of ${ratio}`);
  return ratios;
};

checks.the_scheme_can_be_chosen_and_stays = async (page) => {
  await page.emulateMedia({ colorScheme: "light" });
  await page.goto(url);
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await back();
  await page.click("#theme");
  await page.click("#theme");
  assert.notEqual(await back(), light);
  await page.reload();
  assert.notEqual(await back(), light);
  await page.click("#theme");
  assert.equal(await back(), light);
};

checks.everything_has_a_name = async (page) => {
  await page.goto(url);
  await page.evaluate(() => (document.querySelector("#parameters").open = true));
  for (const element of await page.locator("input, textarea, button, canvas[role=img], [role=region], meter").all()) {
    const name = await element.evaluate(
      (node) => node.getAttribute("aria-label") || node.getAttribute("aria-labelledby") ||
        [...(node.labels ?? [])].map((label) => label.textContent).join("") || node.textContent,
    );
    assert.ok(name.trim(), `${await element.evaluate((node) => node.outerHTML)} has no name`);
  }
  const seen = [];
  for (let press = 0; press < 14; press++) {
    await page.keyboard.press("Tab");
    seen.push(await page.evaluate(() => document.activeElement.id || document.activeElement.className));
  }
  for (const id of ["skip", "key", "theme", "temperature"]) assert.ok(seen.includes(id), `${seen} lacks ${id}`);
};

checks.nothing_moves_where_motion_is_unwanted = async (page) => {
  const animations = async () => {
    await page.goto(url);
    await ask(page, "hi", { "max-tokens": 10 });
    const count = await page.evaluate(() => document.getAnimations().length);
    await settle(page);
    return count;
  };
  await page.emulateMedia({ reducedMotion: "no-preference" });
  assert.ok((await animations()) > 0);
  await page.emulateMedia({ reducedMotion: "reduce" });
  assert.equal(await animations(), 0);
};

checks.ten_thousand_blocks_are_drawn_within_a_frame = async (page) => {
  await page.goto(url);
  await page.waitForSelector('#connection[data-state="live"]');
  const found = await page.evaluate(measureFrames);
  assert.ok(found.draw_1000_ms < 12, `1000 changed cells take ${found.draw_1000_ms} ms`);
  assert.ok(found.draw_all_ms < 60, `all cells take ${found.draw_all_ms} ms`);
  return found;
};

// ---- helpers; those with a comment run in the page ----

async function ask(page, text, parameters) {
  await page.waitForSelector('#connection[data-state="live"]');
  await page.evaluate(() => (document.querySelector("#parameters").open = true));
  for (const [id, value] of Object.entries({ seed: 5, ...parameters })) await page.fill(`#${id}`, String(value));
  await page.fill("#prompt", text);
  await page.press("#prompt", "Enter");
}

async function settle(page) {
  await page.click("#stop").catch(() => {});
  await page.waitForFunction(() => document.querySelector("#tile-requests").textContent.startsWith("0 run"));
}

// In the page: colours in the middle of the first and the last cell.
function cellColours() {
  const cells = document.getElementById("cells");
  const pen = cells.getContext("2d");
  const pick = (x, y) => [...pen.getImageData(x, y, 1, 1).data];
  return { shared: pick(2, 2), free: pick(2, cells.height - 3) };
}

// In the page: where on the screen a block is, found by its number with the keyboard's mark.
async function placeOf(block) {
  const cells = document.getElementById("cells");
  cells.scrollIntoView({ block: "center" });
  const { BlockCanvas } = await import("/page/block_canvas.js");
  const twin = new BlockCanvas(document.createElement("canvas"), document.createElement("canvas"), cells.parentElement);
  twin.reset(10000, 8);
  const { x, y } = twin.placeOf(block);
  const area = cells.getBoundingClientRect();
  return { x: area.x + x + 1, y: area.y + y + 1 };
}

// In the page: contrast of each kind of text against what lies behind it.
function contrasts(scheme) {
  const canvas = document.createElement("canvas").getContext("2d");
  const light = (name) => {
    const probe = document.body.appendChild(document.createElement("span"));
    probe.style.color = `var(--${name})`;
    canvas.fillStyle = getComputedStyle(probe).color;
    canvas.fillRect(0, 0, 1, 1);
    probe.remove();
    const [red, green, blue] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const pairs = [
    ["text", "panel"], ["text", "back"], ["text", "mine"], ["soft", "panel"], ["soft", "back"], ["bad", "panel"],
    ["on-accent", "accent"], ["longest", "panel"], ["panel", "text"],
  ];
  return Object.fromEntries(
    pairs.map(([front, back]) => {
      const [low, high] = [light(front), light(back)].sort((left, right) => left - right);
      return [`${scheme}: ${front} on ${back}`, Number(((high + 0.05) / (low + 0.05)).toFixed(2))];
    }),
  );
}

// In the page: time to draw, and the frames of two seconds in which a tenth of 10,000 blocks changes every frame.
async function measureFrames() {
  const { BlockCanvas } = await import("/page/block_canvas.js");
  const box = document.getElementById("map");
  const canvas = new BlockCanvas(document.getElementById("cells"), document.getElementById("marks"), box);
  canvas.reset(10000, 16);
  cancelAnimationFrame(canvas.frame);
  let random = 1;
  const next = (most) => (random = (random * 48271) % 2147483647) % most;
  const change = (count) => {
    for (let done = 0; done < count; done++) canvas.set([next(10000), next(4), next(17), next(300), next(300)]);
  };
  const time = (count, all) => {
    const times = [];
    for (let run = 0; run < 15; run++) {
      change(count);
      canvas.all = all;
      const start = performance.now();
      canvas.draw();
      canvas.pen.getImageData(0, 0, 1, 1); // waits until it is drawn
      times.push(performance.now() - start);
    }
    return Number(times.sort((left, right) => left - right)[7].toFixed(2));
  };
  const found = { draw_1000_ms: time(1000, false), draw_all_ms: time(10000, true) };
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const gaps = [];
  let last = await frame();
  for (const end = last + 2000; last < end; ) {
    change(1000);
    canvas.schedule();
    const now = await frame();
    gaps.push(now - last);
    last = now;
  }
  gaps.sort((left, right) => left - right);
  found.frames_per_second = Number(((1000 * gaps.length) / gaps.reduce((sum, gap) => sum + gap, 0)).toFixed(1));
  found.median_gap_ms = Number(gaps[gaps.length >> 1].toFixed(2));
  found.worst_gap_ms = Number(gaps.at(-1).toFixed(1));
  return found;
}

async function runCheck(context, check) {
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  const complaints = [];
  page.on("pageerror", (error) => complaints.push(error.message));
  // A refusal (4xx) is reported by the browser as well as by the page.
  page.on("console", (message) => {
    if (message.type() === "error" && !message.text().includes("the server responded with a status of 4")) {
      complaints.push(message.text());
    }
  });
  page.on("request", (request) => {
    if (![url, keyed].some((base) => request.url().startsWith(base))) complaints.push(`asked for ${request.url()}`);
  });
  try {
    const facts = await check(page);
    assert.deepEqual(complaints, []);
    return { ok: true, facts: facts ?? null };
  } catch (error) {
    return { ok: false, error: String(error.message).slice(0, 2000), complaints };
  } finally {
    await page.close();
  }
}

const profile = mkdtempSync(join(tmpdir(), "octavo-page-"));
const context = await chromium.launchPersistentContext(profile, {
  executablePath,
  headless: true,
  viewport: { width: 1280, height: 900 },
  args: [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
  ],
});
const results = {};
for (const [name, check] of Object.entries(checks)) results[name] = await runCheck(context, check);
await context.close();
rmSync(profile, { recursive: true, force: true });
console.log(JSON.stringify(results));
