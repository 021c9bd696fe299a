// SPDX-License-Identifier: MIT OR Apache-2.0
// The page: what the daemon says goes to the grid, the view in space and the lists.

import { Daemon, Refused } from "./daemon.js";
import * as lists from "./lists.js";
import { Nodes } from "./nodes.js";
import { Space } from "./space.js";
import { STATES, byId, count, element, instant, say } from "./text.js";

const JOBS = 50;
const EVENTS = 200;
const OF_NODE = 20;
/** From a change to the question that it leads to: changes come in crowds. */
const SOON_MS = 150;
/** Period of looks at what has no events: partitions that are made or removed. */
const LOOK_MS = 15_000;
const SIGTERM = 15;

const daemon = new Daemon();
let machine = null;
let highlighted = null;
/** Changes of nodes that come while the page asks for all nodes. */
let waiting = null;
/** Whether the user may change things: a token may only look. */
let mayChange = false;
/** Whether everything that is shown has been asked for. */
let isWhole = false;

const nodes = new Nodes(byId("slices"), { picked: (node) => showNode(node.index), focused, hovered: read, changed });
const space = new Space(byId("space"), nodes, (index) => {
  nodes.pick(index);
});
const events = new lists.Events((location) => nodes.find(location), (location) => {
  const index = nodes.find(location);
  if (index === null) return;
  nodes.pick(index);
  nodes.focus(index);
});

function link(is, words) {
  const place = byId("link");
  if (place.textContent !== words) place.textContent = words;
  place.dataset.is = is;
  document.body.dataset.link = is;
}

/** One question for many changes. */
function soon(ask) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(() => ask().catch(failed), SOON_MS);
  };
}

function failed(error) {
  if (error instanceof Refused && error.needsToken) return login(error.message);
  // the page asks again with the present token
  if (error instanceof Refused && error.hasOldToken) return;
  notice(error instanceof Refused ? error.message : "");
}

function notice(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = text === "";
}

function login(why) {
  link("refused", "no token");
  byId("main").hidden = true;
  byId("login").hidden = false;
  byId("login-error").textContent = daemon.hasToken ? why : "";
  daemon.token = null;
  byId("token").focus();
}

function changed() {
  const all = nodes.counts();
  for (const item of byId("states").children) item.querySelector("strong").textContent = (all[item.dataset.is] ?? 0).toLocaleString("en");
  space.draw();
  const picked = nodes.picked;
  if (picked !== null && byId("node").dataset.shown !== `${picked} ${nodes.node(picked).state}`) showNode(picked);
}

/** The line below the grid says where one is. */
function read(node) {
  const words = STATES[node.state]?.words ?? "in no partition";
  const pset = node.pset === undefined ? "" : ` · pset ${node.pset}`;
  byId("readout").textContent = `${node.location ?? "–"} · ${node.coords.join(", ")}${pset} · ${words}`;
}

function focused(node) {
  read(node);
  // the view in space has the slice of the focus
  space.draw();
}

async function showNode(index) {
  const node = nodes.node(index);
  const card = byId("node");
  card.dataset.shown = `${index} ${node.state}`;
  card.hidden = false;
  space.draw();
  const partition = machine?.partitions.find((p) => p.name === node.partition) ?? null;
  lists.facts(node, partition, null);
  if (!partition) return lists.eventsOfNode([]);
  const name = encodeURIComponent(partition.name);
  try {
    const [detail, past] = await Promise.all([
      daemon.ask(`/v1/partitions/${name}/nodes/${node.number}`),
      daemon.ask(`/v1/ras?location=${encodeURIComponent(node.location)}&limit=${OF_NODE}`),
    ]);
    if (nodes.picked !== index) return;
    lists.facts({ ...nodes.node(index), drained: detail.node.drained }, partition, detail.personality);
    lists.eventsOfNode(past.filter((e) => e.location === node.location));
  } catch (error) {
    failed(error);
  }
}

function closeNode() {
  const picked = nodes.picked;
  nodes.pick(null);
  byId("node").hidden = true;
  space.draw();
  if (picked !== null) nodes.focus(picked);
}

function showPartitions() {
  lists.partitions(machine.partitions, highlighted, (name) => {
    highlighted = highlighted === name ? null : name;
    nodes.highlight(highlighted);
    showPartitions();
  });
}

/** The allocation that the machine is a part of, and when its nodes are switched off. */
function part(allocation) {
  if (!allocation) return "";
  const scheduler = allocation.scheduler === "slurm" ? "Slurm" : "Flux";
  const end = allocation.stops === undefined ? "" : ` until ${instant(allocation.stops).textContent}`;
  return ` · ${scheduler} job ${allocation.job}${end}`;
}

async function loadMachine() {
  machine = await daemon.ask("/v1/machine");
  notice("");
  const total = machine.shape.split("x").reduce((all, side) => all * Number(side), 1);
  byId("shape").textContent = `${machine.shape.replaceAll("x", "×")} · ${count(total, "node")}${part(machine.allocation)}`;
  showPartitions();
}

async function loadNodesNow() {
  isWhole = false;
  waiting = [];
  try {
    await loadNodesOnce();
    isWhole = true;
  } finally {
    waiting = null;
  }
}

async function loadNodesOnce() {
  await loadMachine();
  const of = async ({ name }) => ({ name, nodes: await daemon.ask(`/v1/partitions/${encodeURIComponent(name)}/nodes`) });
  const parts = await Promise.all(machine.partitions.map(of));
  nodes.show(machine.shape.split("x").map(Number), parts);
  nodes.highlight(highlighted);
  for (const { partition, nodes: byState } of waiting) nodes.change(partition, byState);
}

/** One question after the other: an answer that comes late does not replace a newer one. */
let last = Promise.resolve();
function inOrder(ask) {
  last = last.catch(() => {}).then(ask);
  return last;
}

const loadNodes = () => inOrder(loadNodesNow);

const loadJobs = async () => lists.jobs(await daemon.ask(`/v1/jobs?limit=${JOBS}`), mayChange ? askToCancel : null);
const loadEvents = async () => events.take(await daemon.ask(`/v1/ras?limit=${EVENTS}`));
const nodesSoon = soon(() => (isWhole ? loadNodes() : load()));
const machineSoon = soon(() => (isWhole || waiting !== null ? inOrder(loadMachine) : load()));
const jobsSoon = soon(loadJobs);

async function loadCaller() {
  const caller = await daemon.ask("/v1/caller");
  mayChange = !caller.read_only;
  document.body.dataset.may = mayChange ? "change" : "look";
  if (document.body.dataset.link === "live") link("live", mayChange ? "live" : "live, read-only");
}

/** Asks for everything: at first, and when something may have been missed. */
async function load() {
  try {
    await loadCaller();
    await loadNodes();
    await Promise.all([loadJobs(), loadEvents()]);
    byId("login").hidden = true;
    byId("main").hidden = false;
    document.body.dataset.loaded = "true";
    space.draw();
  } catch (error) {
    isWhole = false;
    failed(error);
  }
}

function told(kind, data) {
  if (kind === "nodes") {
    if (waiting !== null) waiting.push(data);
    else if (!nodes.change(data.partition, data.nodes)) nodesSoon();
    machineSoon();
  } else if (kind === "ras") {
    events.take([data]);
    if (data.severity !== "info") say(`${data.severity}: ${data.code} at ${data.location || "the machine"}`);
    const picked = nodes.picked;
    if (picked !== null && nodes.node(picked).location === data.location) showNode(picked);
  } else if (kind === "partition") {
    nodesSoon();
  } else if (kind === "job") {
    jobsSoon();
  } else if (kind === "missed") {
    load();
  }
}

function listen() {
  daemon.listen({
    opened: () => {
      link("live", "live");
      load();
    },
    told,
    closed: (error) => {
      if (error instanceof Refused && error.needsToken) return login(error.message);
      if (error instanceof Refused) notice(error.message);
      link("gone", "the daemon does not answer");
    },
  });
}

let cancelled = null;

function askToCancel(job) {
  cancelled = job;
  byId("cancel-title").textContent = `End job ${job.id}?`;
  byId("cancel-text").textContent = `Its processes get SIGTERM, as by colony job cancel ${job.id}.`;
  byId("cancel-error").textContent = "";
  byId("cancel").showModal();
}

async function cancel() {
  try {
    await daemon.send(`/v1/jobs/${cancelled.id}/signal`, { signal: SIGTERM });
    byId("cancel").close();
  } catch (error) {
    byId("cancel-error").textContent = error.message;
  }
  jobsSoon();
}

for (const [state, { letter, words }] of Object.entries(STATES)) {
  const sample = element("span", { class: "n", "data-is": state, "aria-hidden": "true" }, element("b", {}, letter));
  byId("states").append(element("li", { "data-is": state }, sample, element("strong", {}, "0"), element("span", {}, words)));
}
byId("node-close").addEventListener("click", closeNode);
byId("node").addEventListener("keydown", ({ key }) => key === "Escape" && closeNode());
byId("slices").addEventListener("keydown", ({ key }) => key === "Escape" && closeNode());
byId("cancel-no").addEventListener("click", () => byId("cancel").close());
byId("cancel-yes").addEventListener("click", cancel);
byId("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  daemon.token = byId("token").value.trim();
  byId("token").value = "";
  listen();
});
addEventListener("hashchange", () => daemon.takeToken() && location.reload());
setInterval(lists.tick, 1000);
setInterval(() => document.body.dataset.link === "live" && !document.hidden && machineSoon(), LOOK_MS);
listen();
