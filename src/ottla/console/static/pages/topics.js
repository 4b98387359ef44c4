// All topics: what they hold, how fast that grows, which are not well; and making one.

import { html, useMemo, useState } from "../lib.js";
import { go, to } from "../router.js";
import { bytes, count, plural, short } from "../format.js";
import { ask, tables } from "../store.js";
import { mayWrite, useChange } from "../parts/actions.js";
import { Command, Dialog, named, ottla, Titled, Trouble, useAsked } from "../parts/page.js";
import { VirtualTable } from "../parts/virtual.js";

export default function Topics() {
  const [filter, setFilter] = useState("");
  const [internal, setInternal] = useState(false);
  const [making, setMaking] = useState(false);
  const topics = tables.topics.now;
  const sizes = tables.topic_sizes.now;
  const partitions = tables.partitions.now;
  const unwell = useMemo(() => {
    const found = new Map();
    for (const row of partitions.values()) {
      if (row.leader >= 0 && row.isr.length === row.replicas.length) continue;
      const one = found.get(row.topic) ?? { offline: 0, lacking: 0 };
      if (row.leader < 0) one.offline++; else one.lacking++;
      found.set(row.topic, one);
    }
    return found;
  }, [tables.partitions.version.value]);
  const rows = useMemo(() => [...topics.values()].filter((row) => (internal || !row.internal) && row.name.toLowerCase().includes(filter.toLowerCase()))
    .map((row) => ({ ...row, ...(sizes.get(row.name) ?? {}), trouble: unwell.get(row.name) })), [tables.topics.version.value, tables.topic_sizes.version.value, unwell, filter, internal]);
  return html`<${Titled} title="Topics" />
    <div class="head"><h1>Topics</h1>
      <input type="search" placeholder="Filter" aria-label="Filter topics" value=${filter} onInput=${(e) => setFilter(e.target.value)} />
      <label class="check"><input type="checkbox" checked=${internal} onChange=${(e) => setInternal(e.target.checked)} />internal ones</label>
      ${mayWrite() ? html`<button class="main" onClick=${() => setMaking(true)}>Create a topic</button>` : null}</div>
    <p class="muted">${plural(rows.length, "topic")}, ${bytes(rows.reduce((sum, row) => sum + (row.bytes ?? 0), 0))} on leaders, ${short(rows.reduce((sum, row) => sum + (row.records_in ?? 0), 0))} records/s in.</p>
    <section class="box flush"><${VirtualTable} label="Topics" rows=${rows} rowKey=${(row) => row.name} initial=${["name", false]} columns=${[
      { name: "name", head: "topic", width: "minmax(170px, 2fr)", show: (row) => html`<a class="name" href=${to.topic(row.name)}>${row.name}</a>` },
      { name: "trouble", head: "is", width: "104px", value: (row) => (row.trouble ? row.trouble.offline * 1e6 + row.trouble.lacking : 0), show: (row) => row.trouble ? html`<span class=${`chip ${row.trouble.offline ? "bad" : "warn"}`}>${row.trouble.offline ? `${row.trouble.offline} offline` : `${row.trouble.lacking} lacking`}</span>` : html`<span class="muted">well</span>` },
      { name: "partitions", head: "partitions", num: true, width: "90px", show: (row) => count(row.partitions) },
      { name: "factor", head: "replicas", num: true, width: "80px", show: (row) => count(row.factor) },
      { name: "records", head: "records", num: true, width: "100px", show: (row) => short(row.records) },
      { name: "bytes", head: "size", num: true, width: "96px", show: (row) => bytes(row.bytes) },
      { name: "records_in", head: "records/s", num: true, width: "96px", show: (row) => short(row.records_in) },
      { name: "bytes_in", head: "in/s", num: true, width: "96px", show: (row) => bytes(row.bytes_in) },
      { name: "bytes_out", head: "out/s", num: true, width: "96px", show: (row) => bytes(row.bytes_out) },
      { name: "see", head: "", sort: false, width: "92px", show: (row) => html`<a class="small" href=${to.messages(row.name)}>messages</a>` },
    ]} empty=${topics.size ? "No topic is like that." : "There are no topics yet."} /></section>
    ${making ? html`<${Create} onClose=${() => setMaking(false)} />` : null}`;
}

function Create({ onClose }) {
  const [fields, setFields] = useState({ name: "", partitions: "3", factor: "" });
  const [configs, setConfigs] = useState({});
  const known = useAsked((signal) => ask("topics/known-settings", {}, { signal }), []);
  const change = useChange((done) => { if (done.done) { onClose(); go(to.topic(fields.name)); } });
  const all = { name: fields.name.trim(), partitions: Number(fields.partitions) || -1, factor: Number(fields.factor) || -1, configs };
  const set = (more) => { change.reset(); setFields({ ...fields, ...more }); };
  const options = Object.entries(configs).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  const command = ottla("topics", "create", named(all.name || "NAME"), ...(all.partitions > 0 ? ["-p", all.partitions] : []), ...(all.factor > 0 ? ["-r", all.factor] : []), ...options);
  return html`<${Dialog} title="Create a topic" onClose=${onClose}>
    <div class="fields"><label class="field grow">name<input value=${fields.name} onInput=${(e) => set({ name: e.target.value })} /></label>
      <label class="field">partitions<input class="short" inputmode="numeric" value=${fields.partitions} onInput=${(e) => set({ partitions: e.target.value })} /></label>
      <label class="field">replicas<input class="short" inputmode="numeric" placeholder="default" value=${fields.factor} onInput=${(e) => set({ factor: e.target.value })} /></label></div>
    <${Settings} known=${known.value ?? []} values=${configs} onChange=${(next) => { change.reset(); setConfigs(next); }} />
    <${Command} text=${command} />
    <${Trouble} error=${change.error} />
    ${change.done && !change.done.done ? html`<p class="note" role="status">The cluster would make it${change.done.factor ? `, with ${plural(change.done.factor, "replica")}` : ""}.</p>` : null}
    <div class="actions"><button disabled=${!all.name || change.busy} onClick=${() => change.go("topics/create", { ...all, validate_only: true })}>Check it</button>
      <button class="main" disabled=${!all.name || change.busy} onClick=${() => change.go("topics/create", { ...all, validate_only: false })}>Create</button></div></${Dialog}>`;
}

// Settings to choose, each with what it means.
function Settings({ known, values, onChange }) {
  const [adding, setAdding] = useState("");
  const docs = new Map(known.map((each) => [each.name, each]));
  return html`<div class="settings">
    ${Object.entries(values).map(([name, value]) => html`<div key=${name} class="setting"><label class="field">${name}<input value=${value} onInput=${(e) => onChange({ ...values, [name]: e.target.value })} /></label>
      <span class="small muted">${docs.get(name)?.doc} ${docs.get(name)?.default ? `Default: ${docs.get(name).default}.` : ""}</span>
      <button class="quiet small" onClick=${() => { const next = { ...values }; delete next[name]; onChange(next); }}>remove</button></div>`)}
    <label class="field">a setting of its own<select value=${adding} onChange=${(e) => { onChange({ ...values, [e.target.value]: docs.get(e.target.value)?.default ?? "" }); setAdding(""); }}>
      <option value="">choose one…</option>${known.filter((each) => !(each.name in values)).map((each) => html`<option key=${each.name} value=${each.name}>${each.name}</option>`)}</select></label></div>`;
}
