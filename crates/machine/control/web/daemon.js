// SPDX-License-Identifier: MIT OR Apache-2.0
// The connection to the control daemon: requests, and events as they happen.

const KEY = "colony-token";
/** The daemon says something at least every 15 s. */
const SILENCE_MS = 40_000;
const FIRST_PAUSE_MS = 400;
const LONGEST_PAUSE_MS = 8_000;

/** A request that the daemon has refused. */
export class Refused extends Error {
  constructor(status, message, hasOldToken) {
    super(message);
    this.status = status;
    /** The request had a token that has been replaced since: its refusal says nothing about the present one. */
    this.hasOldToken = hasOldToken;
  }

  /** The present token is not accepted. */
  get needsToken() {
    return this.status === 401 && !this.hasOldToken;
  }
}

const wait = (ms) => new Promise((done) => setTimeout(done, ms));

export class Daemon {
  #token = sessionStorage.getItem(KEY);
  /** Ends the listener, of which there is one at a time. */
  #listener = new AbortController();

  constructor() {
    this.takeToken();
  }

  /** Takes the token from the address of the page, which then forgets it. Returns whether there was one. */
  takeToken() {
    const found = /^#token=([0-9a-f]{64})$/.exec(location.hash);
    if (!found) return false;
    history.replaceState(null, "", location.pathname);
    this.token = found[1];
    return true;
  }

  set token(token) {
    this.#token = token;
    if (token === null) {
      sessionStorage.removeItem(KEY);
      this.#listener.abort();
    } else sessionStorage.setItem(KEY, token);
  }

  get hasToken() {
    return this.#token !== null;
  }

  async #fetch(path, options = {}) {
    const headers = { ...options.headers };
    const token = this.#token;
    if (token !== null) headers.authorization = `Bearer ${token}`;
    const answer = await fetch(path, { cache: "no-store", credentials: "omit", redirect: "error", ...options, headers });
    if (answer.ok) return answer;
    const problem = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, problem.error ?? `the control daemon answers with status ${answer.status}`, token !== this.#token);
  }

  /** The answer to a question. */
  async ask(path) {
    return (await this.#fetch(path)).json();
  }

  /** Sends a request with a body. */
  async send(path, body) {
    const headers = { "content-type": "application/json" };
    return (await this.#fetch(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
  }

  /**
   * Listens for ever. `opened` is called when nothing more can be missed, `told` with each event and its kind, `closed` when
   * the connection has ended. The next call, which listens instead, ends this,
   * and so does the loss of the token.
   */
  async listen({ opened, told, closed }) {
    this.#listener.abort();
    const listener = new AbortController();
    this.#listener = listener;
    let pause = FIRST_PAUSE_MS;
    while (!listener.signal.aborted) {
      const ends = new AbortController();
      listener.signal.addEventListener("abort", () => ends.abort(), { once: true, signal: ends.signal });
      let silence = 0;
      const alive = () => {
        clearTimeout(silence);
        silence = setTimeout(() => ends.abort(), SILENCE_MS);
      };
      try {
        alive();
        const answer = await this.#fetch("/v1/events", { signal: ends.signal });
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        let text = "";
        let isOpen = false;
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          alive();
          if (!isOpen) {
            isOpen = true;
            pause = FIRST_PAUSE_MS;
            opened();
          }
          text += value;
          const parts = text.split("\n\n");
          text = parts.pop();
          for (const part of parts) tell(part, told);
        }
        if (!listener.signal.aborted) closed(null);
      } catch (error) {
        if (listener.signal.aborted) return;
        closed(error);
        if (error instanceof Refused && error.needsToken) return;
      } finally {
        clearTimeout(silence);
        ends.abort();
      }
      await wait(pause);
      pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
    }
  }
}

/** Tells one event of the stream. */
function tell(part, told) {
  let kind = "message";
  let data = "";
  for (const line of part.split("\n")) {
    if (line.startsWith("event: ")) kind = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (data !== "") told(kind, JSON.parse(data));
}
