// What the page knows: tables as the console's stream makes them, and what is asked for.
//
// A table is a Map of rows by key, and a signal that says when it changed. The rules are those of `replay` in
// console/model/tables.py: forget everything if it is whole, forget what is gone, then take what is new.

import { batch, signal } from "./lib.js";

export class Table {
  constructor() {
    this.rows = new Map();
    this.version = signal(0);
  }
  // Subscribes the component that reads it.
  get now() {
    this.version.value;
    return this.rows;
  }
  get list() {
    return [...this.now.values()];
  }
  get(key) {
    return this.now.get(key);
  }
  take(told) {
    if (told.whole) this.rows = new Map();
    for (const key of told.gone ?? []) this.rows.delete(key);
    for (const [key, row] of Object.entries(told.new)) {
      if (told.keep === undefined) this.rows.set(key, row);
      else this.rows.set(key, [...(this.rows.get(key) ?? []), ...row].slice(-told.keep));
    }
    this.version.value++;
  }
}

// Tables by name; made when somebody first asks for one.
function tablesOf() {
  const made = new Map();
  return new Proxy({}, {
    get: (_, name) => {
      if (!made.has(name)) made.set(name, new Table());
      return made.get(name);
    },
  });
}

export const tables = tablesOf();
export const session = signal(null);
export const connection = signal("connecting"); // connecting, live, lost
export const refused = signal(null); // why nothing can be shown
// The console's clock less ours, in milliseconds: ages are told by the console's.
let ahead = 0;
export const clock = signal(Date.now());
export const now = () => Date.now() + ahead;
setInterval(() => { clock.value = now(); lookWhetherSilent(); }, 1000);

export function takeNews(news, into = tables) {
  batch(() => {
    for (const [name, told] of Object.entries(news.tables)) into[name].take(told);
  });
}

// Tables of another moment, as `/api/past` answers.
export function pastTables(news) {
  const made = tablesOf();
  takeNews(news, made);
  return made;
}

// The stream of the page that is open. Another page has another one; a page that nobody sees has none.
let source = null;
let wanted = null;
// Whose versions the stream counts: the part of its events' ids before the colon.
let instance = null;
// The console's time of the last event: what is shown is of then.
let told_ms = 0;
export const asOf = () => told_ms;

// A console that is paused, or behind a network that drops everything, leaves the connection open. It says something every
// five seconds (HEARTBEAT_S in web/stream.py), so whoever is silent for longer is lost. The first event has all rows: over a slow
// line it takes a while, once the console has begun to answer.
const SILENT_MS = 15_000;
const FIRST_MS = 60_000;
let silent = { since: 0, most: SILENT_MS };

function heard(most = SILENT_MS) {
  silent = { since: performance.now(), most };
}

function lookWhetherSilent() {
  if (!source || performance.now() - silent.since < silent.most) return;
  connection.value = "lost";
  open();
}

export function watch(page, query = {}) {
  const address = `/api/stream?${new URLSearchParams({ page, ...query })}`;
  if (wanted === address) return;
  wanted = address;
  open();
}

function open() {
  close();
  if (!wanted || document.hidden || refused.value) return;
  heard();
  source = new EventSource(wanted);
  source.onopen = () => heard(FIRST_MS);
  source.onmessage = async (event) => {
    const [theirs] = event.lastEventId.split(":");
    if (instance !== null && instance !== theirs) {
      // Another process, or another visit, perhaps of another user. Nothing is shown before we know which.
      close();
      if (await askSession()) open();
      return;
    }
    instance = theirs;
    heard();
    const told = JSON.parse(event.data);
    told_ms = told.now;
    ahead = told.now - Date.now();
    takeNews(told.news);
    if (connection.value !== "live") connection.value = "live";
  };
  source.onerror = async () => {
    connection.value = "lost";
    if (source?.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    close();
    if (await askSession()) setTimeout(open, 1000);
  };
}

function close() {
  source?.close();
  source = null;
  instance = null;
}

document.addEventListener("visibilitychange", open);

// Requests

export class Failed extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export async function ask(name, parameters = {}, { signal } = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== "") query.set(key, value);
  }
  return answered(await fetch(`/api/${name}?${query}`, { signal }));
}

export async function send(name, fields, { signal } = {}) {
  const raw = fields instanceof Blob;
  return answered(await fetch(`/api/${name}`, {
    method: "POST",
    headers: {
      "content-type": raw ? "application/octet-stream" : "application/json",
      "x-ottla-token": session.value?.token ?? "",
    },
    body: raw ? fields : JSON.stringify(fields),
    signal,
  }));
}

async function answered(answer) {
  const body = answer.headers.get("content-type")?.startsWith("application/json") ? await answer.json() : null;
  if (!answer.ok) {
    if (answer.status === 401) askSession();
    throw new Failed(answer.status, body?.error ?? `The console answered ${answer.status}.`);
  }
  return body;
}

// Nobody, on a console with logins; else a user by name. An open cluster has one user without a name.
const whoIs = (session) => (session.login ? "nobody" : `user ${session.user ?? ""}`);

// Whether the console answers and lets us in.
export async function askSession() {
  try {
    const answer = await fetch("/api/session");
    if (!answer.ok) throw new Failed(answer.status, await answer.text());
    const before = session.value;
    const told = await answer.json();
    if (before && whoIs(before) !== whoIs(told)) {
      // What the user before saw is in tables, in pages and in their modules: only a new page has none of it.
      location.reload();
      return false;
    }
    session.value = told;
    refused.value = null;
    return !told.login;
  } catch (error) {
    if (error instanceof Failed) refused.value = error.message;
    else setTimeout(async () => { if (await askSession()) open(); }, 2000);
    return false;
  }
}
