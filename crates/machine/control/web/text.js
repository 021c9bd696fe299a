// SPDX-License-Identifier: MIT OR Apache-2.0
// Elements and words. Whatever comes from the machine becomes text, never markup.

/** The states of nodes: letter, words. The order is that of the legend. */
export const STATES = {
  ready: { letter: "R", words: "ready" },
  busy: { letter: "J", words: "busy with a job" },
  booting: { letter: "B", words: "booting" },
  off: { letter: "O", words: "off" },
  drained: { letter: "X", words: "drained" },
  lost: { letter: "L", words: "lost" },
  dead: { letter: "D", words: "dead" },
};

export const SEVERITIES = ["info", "warning", "error", "fatal"];

/** An element with attributes and children; strings are text. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const byId = (id) => document.getElementById(id);

export const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

/** A duration in seconds, as people read it. */
export function duration(seconds) {
  const s = Math.max(0, seconds);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

/** An instant, in seconds since 1970: today its time, otherwise date and time. */
export function instant(seconds) {
  const date = new Date(seconds * 1000);
  const two = (n) => String(n).padStart(2, "0");
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const isToday = new Date().toDateString() === date.toDateString();
  return element("time", { datetime: date.toISOString(), title: `${day} ${time}` }, isToday ? time : `${day} ${time}`);
}

/** The command of a job, in one line. */
export function command({ request }) {
  const words = [request.name ?? request.executable, ...(request.arguments ?? [])];
  return words.join(" ") + (request.programs?.length ? " …" : "");
}

/** Text that is said by screen readers, the newest only. */
let saying = 0;
export function say(text) {
  clearTimeout(saying);
  saying = setTimeout(() => {
    byId("say").textContent = text;
  }, 200);
}
