// The memory: keeps what the server tells of blocks and requests, and shows it.

import { events, request } from "./api.js";
import { BlockCanvas } from "./block_canvas.js";
import { Timeline } from "./timeline.js";

const TABLE_INTERVAL = 500; // ms between two versions of the table
const MOST_ROWS = 100;

const element = (id) => document.getElementById(id);
const number = (value) => value.toLocaleString("en");
const percent = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(part && part < whole / 10 ? 1 : 0)} %` : "–");

export class Memory {
  constructor(onState) {
    this.onState = onState; // told "live", "lost" or "refused", and why
    this.canvas = new BlockCanvas(element("cells"), element("marks"), element("map"));
    this.timeline = new Timeline(element("timeline"), element("timeline-text"));
    this.requests = new Map();
    this.controller = null;
    this.tableDue = 0;
    this.followPointer();
    this.followKeys();
    setInterval(() => this.figures?.running && this.timeline.schedule(), 1000);
    document.addEventListener("visibilitychange", () => this.watch());
  }

  // Listens to the server, and again a while after each failure. Nobody listens in a hidden tab.
  async watch() {
    this.controller?.abort();
    if (document.hidden) return;
    const controller = (this.controller = new AbortController());
    for (let wait = 500; !controller.signal.aborted; wait = Math.min(wait * 2, 10000)) {
      try {
        const response = await request("/v1/kv/events", { signal: controller.signal });
        for await (const { event, data } of events(response)) {
          if (event === "snapshot") this.takeSnapshot(JSON.parse(data));
          else if (event === "change") this.takeChange(JSON.parse(data));
          wait = 500;
        }
        this.onState("lost", "connection lost");
      } catch (error) {
        if (controller.signal.aborted) return;
        if (error.status === 401 || error.status === 403) return this.onState("refused", error.message);
        this.onState("lost", "no connection");
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  takeSnapshot(data) {
    this.blockSize = data.block_size;
    this.maxModelLen = data.max_model_len;
    this.canvas.reset(data.figures.total_blocks, data.block_size);
    this.timeline.reset(data.timeline_columns, data.timeline, data.block_size, data.time);
    element("block-size").textContent = data.block_size;
    this.take(data);
    this.onState("live", "live");
  }

  takeChange(data) {
    this.timeline.add(data.timeline);
    this.take(data);
  }

  take(data) {
    for (const cell of data.blocks) this.canvas.set(cell);
    this.figures = data.figures;
    this.requests = new Map(data.requests.map((request) => [request.number, request]));
    if (this.canvas.highlighted !== null && !this.requests.has(this.canvas.highlighted)) this.canvas.highlighted = null;
    this.canvas.schedule();
    this.showFigures();
    this.showTip();
    this.showTableSoon();
  }

  // ---- figures ----

  showFigures() {
    const figures = this.figures;
    const held = figures.owned_blocks + figures.shared_blocks;
    const slots = held * this.blockSize;
    const saved = figures.references - held;
    element("pool").textContent = `${number(figures.total_blocks)} blocks of ${this.blockSize} tokens`;
    element("tile-held").textContent = `${number(held)} (${percent(held, figures.total_blocks)})`;
    element("tile-shared").textContent = saved ? `${number(figures.shared_blocks)}, save ${number(saved)}` : "0";
    element("tile-cached").textContent = `${number(figures.cached_blocks)}`;
    element("tile-unfilled").textContent = slots ? percent(figures.wasted_slots, slots) : "–";
    element("tile-requests").textContent = `${figures.running} run, ${figures.waiting} wait`;
    element("tile-hits").textContent = percent(figures.prefix_hit_tokens, figures.prefix_queried_tokens);
    this.showComparison(slots);
  }

  showComparison(slots) {
    const { reserved_power_of_two: doubling, reserved_max_model_len: longest } = this.figures;
    const most = Math.max(slots, doubling, longest, 1);
    for (const [name, value] of [["paged", slots], ["doubling", doubling], ["longest", longest]]) {
      element(`bar-${name}`).value = value / most;
      const times = slots && name !== "paged" ? ` (${(value / slots).toFixed(1)} times)` : "";
      element(`text-${name}`).textContent = `${number(value)} tokens${times}`;
    }
  }

  // ---- pointing ----

  followPointer() {
    const box = element("map");
    box.addEventListener("pointermove", (event) => {
      const area = box.getBoundingClientRect();
      this.canvas.point(this.canvas.blockAt(event.clientX - area.left, event.clientY - area.top));
      this.showTip();
    });
    box.addEventListener("pointerleave", () => {
      this.canvas.point(-1);
      this.showTip();
    });
    box.addEventListener("click", () => {
      if (this.canvas.pointed >= 0) this.select(this.canvas.pointed);
    });
  }

  followKeys() {
    const box = element("map");
    box.addEventListener("focus", () => {
      if (this.canvas.selected < 0 && this.canvas.total && box.matches(":focus-visible")) this.select(0);
    });
    box.addEventListener("keydown", (event) => {
      const { columns, total } = this.canvas;
      const moves = {
        ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, PageUp: -8 * columns,
        PageDown: 8 * columns, Home: -Infinity, End: Infinity,
      };
      if (event.key === "Escape") {
        this.canvas.select(-1);
        this.showTip();
      } else if (event.key in moves && total && !event.ctrlKey && !event.altKey && !event.metaKey) {
        const target = Math.max(0, this.canvas.selected) + moves[event.key];
        this.select(Math.max(0, Math.min(total - 1, target)));
        event.preventDefault();
      }
    });
  }

  select(block) {
    this.canvas.select(block);
    element("block-info").textContent = this.blockText(block);
    this.showTip();
  }

  blockText(block) {
    const references = this.canvas.references[block];
    const filled = this.canvas.filled[block];
    const full = `${filled} of ${this.blockSize} slots filled`;
    if (references === 0) return `Block ${block}: ${filled ? `cached, kept for a prefix; ${full}` : "free"}.`;
    const owners = this.canvas.ownersOf(block).map((owner) => nameOf(owner, this.requests.get(owner)));
    const whose = owners.join(", ") || "nobody's request";
    const how = references > 1 ? `shared, ${references} references, by` : "owned by";
    return `Block ${block}: ${how} ${whose}; ${full}.`;
  }

  showTip() {
    const tip = element("tip");
    const block = this.canvas.pointed >= 0 ? this.canvas.pointed : this.canvas.selected;
    tip.hidden = block < 0;
    if (block < 0) return;
    const text = this.blockText(block);
    if (tip.textContent !== text) tip.textContent = text;
    const { x, y } = this.canvas.placeOf(block);
    const left = Math.max(0, Math.min(x + 12, this.canvas.width - tip.offsetWidth));
    const below = y + this.canvas.pitch + 6;
    tip.style.left = `${left}px`;
    tip.style.top = `${below + tip.offsetHeight > this.canvas.rows * this.canvas.pitch ? y - tip.offsetHeight - 6 : below}px`;
  }

  // ---- the table ----

  showTableSoon() {
    if (this.tableTimer || !element("requests").open) return;
    const wait = Math.max(0, this.tableDue - performance.now());
    this.tableTimer = setTimeout(() => {
      this.tableTimer = 0;
      this.tableDue = performance.now() + TABLE_INTERVAL;
      this.showTable();
    }, wait);
  }

  showTable() {
    const body = element("request-rows");
    const shown = [...this.requests.values()].slice(0, MOST_ROWS);
    const ranges = this.rangesOf(shown);
    const rows = new Map([...body.querySelectorAll("tr[data-number]")].map((row) => [Number(row.dataset.number), row]));
    for (const [owner, row] of rows) if (!this.requests.has(owner)) row.remove();
    body.querySelector("tr:not([data-number])")?.remove();
    for (const request of shown) {
      const row = rows.get(request.number) ?? this.newRow(request);
      if (!row.isConnected) body.append(row);
      this.fillRow(row, request, ranges.get(request.number));
    }
    const more = this.requests.size - shown.length;
    if (!shown.length) body.append(wideRow("No requests."));
    else if (more > 0) body.append(wideRow(`and ${more} more`));
  }

  newRow(request) {
    const row = document.createElement("tr");
    row.dataset.number = request.number;
    const head = document.createElement("th");
    head.scope = "row";
    const button = document.createElement("button");
    button.type = "button";
    button.className = "pick";
    button.title = `${request.id}: show its blocks alone`;
    button.setAttribute("aria-pressed", "false");
    const swatch = document.createElement("canvas");
    swatch.width = swatch.height = 12;
    button.append(swatch, nameOf(request.number, request));
    button.addEventListener("click", () => {
      const mine = this.canvas.highlighted === request.number;
      this.canvas.highlight(mine ? null : request.number);
      this.showTable();
    });
    head.append(button);
    row.append(head, ...Array.from({ length: 7 }, () => document.createElement("td")));
    row.lastChild.className = "ranges";
    return row;
  }

  fillRow(row, request, ranges) {
    const button = row.querySelector("button");
    button.setAttribute("aria-pressed", String(this.canvas.highlighted === request.number));
    const pen = button.firstChild.getContext("2d");
    pen.fillStyle = this.canvas.colour(request.number)[0];
    pen.fillRect(0, 0, 12, 12);
    const sequences = request.sequences > 1 ? `, n = ${request.sequences}` : "";
    const cached = request.cached_tokens ? `, ${request.cached_tokens} cached` : "";
    const texts = [
      `${request.state}${sequences}`, `${request.prompt_tokens}${cached}`, request.output_tokens, request.blocks,
      request.shared_blocks, request.unfilled_slots, ranges || "none",
    ];
    texts.forEach((text, place) => {
      const cell = row.children[place + 1];
      if (cell.textContent !== String(text)) cell.textContent = text;
    });
  }

  // For each request the blocks it refers to, as "0–12, 40".
  rangesOf(requests) {
    const lists = new Map(requests.map((request) => [request.number, []]));
    const { references, total } = this.canvas;
    for (let block = 0; block < total; block++) {
      if (!references[block]) continue;
      for (const owner of this.canvas.ownersOf(block)) {
        const list = lists.get(owner);
        const last = list?.at(-1);
        if (last && last[1] === block - 1) last[1] = block;
        else list?.push([block, block]);
      }
    }
    const texts = new Map();
    for (const [owner, list] of lists) {
      const parts = list.slice(0, 12).map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`));
      texts.set(owner, parts.join(", ") + (list.length > 12 ? ", …" : ""));
    }
    return texts;
  }

  // The colours have changed.
  redraw() {
    this.canvas.redraw();
    this.timeline.schedule();
    this.showTableSoon();
  }
}

// Short enough for a tip: the number in order of arrival, and the beginning of the id.
function nameOf(owner, request) {
  const id = request?.id ?? "";
  return `#${owner} ${id.length > 12 ? `${id.slice(0, 8)}…` : id}`.trim();
}

function wideRow(text) {
  const row = document.createElement("tr");
  const cell = document.createElement("td");
  cell.colSpan = 8;
  cell.textContent = text;
  row.append(cell);
  return row;
}
