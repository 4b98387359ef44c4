// The frame around every page: the rail, the head, the search; and which page is shown.

import { Component } from "./vendor/preact.js";
import { html, render, useEffect, useRef, useState } from "./lib.js";
import { Icon } from "./parts/icons.js";
import { asset, Titled } from "./parts/page.js";
import { Login } from "./pages/login.js";
import { go, groupOf, place, to } from "./router.js";
import { askSession, connection, refused, send, session, tables, watch } from "./store.js";

const ENTRIES = [
  ["/", "Overview", "overview"],
  ["/timeline", "Timeline", "timeline"],
  ["/groups", "Groups", "groups"],
  ["/messages", "Messages", "messages"],
  ["/topics", "Topics", "topics"],
  ["/moves", "Moves", "moves"],
  ["/transactions", "Transactions", "transactions"],
  ["/security", "Security", "security"],
  ["/lab", "Simulator", "lab"],
];

// Pattern, module, and the stream of the page: its name and its parameters.
const ROUTES = [
  [/^\/$/, "overview", () => ["overview"]],
  [/^\/timeline$/, "timeline", () => ["timeline"]],
  [/^\/groups$/, "groups", () => ["groups"]],
  [/^\/groups\/([^/]+)$/, "group", (part) => ["group", { group: groupOf(part) }]],
  [/^\/messages(?:\/([^/]+))?$/, "messages", (topic) => (topic ? ["messages", { topic }] : ["messages"])],
  [/^\/topics$/, "topics", () => ["topics"]],
  [/^\/topics\/([^/]+)$/, "topic", (topic) => ["topic", { topic }]],
  [/^\/topics\/([^/]+)\/(\d+)$/, "partition", (topic, partition) => ["partition", { topic, partition }]],
  [/^\/brokers\/(\d+)$/, "broker", () => ["brokers"]],
  [/^\/moves$/, "moves", () => ["moves"]],
  [/^\/transactions$/, "transactions", () => ["transactions"]],
  [/^\/security$/, "security", () => ["plain"]],
  [/^\/lab$/, "lab", () => ["plain"]],
];

// Undefined where there is none, also where a part of the address is no text.
function pageAt(path) {
  for (const [pattern, name, stream] of ROUTES) {
    const match = path.match(pattern);
    try {
      if (match) return { name, stream, parts: match.slice(1).map((each) => (each === undefined ? each : decodeURIComponent(each))) };
    } catch {
      return undefined;
    }
  }
}

const loaded = {};

function Page() {
  const { path } = place.value;
  const [, setLoads] = useState(0);
  const found = pageAt(path);
  const name = found?.name;
  useEffect(() => {
    if (!found) return;
    watch(...found.stream(...found.parts));
  }, [path]);
  useEffect(() => {
    if (name && !loaded[name]) {
      import(`./pages/${name}.js`).then((module) => { loaded[name] = module.default; setLoads((n) => n + 1); });
    }
  }, [name]);
  if (!found) {
    return html`<${Titled} title="Not here" /><h1>There is no such page.</h1><p><a href="/">To the overview</a></p>`;
  }
  const View = loaded[name];
  if (!View) return html`<p class="muted" role="status">Loading…</p>`;
  return html`<${Guarded} key=${path}><${View} parts=${found.parts} /></${Guarded}>`;
}

// A page that fails says so, and the others still work.
class Guarded extends Component {
  constructor() {
    super();
    this.state = { error: null };
  }
  componentDidCatch(error) {
    console.error(error);
    this.setState({ error });
  }
  render({ children }, { error }) {
    if (!error) return children;
    return html`<div class="box"><h1>This page failed.</h1><p class="muted">${String(error)}</p>
      <p><button onClick=${() => this.setState({ error: null })}>Try again</button></p></div>`;
  }
}

function Rail() {
  const { path } = place.value;
  const problems = tables.problems.list;
  const wrong = problems.filter((each) => each.severity === 3).length;
  const soft = problems.filter((each) => each.severity === 2).length;
  return html`<nav class="rail" aria-label="Pages">
    <a class="brand" href="/"><img src=${asset("icon.svg")} alt="" />ottla</a>
    ${ENTRIES.map(([address, text, icon]) => {
      const here = address === "/" ? path === "/" || path.startsWith("/brokers") : path.startsWith(address);
      const bubble = address === "/" && (wrong || soft);
      return html`<a class="item" href=${address} aria-current=${here ? "page" : undefined}>
        <${Icon} name=${icon} />${text}
        ${bubble ? html`<span class=${`bubble ${wrong ? "" : "soft"}`}>${wrong + soft}<span class="visually-hidden"> problems</span></span>` : null}
      </a>`;
    })}
    <div class="foot small muted">
      <span>${session.value?.allow_writes ? "May change things." : "Only reads."}</span>
      <span>ottla ${session.value?.version ?? ""}</span>
    </div>
  </nav>`;
}

const THEMES = ["auto", "light", "dark"];

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem("theme") ?? "auto");
  useEffect(() => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
    dispatchEvent(new Event("theme"));
  }, [theme]);
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  return html`<button class="quiet icon" onClick=${() => setTheme(next)} title=${`Colours: ${theme}`}
    aria-label=${`Colours: ${theme}. Change to ${next}`}>
    <${Icon} name=${{ auto: "auto", light: "sun", dark: "moon" }[theme]} /></button>`;
}

const LINKS = { connecting: "connecting", live: "live", lost: "no connection to the console" };

function Head() {
  const cluster = tables.cluster.get("cluster");
  const { user } = session.value ?? {};
  return html`<header class="top">
    <div class="where">
      <span class=${`dot ${connection.value}`} title=${LINKS[connection.value]}></span>
      <span class="visually-hidden" role="status">${LINKS[connection.value]}</span>
      <span class="id muted small">${cluster?.cluster_id ? html`cluster <span class="mono">${cluster.cluster_id}</span>` : session.value?.bootstrap}</span>
      ${cluster?.is_ottla === false ? html`<span class="chip">Apache Kafka</span>` : null}
    </div>
    <span class="spring"></span>
    <${Search} />
    ${user ? html`<span class="chip" title="logged in">${user}</span>
      <button class="quiet icon" title="Log out" aria-label="Log out" onClick=${logOut}><${Icon} name="out" /></button>` : null}
    <${Theme} />
  </header>`;
}

async function logOut() {
  await send("logout", {}).catch(() => null);
  location.href = "/";
}

// Go to anything by its name: / opens it.
function Search() {
  const dialog = useRef(null);
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const open = () => { setText(""); setChosen(0); dialog.current.showModal(); };
  useEffect(() => {
    const onKey = (event) => {
      const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
      if ((event.key === "/" && !typing) || (event.key === "k" && (event.metaKey || event.ctrlKey))) {
        event.preventDefault();
        open();
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  const found = dialog.current?.open ? candidates(text.trim().toLowerCase()) : [];
  const leave = (address) => { dialog.current.close(); go(address); };
  const onKey = (event) => {
    if (event.key === "ArrowDown") setChosen(Math.min(chosen + 1, found.length - 1));
    else if (event.key === "ArrowUp") setChosen(Math.max(chosen - 1, 0));
    else if (event.key === "Enter" && found[chosen]) leave(found[chosen].address);
    else return;
    event.preventDefault();
  };
  return html`
    <button class="quiet" onClick=${open} aria-label="Find anything"><${Icon} name="search" /><span class="small muted wide-only">Find</span> <kbd class="wide-only">/</kbd></button>
    <dialog ref=${dialog} class="find" aria-label="Find anything" onClick=${(e) => e.target === dialog.current && dialog.current.close()}>
      <input type="search" role="combobox" aria-expanded="true" aria-controls="found" aria-activedescendant=${found.length ? `found-${chosen}` : undefined}
        placeholder="Topic, partition, group, broker, page" aria-label="Name" value=${text}
        onInput=${(e) => { setText(e.target.value); setChosen(0); }} onKeyDown=${onKey} />
      <ul id="found" role="listbox" aria-label="Found">
        ${found.map((each, index) => html`<li key=${each.address} id=${`found-${index}`} role="option" aria-selected=${index === chosen}
          onClick=${() => leave(each.address)}><span class="name">${each.text}</span><span class="muted small">${each.kind}</span></li>`)}
      </ul>
      <p class=${found.length ? "visually-hidden" : "empty"} role="status">${found.length ? "" : "Nothing has such a name."}</p>
    </dialog>`;
}

function candidates(text) {
  const found = [];
  const add = (name, kind, address) => {
    const at = name.toLowerCase().indexOf(text);
    if (at >= 0) found.push({ text: name, kind, address, rank: at + name.length / 100 });
  };
  for (const [address, name] of ENTRIES) add(name, "page", address);
  for (const id of tables.brokers.rows.keys()) add(`broker ${id}`, "broker", to.broker(id));
  for (const name of tables.topics.rows.keys()) add(name, "topic", to.topic(name));
  for (const id of tables.groups.rows.keys()) add(id, "group", to.group(id));
  const partition = text.match(/^(.+)-(\d+)$/);
  if (partition && tables.topics.rows.has(partition[1])) add(text, "partition", to.partition(partition[1], partition[2]));
  return found.sort((a, b) => a.rank - b.rank).slice(0, 12);
}

function App() {
  if (refused.value) return html`<main><h1>The console refuses.</h1><p>${refused.value}</p></main>`;
  if (!session.value) return html`<main><p class="muted" role="status">Connecting to the console…</p></main>`;
  if (session.value.login) return html`<${Login} />`;
  return html`<a class="skip" href="#content">To the content</a>
    <div id="frame"><${Rail} /><${Head} /><main id="content"><${Page} /></main></div>`;
}

render(html`<${App} />`, document.getElementById("app"));
askSession();
