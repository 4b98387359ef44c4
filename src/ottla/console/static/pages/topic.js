// One topic: its partitions, how it grows, what its settings mean, who writes and who reads it.

import { html, useMemo, useState } from "../lib.js";
import { go, to } from "../router.js";
import { bytes, count, duration, plural, seconds, short, shortly } from "../format.js";
import { ask, clock, tables } from "../store.js";
import { Chart, columnsOf } from "../parts/chart.js";
import { Confirmed, mayWrite, useChange } from "../parts/actions.js";
import { Heat } from "../parts/heat.js";
import { Command, named, ottla, Sorted, Titled, Trouble, useAsked } from "../parts/page.js";

const rate = (format) => (value) => (value === null || value === undefined ? "–" : `${format(value)}/s`);
const PARTITIONS_MAX = 500;

export default function Topic({ parts: [name] }) {
  const row = tables.topics.get(name);
  const size = tables.topic_sizes.get(name) ?? {};
  const rows = tables.partitions.list.filter((each) => each.topic === name).sort((a, b) => a.partition - b.partition);
  if (!row) return html`<${Titled} title=${name} /><nav class="crumbs" aria-label="Where"><a href="/topics">Topics</a></nav><h1>${name}</h1><p class="muted">Looking for it…</p>`;
  const lacking = rows.filter((each) => each.isr.length < each.replicas.length).length;
  const offline = rows.filter((each) => each.leader < 0).length;
  const dark = offline > 0 && offline === rows.length; // nobody leads any of them
  return html`<${Titled} title=${name} />
    <nav class="crumbs" aria-label="Where"><a href="/topics">Topics</a></nav>
    <div class="head"><h1>${name}</h1><a class="button" href=${to.messages(name)}>Messages</a><a class="button" href=${`/timeline?topic=${encodeURIComponent(name)}`}>Timeline</a><${AddPartitions} row=${row} /><${Delete} row=${row} size=${size} /></div>
    <p class="chips">${row.internal ? html`<span class="chip">internal</span>` : null}<span class="chip">${plural(row.partitions, "partition")}</span><span class="chip">${plural(row.factor, "replica")}${row.partitions > 1 ? " each" : ""}</span>
      <span class="chip">${shortly(size.records, "record")}</span><span class="chip">${bytes(size.bytes)}</span><span class="chip">${short(size.records_in)} records/s in</span>
      ${offline ? html`<span class="chip bad">${offline} without a leader</span>` : null}${lacking ? html`<span class="chip warn">${lacking} ${lacking === 1 ? "lacks" : "lack"} a replica in sync</span>` : html`<span class="chip good">all in sync</span>`}</p>
    <section class="box"><${TheHeat} row=${row} /></section>
    <div class="grid">
      <section class="w6 box"><${Rates} name=${name} dark=${dark} /></section>
      <section class="w6 box flush"><header><h2>Who reads it</h2></header><${Readers} name=${name} /></section>
    </div>
    <section class="box flush"><header><h2>Partitions</h2>${rows.length > PARTITIONS_MAX ? html`<span class="muted small">the first ${PARTITIONS_MAX}</span>` : null}</header><${Partitions} rows=${rows.slice(0, PARTITIONS_MAX)} /></section>
    <section class="box flush"><header><h2>Settings</h2></header><${Settings} name=${name} /></section>
    <section class="box flush"><header><h2>Who writes it</h2></header><${Writers} name=${name} offline=${offline} dark=${dark} /></section>`;
}

function TheHeat({ row }) {
  const topics = useMemo(() => new Map([[row.name, row]]), [row]);
  return html`<${Heat} topics=${topics} partitions=${tables.partitions.now} brokers=${tables.brokers.now} height="300px" tools=${false}
    versions=${[row, tables.partitions.version.value, tables.brokers.list.map((each) => each.id + each.standing + each.leaders).sort().join()]} />`;
}

function Rates({ name, dark }) {
  const points = tables.topic_rates.get(name) ?? [];
  const columns = useMemo(() => columnsOf(points.length ? points : [[0, 0, 0, 0]], 100_000), [points]);
  if (!points.length) return html`<h2>Throughput</h2><p class="empty">${dark ? "No partition has a leader: nothing can be written now." : "Nothing was written since the console looks."}</p>`;
  const known = columns[2].some((each) => each !== null);
  return html`<${Chart} label="Records" sync="topic" data=${[columns[0], columns[1]]} series=${[{ label: "in", colour: "--accent", fill: true }]} format=${rate(short)} height=${130} />
    ${known ? html`<${Chart} label="Bytes" sync="topic" data=${[columns[0], columns[2], columns[3]]} series=${[{ label: "in", colour: "--accent", fill: true }, { label: "out", colour: "--warn" }]} format=${rate(bytes)} height=${130} />` : null}`;
}

function Readers({ name }) {
  const groups = new Map();
  for (const lag of tables.lags.now.values()) {
    if (lag.topic !== name) continue;
    const one = groups.get(lag.group) ?? { id: lag.group, lag: 0, seconds: 0, partitions: 0 };
    one.lag += lag.lag;
    one.seconds = Math.max(one.seconds, lag.seconds ?? 0);
    one.unknown ||= lag.seconds === null;
    one.partitions++;
    groups.set(lag.group, one);
  }
  return html`<${Sorted} label="Groups that read it" rows=${[...groups.values()]} rowKey=${(each) => each.id} initial=${["seconds", true]} empty="No group has committed offsets of it." columns=${[
    { name: "id", head: "group", show: (each) => html`<a class="name" href=${to.group(each.id)}>${each.id}</a>` },
    { name: "partitions", head: "partitions", num: true },
    { name: "lag", head: "records behind", num: true, show: (each) => count(each.lag) },
    { name: "seconds", head: "seconds behind", num: true, show: (each) => html`<span class=${each.seconds >= 10 ? "warn" : ""}>${seconds(each.unknown && !each.seconds ? null : each.seconds)}</span>` },
  ]} />`;
}

function Writers({ name, offline, dark }) {
  const asked = useAsked((signal) => ask("topics/producers", { topic: name }, { signal }), [name]);
  if (asked.error) return html`<p class="empty">${asked.error}</p>`;
  if (!asked.value) return html`<p class="empty">Asking the leaders…</p>`;
  const { producers, total } = asked.value;
  const nobody = dark ? "No partition has a leader, who would know its producers."
    : `No leader knows a producer that is idempotent or transactional. Others leave no trace.${offline ? ` ${plural(offline, "partition")} ${offline === 1 ? "has" : "have"} no leader who could be asked.` : ""}`;
  return html`<${Sorted} label="Producers" rows=${producers} rowKey=${(each) => each.producer_id} initial=${["last_ms", true]} empty=${nobody} columns=${[
    { name: "producer_id", head: "producer", num: true, show: (each) => html`<span class="mono">${each.producer_id}</span>` },
    { name: "epoch", head: "epoch", num: true },
    { name: "last_ms", head: "wrote last", show: (each) => html`${duration(clock.value - each.last_ms)} ago` },
    { name: "open", head: "transaction", show: (each) => each.open ? html`<a class="chip warn" href="/transactions">open</a>` : html`<span class="muted">–</span>` },
    { name: "partitions", head: "partitions", value: (each) => each.partitions.length, show: (each) => each.partitions.sort((a, b) => a - b).slice(0, 30).join(", ") + (each.partitions.length > 30 ? " …" : "") },
  ]} />${total > producers.length ? html`<p class="muted small">${total - producers.length} more wrote longer ago.</p>` : null}
  <p class="empty small"><button onClick=${asked.again}>Ask again</button></p>`;
}

function Partitions({ rows }) {
  const offsets = tables.offsets.now;
  return html`<${Sorted} label="Partitions" rows=${rows} rowKey=${(each) => each.partition} columns=${[
    { name: "partition", head: "partition", num: true, show: (each) => html`<a href=${to.partition(each.topic, each.partition)}>${each.partition}</a>` },
    { name: "leader", head: "leader", num: true, show: (each) => each.leader < 0 ? html`<span class="chip bad">none</span>` : html`<a href=${to.broker(each.leader)}>${each.leader}</a>` },
    { name: "epoch", head: "epoch", num: true },
    { name: "replicas", head: "replicas (in sync)", value: (each) => each.isr.length, show: (each) => each.replicas.map((id, index) => html`${index ? ", " : ""}<span class=${each.isr.includes(id) ? "" : "warn"}>${id}${each.isr.includes(id) ? "" : "!"}</span>`) },
    { name: "start", head: "start", num: true, value: (each) => offsets.get(`${each.topic}-${each.partition}`)?.start, show: (each) => count(offsets.get(`${each.topic}-${each.partition}`)?.start) },
    { name: "end", head: "HW", num: true, value: (each) => offsets.get(`${each.topic}-${each.partition}`)?.end, show: (each) => count(offsets.get(`${each.topic}-${each.partition}`)?.end) },
    { name: "rate", head: "records/s", num: true, value: (each) => offsets.get(`${each.topic}-${each.partition}`)?.rate, show: (each) => short(offsets.get(`${each.topic}-${each.partition}`)?.rate) },
    { name: "see", head: "", sort: false, show: (each) => html`<a class="small" href=${to.messages(each.topic, { partition: each.partition })}>messages</a>` },
  ]} />`;
}

function Settings({ name }) {
  const [all, setAll] = useState(false);
  const asked = useAsked((signal) => ask("topics/settings", { topic: name }, { signal }), [name]);
  if (asked.error) return html`<p class="empty">${asked.error}</p>`;
  if (!asked.value) return html`<p class="empty">Asking…</p>`;
  const own = asked.value.filter((each) => each.own);
  const shown = all ? asked.value : own;
  return html`<div class="scroll"><table><thead><tr><th>setting</th><th>value</th><th>from</th><th>meaning</th>${mayWrite() ? html`<th><span class="visually-hidden">change</span></th>` : null}</tr></thead>
    <tbody>${shown.map((each) => html`<${Setting} key=${each.name} topic=${name} setting=${each} again=${asked.again} />`)}</tbody></table></div>
    ${own.length || all ? null : html`<p class="empty">It sets nothing itself: the settings of the brokers hold.</p>`}
    <p class="empty small"><button onClick=${() => setAll(!all)}>${all ? "Only its own" : `All ${asked.value.length}`}</button></p>`;
}

function Setting({ topic, setting, again }) {
  const [editing, setEditing] = useState(null);
  const change = useChange((done) => { if (done.done) { setEditing(null); again(); } });
  const { name, value, own, source, doc, default: usual } = setting;
  const send = (next, validate_only) => change.go("topics/alter", { topic, changes: { [name]: next }, validate_only });
  return html`<tr><td class="mono ${own ? "" : "muted"}">${name}</td>
    <td class="mono">${editing === null ? (value === null ? html`<span class="muted">hidden</span>` : value || html`<span class="muted">empty</span>`)
      : html`<form class="fields" onSubmit=${(e) => { e.preventDefault(); send(editing, false); }}><input aria-label=${name} value=${editing} onInput=${(e) => { change.reset(); setEditing(e.target.value); }} />
        <button type="button" onClick=${() => send(editing, true)}>Check</button><button class="main" disabled=${change.busy}>Set</button><button type="button" class="quiet" onClick=${() => setEditing(null)}>Cancel</button></form>
        <${Trouble} error=${change.error} />${change.done && !change.done.done ? html`<p class="small">The cluster would take it.</p>` : null}
        <${Command} text=${ottla("topics", "alter", named(topic), "-c", `${name}=${editing}`)} />`}</td>
    <td class="small muted">${source}</td><td class="small">${doc}${usual && usual !== value ? html` <span class="muted">Kafka's default: ${usual}.</span>` : null}</td>
    ${mayWrite() ? html`<td class="nowrap"><button class="quiet small" onClick=${() => setEditing(value ?? "")} aria-label=${`Change ${name}`}>change</button>${own ? html`<button class="quiet small" onClick=${() => send(null, false)} aria-label=${`Take ${name} back to its default`}>reset</button>` : null}</td>` : null}</tr>`;
}

function AddPartitions({ row }) {
  const [number, setNumber] = useState(String(row.partitions + 1));
  return html`<${Confirmed} label="Add partitions" title=${`Add partitions to ${row.name}`} name="topics/add-partitions" fields=${{ topic: row.name, count: Number(number) }} confirm="Add them" command=${ottla("topics", "alter", named(row.name), "-p", number)}>
    <label class="field">partitions in all<input inputmode="numeric" value=${number} onInput=${(e) => setNumber(e.target.value)} /></label>
    <p>It has ${count(row.partitions)}. Keys go to other partitions from then on; the number can never become smaller.</p></${Confirmed}>`;
}

const Delete = ({ row, size }) => row.internal ? null : html`<${Confirmed} danger label="Delete" title=${`Delete topic ${row.name}?`} name="topics/delete" fields=${{ topic: row.name }} typed=${row.name} confirm="Delete it with its records"
  command=${ottla("topics", "delete", named(row.name))} onDone=${() => go("/topics")}><p>Its ${shortly(size.records, "record")} on all brokers ${size.records === 1 ? "is" : "are"} gone then.</p></${Confirmed}>`;
