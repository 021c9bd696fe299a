// SPDX-License-Identifier: MIT OR Apache-2.0
// Partitions, jobs and events as tables and lists.

import { SEVERITIES, STATES, byId, command, count, duration, element, instant } from "./text.js";

/** Events that the page keeps. */
const EVENTS = 300;

/** Replaces a table. What had the focus has it again. */
function table(place, columns, rows, none) {
  const key = place.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  if (rows.length === 0) {
    place.replaceChildren(element("p", { class: "hint" }, ...none));
    return;
  }
  const head = element("tr", {}, ...columns.map((name) => element("th", { scope: "col" }, name)));
  const cell = (content, at) => element("td", { "data-label": columns[at] }, content);
  const body = rows.map((row) => element("tr", { "data-is": row.state }, ...row.cells.map(cell)));
  place.replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
  if (key !== undefined) [...place.querySelectorAll("[data-key]")].find((e) => e.dataset.key === key)?.focus();
}

const state = (is, words = is) => element("span", { class: "state", "data-is": is }, words);

/** The partitions. `shown` is the one whose nodes are shown; `toggle` is called with a name. */
export function partitions(all, shown, toggle) {
  const columns = ["Partition", "State", "Shape", "Nodes", "I/O nodes", "Memory", "Boot"];
  const row = (p) => {
    const nodes = Object.entries(p.nodes).map(([is, number]) => `${number} ${STATES[is]?.words.split(" ")[0] ?? is}`);
    const attributes = { type: "button", class: "name", "data-key": p.name, "aria-pressed": String(p.name === shown), title: "Show its nodes" };
    const name = element("button", attributes, p.name);
    name.addEventListener("click", () => toggle(p.name));
    const fits = p.usable && `${count(p.usable.nodes, "node")} take jobs, ${p.usable.largest ? `a job of ${p.usable.largest} still fits` : "no job fits"}`;
    const why = p.error ?? fits;
    const is = element("div", {}, state(p.state), why ? element("p", { class: "why" }, why) : null);
    const boot = p.boot_s === undefined ? "–" : duration(p.boot_s);
    const cells = [name, is, p.shape, nodes.join(", "), `${p.io_nodes}${p.node.io_nodes === "linux" ? " (Linux)" : ""}`, `${p.node.memory_mib} MiB a node`, boot];
    return { state: p.state, cells };
  };
  table(byId("partitions"), columns, all.map(row), ["No partition. ", element("code", {}, "colony partition create"), " makes one."]);
}

/** The jobs, the newest first. `cancel` is called with a job; without it, jobs cannot be ended. */
export function jobs(all, cancel) {
  const columns = ["Job", "User", "Program", "Partition", "State", "Submitted", "Time"].concat(cancel ? [""] : []);
  const row = (job) => {
    const { id, request } = job;
    const hasFailed = job.state === "ended" && job.code !== 0;
    const words = job.state === "ended" ? (hasFailed ? `ended with ${job.code}` : "done") : job.state;
    const is = element("div", {}, state(hasFailed ? "failed" : job.state, words), job.error ? element("p", { class: "why" }, job.error) : null);
    const from = job.started ?? job.ended;
    const time = element("span", job.started && !job.ended ? { "data-since": job.started } : {});
    time.textContent = from === undefined ? "–" : duration((job.ended ?? Date.now() / 1000) - from);
    let end = "";
    if (cancel && job.state !== "ended") {
      end = element("button", { type: "button", "data-key": `job ${id}`, "aria-label": `End job ${id}` }, "End…");
      end.addEventListener("click", () => cancel(job));
    }
    const program = element("span", { class: "program" }, command(job));
    const partition = element("span", { class: "partition" }, request.partition);
    const cells = [String(id), job.user, program, partition, is, instant(job.submitted), time];
    return { state: job.state, cells: cancel ? [...cells, end] : cells };
  };
  table(byId("jobs"), columns, all.map(row), ["No job so far. ", element("code", {}, "colony job run"), " runs one."]);
}

/** Times of jobs that run go on. */
export function tick() {
  for (const time of document.querySelectorAll("[data-since]")) time.textContent = duration(Date.now() / 1000 - time.dataset.since);
}

/** One event; `go` is called with its location, if that is a node of the machine. */
function event(e, go) {
  const place = go ? element("button", { type: "button", class: "name" }, e.location) : element("span", {}, e.location || "machine");
  if (go) place.addEventListener("click", () => go(e.location));
  const job = e.job === undefined ? null : element("span", { class: "of" }, `job ${e.job}`);
  const severity = element("span", { class: "severity", "data-is": e.severity }, e.severity);
  const head = element("div", { class: "of-event" }, severity, element("code", {}, e.code), place, job, instant(e.time));
  return element("li", { "data-id": e.id }, head, element("p", {}, e.message));
}

/** The latest events of one node. */
export function eventsOfNode(all) {
  const none = element("li", {}, element("p", { class: "hint" }, "none"));
  byId("node-events").replaceChildren(...(all.length ? all.toReversed().map((e) => event(e, null)) : [none]));
}

/** The list of all events, the newest first. */
export class Events {
  #all = [];
  #worse = 0;
  #find;
  #go;

  /** `find(location)` returns the node of a location or `null`, and `go(location)` shows it. */
  constructor(find, go) {
    this.#find = find;
    this.#go = go;
    byId("severity").addEventListener("change", ({ target }) => {
      this.#worse = Number(target.value);
      this.#show();
    });
  }

  /** Takes events, the oldest first. Those that are known stay as they are. */
  take(events) {
    const known = new Set(this.#all.map((e) => e.id));
    const newer = events.filter((e) => !known.has(e.id));
    if (newer.length === 0) return;
    this.#all = [...this.#all, ...newer].sort((a, b) => a.id - b.id).slice(-EVENTS);
    this.#show();
  }

  #show() {
    const shown = this.#all.filter((e) => SEVERITIES.indexOf(e.severity) >= this.#worse).reverse();
    const place = byId("events");
    if (shown.length === 0) {
      place.replaceChildren(element("li", {}, element("p", { class: "hint" }, "none")));
      return;
    }
    // those that stay keep the focus
    const there = new Map([...place.children].map((item) => [item.dataset.id, item]));
    const item = (e) => there.get(String(e.id)) ?? event(e, this.#find(e.location) === null ? null : this.#go);
    place.replaceChildren(...shown.map(item));
  }
}

/** The facts of a node. */
export function facts(node, partition, personality) {
  const rows = [
    ["State", state(node.state, STATES[node.state]?.words ?? "in no partition")],
    ["Coordinates", node.coords.join(", ")],
  ];
  if (node.drained) rows.push(["Drained", node.drained]);
  if (partition) {
    rows.push(["Partition", partition.name], ["Number", String(node.number)], ["Pset", `${node.pset} of ${partition.io_nodes}`]);
  }
  if (personality) {
    const p = personality;
    rows.push(["Rank in pset", `${p.rank_in_pset} of ${p.pset_size}`], ["I/O node", p.io_node]);
    rows.push(["Torus", `${p.torus_coords.join(", ")} of ${p.torus}`], ["Memory", `${p.memory_mib} MiB`]);
    rows.push(["Collective parent", p.parent ?? "none"], ["Children", p.children.join(", ") || "none"]);
    rows.push(["Depth", count(p.depth, "link") + " to the root"]);
  }
  byId("node-title").textContent = node.location ?? `Node at ${node.coords.join(", ")}`;
  byId("node-facts").replaceChildren(...rows.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}
