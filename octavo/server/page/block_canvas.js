// Draws one cell for every block, and redraws only those that changed, at most once a frame.

const LARGEST = 26;
const SMALLEST = 3;

export class BlockCanvas {
  // `cells` and `marks` are canvases over each other: the blocks, and what is pointed at.
  constructor(cells, marks, box) {
    this.cells = cells;
    this.marks = marks;
    this.box = box;
    this.pen = cells.getContext("2d", { alpha: false });
    this.markPen = marks.getContext("2d");
    this.total = 0;
    this.blockSize = 1;
    this.selected = -1;
    this.pointed = -1;
    this.highlighted = null; // a request's number
    this.dirty = new Set();
    this.all = false;
    this.frame = 0;
    this.colours = new Map();
    new ResizeObserver(() => this.layOut()).observe(box);
  }

  // A new pool: everything is free.
  reset(total, blockSize) {
    this.total = total;
    this.blockSize = blockSize;
    this.references = new Int32Array(total);
    this.filled = new Int32Array(total);
    this.owner = new Int32Array(total).fill(-1);
    this.owners = new Map(); // of blocks with several
    this.selected = Math.min(this.selected, total - 1);
    this.pointed = -1;
    this.width = 0;
    this.layOut();
  }

  // A cell as the server sends it: [block, references, filled slots, owner, ...].
  set(cell) {
    const block = cell[0];
    this.references[block] = cell[1];
    this.filled[block] = cell[2];
    this.owner[block] = cell.length > 3 ? cell[3] : -1;
    if (cell.length > 4) this.owners.set(block, cell.slice(3));
    else this.owners.delete(block);
    this.dirty.add(block);
  }

  ownersOf(block) {
    return this.owners.get(block) ?? (this.owner[block] < 0 ? [] : [this.owner[block]]);
  }

  // Chooses the largest cells with which all blocks fit the space.
  layOut() {
    const width = Math.floor(this.box.clientWidth);
    if (!this.total || !width) return;
    const ratio = window.devicePixelRatio || 1;
    if (width === this.width && ratio === this.ratio) return;
    const height = Math.max(200, Math.min(430, window.innerHeight * 0.3));
    let pitch = LARGEST;
    while (pitch > SMALLEST && Math.ceil(this.total / Math.floor(width / pitch)) * pitch > height) pitch -= 1;
    this.pitch = pitch;
    this.gap = pitch >= 12 ? 2 : pitch >= 4 ? 1 : 0;
    this.columns = Math.floor(width / pitch);
    this.rows = Math.ceil(this.total / this.columns);
    this.width = width;
    this.ratio = ratio;
    for (const canvas of [this.cells, this.marks]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(this.rows * pitch * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${this.rows * pitch}px`;
    }
    this.redraw();
  }

  // Everything anew: another size or other colours.
  redraw() {
    this.colours.clear();
    this.all = true;
    this.schedule();
  }

  schedule() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = 0;
    if (!this.total || !this.width) return;
    this.readTheme();
    const pen = this.pen;
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.style = null;
    if (this.all) {
      pen.fillStyle = this.theme.panel;
      pen.fillRect(0, 0, this.width, this.rows * this.pitch);
      for (let block = 0; block < this.total; block++) this.drawCell(block);
    } else {
      for (const block of this.dirty) this.drawCell(block);
    }
    this.all = false;
    this.dirty.clear();
    this.drawMarks();
  }

  fill(style, x, y, width, height) {
    if (style !== this.style) this.pen.fillStyle = this.style = style;
    this.pen.fillRect(x, y, width, height);
  }

  drawCell(block) {
    const size = this.pitch - this.gap;
    const x = (block % this.columns) * this.pitch;
    const y = Math.floor(block / this.columns) * this.pitch;
    const references = this.references[block];
    const filled = this.filled[block];
    const [full, pale] = references ? this.colour(this.owner[block]) : [this.theme.cached, this.theme.free];
    const part = filled >= this.blockSize ? size : Math.round((size * filled) / this.blockSize);
    if (part < size) this.fill(pale, x, y, size, size - part);
    if (part > 0) this.fill(full, x, y + size - part, size, part);
    if (references > 1) this.drawShared(references, x, y, size);
  }

  // A frame, and the count where it can be read. In tiny cells a corner of the frame's colour.
  drawShared(references, x, y, size) {
    const frame = this.theme.text;
    if (size < 6) {
      this.fill(frame, x, y, Math.max(1, size >> 1), Math.max(1, size >> 1));
      return;
    }
    const line = size >= 12 ? 2 : 1;
    this.fill(frame, x, y, size, line);
    this.fill(frame, x, y + size - line, size, line);
    this.fill(frame, x, y, line, size);
    this.fill(frame, x + size - line, y, line, size);
    if (size < 16) return;
    const text = references > 99 ? "99+" : String(references);
    this.pen.font = `600 ${text.length > 2 ? 8 : Math.min(11, size - 5)}px system-ui, "DejaVu Sans", sans-serif`;
    this.pen.textAlign = "center";
    this.pen.textBaseline = "middle";
    const width = Math.min(size - 2 * line, text.length * 6 + 4);
    const height = Math.min(size - 2 * line, 12);
    this.fill(this.theme.panel, x + (size - width) / 2, y + (size - height) / 2, width, height);
    this.pen.fillStyle = this.style = frame;
    this.pen.fillText(text, x + size / 2, y + size / 2 - 0.5);
  }

  // What is pointed at and selected, and all blocks of a highlighted request.
  drawMarks() {
    const pen = this.markPen;
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.rows * this.pitch);
    const size = this.pitch - this.gap;
    if (this.highlighted !== null) {
      pen.fillStyle = this.theme.veil;
      for (let block = 0; block < this.total; block++) {
        if (!this.isOf(block, this.highlighted)) {
          pen.fillRect((block % this.columns) * this.pitch, Math.floor(block / this.columns) * this.pitch, size, size);
        }
      }
    }
    for (const [block, width] of [[this.pointed, 1.5], [this.selected, 2.5]]) {
      if (block < 0) continue;
      const x = (block % this.columns) * this.pitch;
      const y = Math.floor(block / this.columns) * this.pitch;
      pen.lineWidth = width;
      pen.strokeStyle = this.theme.accent;
      pen.strokeRect(x - 1, y - 1, size + 2, size + 2);
    }
  }

  isOf(block, number) {
    const several = this.owners.get(block);
    return several ? several.includes(number) : this.owner[block] === number;
  }

  blockAt(x, y) {
    const column = Math.floor(x / this.pitch);
    const block = Math.floor(y / this.pitch) * this.columns + column;
    return column >= 0 && column < this.columns && block >= 0 && block < this.total ? block : -1;
  }

  placeOf(block) {
    return { x: (block % this.columns) * this.pitch, y: Math.floor(block / this.columns) * this.pitch };
  }

  point(block) {
    if (block !== this.pointed) {
      this.pointed = block;
      this.schedule();
    }
  }

  select(block) {
    this.selected = block;
    this.schedule();
  }

  highlight(number) {
    this.highlighted = number;
    this.schedule();
  }

  // [full, pale] of a request; neighbours in order of arrival lie far apart on the colour wheel.
  colour(number) {
    let pair = this.colours.get(number);
    if (!pair) {
      this.readTheme();
      const dark = this.theme.dark;
      const hue = (200 + number * 137.508) % 360;
      pair = number < 0
        ? [this.theme.soft, this.theme.cached]
        : [`hsl(${hue} ${dark ? 58 : 62}% ${dark ? 60 : 43}%)`, `hsl(${hue} ${dark ? 30 : 55}% ${dark ? 26 : 84}%)`];
      if (this.colours.size > 4096) this.colours.clear();
      this.colours.set(number, pair);
    }
    return pair;
  }

  readTheme() {
    if (this.theme && !this.all) return;
    const probe = document.createElement("span");
    document.body.append(probe);
    const read = (name) => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color;
    };
    const text = read("text");
    const dark = Number(text.match(/\d+/)[0]) > 127;
    this.theme = {
      panel: read("panel"), free: read("free"), cached: read("cached"), soft: read("soft"), accent: read("accent"),
      text, dark, veil: dark ? "rgb(26 33 41 / .78)" : "rgb(255 255 255 / .78)",
    };
    probe.remove();
  }
}
