// The time line: tokens held, unfilled and shared, what contiguous pieces would take; below it the queue.

const SECONDS = 120;
const QUEUE_HEIGHT = 44;
const LEFT = 46;

export class Timeline {
  constructor(canvas, text) {
    this.canvas = canvas;
    this.text = text;
    this.columns = [];
    this.samples = [];
    this.blockSize = 1;
    this.offset = 0;
    this.frame = 0;
    new ResizeObserver(() => this.schedule()).observe(canvas);
  }

  // `time` is the server's, whose clock may differ from this one.
  reset(columns, samples, blockSize, time) {
    this.columns = columns;
    this.blockSize = blockSize;
    this.samples = [];
    this.offset = Date.now() / 1000 - time;
    this.add(samples);
  }

  now() {
    return Date.now() / 1000 - this.offset;
  }

  // Samples as the server sends them, oldest first.
  add(samples) {
    for (const values of samples) {
      this.samples.push(Object.fromEntries(this.columns.map((name, place) => [name, values[place]])));
    }
    const oldest = this.now() - 2 * SECONDS;
    while (this.samples.length > 2 && this.samples[1].time < oldest) this.samples.shift();
    this.schedule();
  }

  schedule() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = 0;
    const { canvas } = this;
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (!width || !height) return;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    this.colours = readColours(canvas);
    const now = this.now();
    const visible = this.visible(now);
    const top = highest(visible, this.blockSize);
    const area = { left: LEFT, right: width - 4, top: 14, bottom: height - QUEUE_HEIGHT - 16, now, most: top };
    this.drawMemory(pen, visible, area);
    const queueMost = Math.max(1, ...visible.map((sample) => Math.max(sample.running, sample.waiting)));
    this.drawQueue(pen, visible, { ...area, top: height - QUEUE_HEIGHT, bottom: height - 4, most: queueMost });
    this.describe(visible);
  }

  // The samples of the window, and the one before it, which still holds at its left edge.
  visible(now) {
    const first = this.samples.findIndex((sample) => sample.time >= now - SECONDS);
    if (first < 0) return this.samples.slice(-1);
    return this.samples.slice(Math.max(0, first - 1));
  }

  drawMemory(pen, samples, area) {
    const { colours } = this;
    axis(pen, area, colours, "tokens");
    const used = (sample) => sample.used_slots;
    const held = (sample) => sample.used_slots + sample.wasted_slots;
    fillUnder(pen, samples, area, held, used, colours.waste, 0.85);
    fillUnder(pen, samples, area, used, () => 0, colours.used, 0.55);
    stroke(pen, samples, area, (sample) => sample.shared_blocks * this.blockSize, colours.share, []);
    stroke(pen, samples, area, (sample) => sample.reserved_power_of_two, colours.doubling, [6, 4]);
    stroke(pen, samples, area, (sample) => sample.reserved_max_model_len, colours.longest, [2, 3]);
    const longest = samples.at(-1)?.reserved_max_model_len ?? 0;
    if (longest > area.most) {
      pen.fillStyle = colours.longest;
      pen.textAlign = "right";
      pen.fillText(`▲ contiguous, longest: ${longest.toLocaleString("en")}`, area.right, area.top - 7);
    }
  }

  drawQueue(pen, samples, area) {
    axis(pen, area, this.colours, "requests");
    stroke(pen, samples, area, (sample) => sample.running, this.colours.run, []);
    stroke(pen, samples, area, (sample) => sample.waiting, this.colours.wait, [6, 4]);
  }

  describe(samples) {
    const last = samples.at(-1);
    const most = Math.max(0, ...samples.map((sample) => sample.used_slots + sample.wasted_slots));
    this.text.textContent = last
      ? `Now ${last.used_slots.toLocaleString("en")} tokens held, ${last.wasted_slots} slots unfilled, ` +
        `${last.shared_blocks} blocks shared, ${last.running} running, ${last.waiting} waiting; ` +
        `at most ${most.toLocaleString("en")} slots in two minutes.`
      : "Nothing has happened yet.";
  }
}

// The scale follows what blocks and doubling take; the longest reservation may be out of all proportion.
function highest(samples, blockSize) {
  let most = 4 * blockSize;
  for (const sample of samples) {
    most = Math.max(most, sample.used_slots + sample.wasted_slots, sample.reserved_power_of_two);
  }
  return most * 1.08;
}

function axis(pen, area, colours, unit) {
  pen.font = '11px system-ui, "DejaVu Sans", sans-serif';
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  pen.lineWidth = 1;
  pen.setLineDash([]);
  for (const part of [0, 1]) {
    const y = Math.round(area.bottom - part * (area.bottom - area.top)) + 0.5;
    pen.strokeStyle = colours.line;
    pen.beginPath();
    pen.moveTo(area.left, y);
    pen.lineTo(area.right, y);
    pen.stroke();
    pen.fillStyle = colours.soft;
    pen.fillText(short(part * area.most), area.left - 5, y);
  }
  pen.save();
  pen.translate(7, (area.top + area.bottom) / 2);
  pen.rotate(-Math.PI / 2);
  pen.textAlign = "center";
  pen.fillText(unit, 0, 0);
  pen.restore();
}

// Corners of a line: a value holds until the next sample.
function points(samples, area, value) {
  const scale = (area.right - area.left) / SECONDS;
  const list = [];
  for (const sample of samples) {
    const x = Math.max(area.left, Math.min(area.right, area.right - (area.now - sample.time) * scale));
    const y = area.bottom - (Math.min(value(sample), area.most) / area.most) * (area.bottom - area.top);
    if (list.length) list.push([x, list.at(-1)[1]]);
    list.push([x, y]);
  }
  if (list.length) list.push([area.right, list.at(-1)[1]]);
  return list;
}

function stroke(pen, samples, area, value, colour, dash) {
  const list = points(samples, area, value);
  if (!list.length) return;
  pen.strokeStyle = colour;
  pen.lineWidth = 2;
  pen.setLineDash(dash);
  pen.beginPath();
  pen.moveTo(...list[0]);
  for (const point of list.slice(1)) pen.lineTo(...point);
  pen.stroke();
  pen.setLineDash([]);
}

function fillUnder(pen, samples, area, upper, lower, colour, opacity) {
  const above = points(samples, area, upper);
  const below = points(samples, area, lower).reverse();
  if (!above.length) return;
  pen.fillStyle = colour;
  pen.globalAlpha = opacity;
  pen.beginPath();
  pen.moveTo(...above[0]);
  for (const point of [...above.slice(1), ...below]) pen.lineTo(...point);
  pen.closePath();
  pen.fill();
  pen.globalAlpha = 1;
}

function readColours(canvas) {
  const probe = document.createElement("span");
  document.body.append(probe);
  const colours = {};
  for (const name of ["line", "soft", "used", "waste", "share", "doubling", "longest", "run", "wait"]) {
    probe.style.color = `var(--${name})`;
    colours[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return colours;
}

function short(value) {
  if (value >= 10000) return `${Math.round(value / 1000)}k`;
  if (value >= 1000) return `${(value / 1000).toFixed(1)}k`;
  return String(Math.round(value));
}
