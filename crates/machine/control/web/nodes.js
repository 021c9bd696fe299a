// SPDX-License-Identifier: MIT OR Apache-2.0
// The grid of all compute nodes: slices of each midplane along z. One tab stop; keys move inside, by coordinates.

import { STATES, element } from "./text.js";

/** Sides of a midplane. */
const SIDE = 8;
const TROUBLE = ["dead", "lost"];

/** The state of a node that no partition has. */
const NONE = "none";

export class Nodes {
  #root;
  #heard;
  /** Sides of the machine. */
  #shape = [0, 0, 0];
  /** By index: the element, and the node if a partition has it. */
  #cells = [];
  #nodes = [];
  /** By partition: the index of each of its nodes. */
  #partitions = new Map();
  #key = "";
  #current = 0;
  #picked = null;
  #mates = [];

  /** `heard.picked(node)`, `heard.focused(node)` and `heard.hovered(node)` are told of nodes, `heard.changed()` of states. */
  constructor(root, heard) {
    this.#root = root;
    this.#heard = heard;
    root.addEventListener("click", ({ target }) => this.#at(target, (index) => this.pick(index)));
    root.addEventListener("focusin", ({ target }) => this.#at(target, (index) => this.#focused(index)));
    root.addEventListener("pointerover", ({ target }) => this.#at(target, (index) => heard.hovered(this.node(index))));
    root.addEventListener("keydown", (event) => this.#key_down(event));
  }

  #at(target, use) {
    const cell = target.closest("[data-index]");
    if (cell) use(Number(cell.dataset.index));
  }

  #index([x, y, z]) {
    return x + this.#shape[0] * (y + this.#shape[1] * z);
  }

  coords(index) {
    const [x, y] = this.#shape;
    return [index % x, Math.floor(index / x) % y, Math.floor(index / (x * y))];
  }

  get shape() {
    return this.#shape;
  }

  get size() {
    return this.#cells.length;
  }

  get picked() {
    return this.#picked;
  }

  get current() {
    return this.#current;
  }

  /** A node with its index, coordinates and state. */
  node(index) {
    return { state: NONE, coords: this.coords(index), ...this.#nodes[index], index };
  }

  /** Number of nodes by state. */
  counts() {
    const all = {};
    for (const node of this.#nodes) if (node) all[node.state] = (all[node.state] ?? 0) + 1;
    return all;
  }

  /** Shows a machine: its sides, and of each partition its name and nodes. */
  show(shape, partitions) {
    const key = JSON.stringify([shape, partitions.map(({ name, nodes }) => [name, nodes.length, nodes[0]?.coords])]);
    const isNew = key !== this.#key;
    this.#key = key;
    this.#shape = shape;
    this.#nodes = new Array(shape[0] * shape[1] * shape[2]).fill(null);
    this.#partitions = new Map();
    for (const { name, nodes } of partitions) {
      const indexes = nodes.map((node) => this.#index(node.coords));
      this.#partitions.set(name, indexes);
      nodes.forEach((node, at) => (this.#nodes[indexes[at]] = { ...node, partition: name }));
    }
    if (isNew) this.#build();
    this.#cells.forEach((_, index) => this.#paint(index));
    this.#heard.changed();
  }

  #build() {
    const sides = this.#shape.map((side) => Math.min(side, SIDE));
    const count = this.#shape.map((side, at) => side / sides[at]);
    this.#cells = new Array(this.#nodes.length);
    this.#current = Math.min(this.#current, this.#cells.length - 1);
    this.#picked = null;
    this.#mates = [];
    const all = document.createDocumentFragment();
    for (let mz = 0; mz < count[2]; mz++)
      for (let my = 0; my < count[1]; my++)
        for (let mx = 0; mx < count[0]; mx++)
          all.append(this.#midplane([mx * sides[0], my * sides[1], mz * sides[2]], sides));
    this.#root.classList.toggle("many", all.children.length > 1);
    this.#root.replaceChildren(all);
    this.#cells[this.#current].tabIndex = 0;
  }

  #midplane(origin, sides) {
    const first = this.#nodes[this.#index(origin)];
    const name = first ? first.location.split("-").slice(0, 2).join("-") : `from ${origin.join(", ")}`;
    const slices = element("div", { class: "slices" });
    for (let z = 0; z < sides[2]; z++) {
      const grid = element("div", { role: "grid", "aria-label": `Midplane ${name}, z ${origin[2] + z}` });
      for (let y = 0; y < sides[1]; y++) {
        const row = element("div", { role: "row" });
        for (let x = 0; x < sides[0]; x++) {
          const index = this.#index([origin[0] + x, origin[1] + y, origin[2] + z]);
          const cell = element("div", { role: "gridcell", class: "n", "data-index": index, tabindex: -1 }, element("b"));
          this.#cells[index] = cell;
          row.append(cell);
        }
        grid.append(row);
      }
      slices.append(element("div", { class: "slice" }, element("span", { class: "z", "aria-hidden": "true" }, `z ${origin[2] + z}`), grid));
    }
    const whole = element("section", { class: "midplane", "aria-label": `Midplane ${name}` }, element("h3", {}, name), slices);
    whole.style.setProperty("--columns", sides[0]);
    whole.style.setProperty("--rows", sides[1]);
    return whole;
  }

  #paint(index) {
    const node = this.node(index);
    const cell = this.#cells[index];
    if (cell.dataset.is !== node.state) {
      cell.dataset.is = node.state;
      cell.firstChild.textContent = STATES[node.state]?.letter ?? "";
    }
    const words = STATES[node.state]?.words ?? "in no partition";
    cell.setAttribute("aria-label", `${node.location ?? "node"} at ${node.coords.join(", ")}: ${words}`);
  }

  /** Nodes of a partition have another state. Returns `false` if the partition, or one of the nodes, is not known. */
  change(partition, byState) {
    const indexes = this.#partitions.get(partition);
    if (!indexes) return false;
    let isKnown = true;
    for (const [state, numbers] of Object.entries(byState)) {
      for (const number of numbers) {
        const node = this.#nodes[indexes[number]];
        if (!node) {
          isKnown = false;
          continue;
        }
        node.state = state;
        this.#paint(indexes[number]);
      }
    }
    this.#heard.changed();
    return isKnown;
  }

  /** The node of a location, or `null`. */
  find(location) {
    const index = this.#nodes.findIndex((node) => node?.location === location);
    return index < 0 ? null : index;
  }

  #focused(index) {
    this.#cells[this.#current].tabIndex = -1;
    this.#current = index;
    this.#cells[index].tabIndex = 0;
    this.#heard.focused(this.node(index));
  }

  focus(index) {
    this.#cells[index]?.focus();
  }

  /** Picks a node, or none. */
  pick(index) {
    if (this.#picked !== null) this.#cells[this.#picked].removeAttribute("aria-selected");
    for (const mate of this.#mates) this.#cells[mate].classList.remove("mate");
    this.#mates = [];
    this.#picked = index;
    if (index === null) return;
    this.#cells[index].setAttribute("aria-selected", "true");
    const { partition, pset } = this.node(index);
    this.#mates = (this.#partitions.get(partition) ?? []).filter((at) => this.#nodes[at].pset === pset);
    for (const mate of this.#mates) this.#cells[mate].classList.add("mate");
    this.#heard.picked(this.node(index));
  }

  /** Dims the nodes of all partitions but this one, or none. */
  highlight(partition) {
    this.#nodes.forEach((node, index) => {
      this.#cells[index].classList.toggle("dim", partition !== null && node?.partition !== partition);
    });
  }

  #key_down(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const move = (axis, by) => {
      const to = this.coords(this.#current);
      to[axis] = Math.min(Math.max(to[axis] + by, 0), this.#shape[axis] - 1);
      this.focus(this.#index(to));
    };
    const keys = {
      ArrowLeft: () => move(0, -1),
      ArrowRight: () => move(0, 1),
      ArrowUp: () => move(1, -1),
      ArrowDown: () => move(1, 1),
      PageUp: () => move(2, -1),
      PageDown: () => move(2, 1),
      Home: () => move(0, -this.#shape[0]),
      End: () => move(0, this.#shape[0]),
      Enter: () => this.pick(this.#current),
      " ": () => this.pick(this.#current),
      n: () => this.#next_trouble(),
      N: () => this.#next_trouble(),
    };
    if (!(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  }

  #next_trouble() {
    const size = this.#cells.length;
    for (let step = 1; step <= size; step++) {
      const index = (this.#current + step) % size;
      if (TROUBLE.includes(this.#nodes[index]?.state)) {
        this.focus(index);
        return;
      }
    }
  }
}
