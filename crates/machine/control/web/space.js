// SPDX-License-Identifier: MIT OR Apache-2.0
// The nodes in three dimensions, seen from far away, so that equal distances stay equal.

/** Marks: shape, size relative to the distance of two nodes, opacity. */
const MARKS = {
  ready: ["circle", 0.17, 0.45],
  busy: ["square", 0.19, 0.8],
  booting: ["ring", 0.22, 1],
  off: ["ring", 0.15, 0.8],
  drained: ["square", 0.3, 1],
  lost: ["diamond", 0.48, 1],
  dead: ["plus", 0.46, 1],
  none: ["circle", 0.06, 0.6],
};
const PITCH = 0.48;
/** Pixels around a node that belong to it. */
const NEAR = 14;

export class Space {
  #canvas;
  #nodes;
  #yaw = 0.62;
  #asked = false;
  #drawn = [];
  #faint = "";

  /** `picked(index)` is told of nodes that are clicked. */
  constructor(canvas, nodes, picked) {
    this.#canvas = canvas;
    this.#nodes = nodes;
    let from = null;
    let moved = false;
    canvas.addEventListener("pointerdown", (event) => {
      from = event.clientX;
      moved = false;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (from === null || (!moved && Math.abs(event.clientX - from) < 4)) return;
      moved = true;
      this.#yaw += (event.clientX - from) / 180;
      from = event.clientX;
      this.draw();
    });
    canvas.addEventListener("pointercancel", () => (from = null));
    canvas.addEventListener("pointerup", (event) => {
      from = null;
      const index = moved ? null : this.#near(event.offsetX, event.offsetY);
      if (index !== null) picked(index);
    });
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Draws before the next frame. */
  draw() {
    if (this.#asked) return;
    this.#asked = true;
    requestAnimationFrame(() => {
      this.#asked = false;
      this.#draw();
    });
  }

  /** The node that is seen at a place, or `null`. */
  #near(x, y) {
    let best = null;
    for (const { index, at } of this.#drawn) {
      const distance = Math.hypot(at[0] - x, at[1] - y);
      // of two, the one that is drawn later is in front
      if (distance < NEAR && (best === null || distance <= best.distance)) best = { index, distance };
    }
    return best?.index ?? null;
  }

  #draw() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const shape = this.#nodes.shape;
    if (!width || !height || !this.#nodes.size) return;
    const ratio = devicePixelRatio || 1;
    [this.#canvas.width, this.#canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    const context = this.#canvas.getContext("2d");
    context.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();

    const [cos, sin] = [Math.cos(this.#yaw), Math.sin(this.#yaw)];
    const [flat, steep] = [Math.sin(PITCH), Math.cos(PITCH)];
    // the whole stays inside, however it is turned
    const round = Math.hypot(shape[0], shape[1]);
    const unit = Math.min(width / (round + 1), height / (round * flat + shape[2] * steep + 1));
    const project = ([x, y, z]) => {
      const [dx, dy, dz] = [x - (shape[0] - 1) / 2, y - (shape[1] - 1) / 2, z - (shape[2] - 1) / 2];
      const [across, deep] = [dx * cos - dy * sin, dx * sin + dy * cos];
      return [width / 2 + across * unit, height / 2 + (deep * flat - dz * steep) * unit, deep * steep + dz * flat];
    };

    this.#faint = color("faint");
    this.#box(context, project, shape, color("line"));
    const current = this.#nodes.coords(this.#nodes.current)[2];
    this.#plane(context, project, shape, current, color("accent"));
    this.#drawn = [];
    for (let index = 0; index < this.#nodes.size; index++) {
      const node = this.#nodes.node(index);
      this.#drawn.push({ index, state: node.state, at: project(node.coords) });
    }
    // nodes in trouble are seen through all others
    const depth = ({ state, at }) => at[2] + (state === "dead" || state === "lost" ? 1e6 : 0);
    this.#drawn.sort((a, b) => depth(a) - depth(b));
    const colors = Object.fromEntries(Object.keys(MARKS).map((state) => [state, color(`state-${state}`)]));
    for (const { state, at } of this.#drawn) mark(context, at, MARKS[state] ?? MARKS.none, unit, colors[state]);
    const picked = this.#nodes.picked;
    if (picked !== null) {
      const [x, y] = project(this.#nodes.coords(picked));
      context.globalAlpha = 1;
      context.lineWidth = 2.5;
      context.strokeStyle = color("accent");
      context.beginPath();
      context.arc(x, y, Math.max(unit * 0.6, 8), 0, 2 * Math.PI);
      context.stroke();
    }
  }

  #box(context, project, shape, color) {
    const corner = (bits) => project(shape.map((side, at) => (bits & (1 << at) ? side - 0.5 : -0.5)));
    context.strokeStyle = color;
    context.lineWidth = 1;
    context.beginPath();
    for (let bits = 0; bits < 8; bits++)
      for (let at = 0; at < 3; at++)
        if (!(bits & (1 << at))) {
          context.moveTo(...corner(bits).slice(0, 2));
          context.lineTo(...corner(bits | (1 << at)).slice(0, 2));
        }
    context.stroke();
    context.fillStyle = this.#faint;
    context.font = "12px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    const [x, y, z] = shape;
    for (const [name, at] of [["x", [x / 2 - 0.5, y + 0.2, -0.5]], ["y", [x + 0.2, y / 2 - 0.5, -0.5]], ["z", [-0.9, y - 0.1, z / 2 - 0.5]]])
      context.fillText(name, ...project(at).slice(0, 2));
  }

  #plane(context, project, [x, y], z, color) {
    context.globalAlpha = 0.1;
    context.fillStyle = color;
    context.beginPath();
    for (const [cx, cy] of [[-0.5, -0.5], [x - 0.5, -0.5], [x - 0.5, y - 0.5], [-0.5, y - 0.5]])
      context.lineTo(...project([cx, cy, z]).slice(0, 2));
    context.fill();
    context.globalAlpha = 1;
  }
}

/** One node. */
function mark(context, [x, y], [shape, size, opacity], unit, color) {
  const r = Math.max(size * unit, 1);
  context.globalAlpha = opacity;
  context.fillStyle = context.strokeStyle = color;
  context.beginPath();
  if (shape === "circle" || shape === "ring") {
    context.arc(x, y, r, 0, 2 * Math.PI);
  } else if (shape === "square") {
    context.rect(x - r, y - r, 2 * r, 2 * r);
  } else if (shape === "diamond") {
    for (const [dx, dy] of [[0, -r], [r, 0], [0, r], [-r, 0]]) context.lineTo(x + dx, y + dy);
  } else {
    const t = r * 0.38;
    context.rect(x - t, y - r, 2 * t, 2 * r);
    context.rect(x - r, y - t, 2 * r, 2 * t);
  }
  if (shape === "ring") {
    context.lineWidth = Math.max(r * 0.45, 1);
    context.stroke();
  } else context.fill();
  context.globalAlpha = 1;
}
