// Records: browsed by partition, offset and time, searched, followed live, counted over time, produced.

import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { go, place, refine, to } from "../router.js";
import { bytes, count, iso, listed, plural, short, shortly, time } from "../format.js";
import { isJson, laidOut, membersOf, plain } from "../json.js";
import { ask, now, tables } from "../store.js";
import { Chart } from "../parts/chart.js";
import { mayWrite, useChange } from "../parts/actions.js";
import { Command, Dialog, ottla, Titled, Trouble } from "../parts/page.js";

const SHOWN_MAX = 1000; // records in the page: a tail that goes on all day does not grow
const LIMIT = 100;
const PLACES = ["key", "value", "headers"];

export default function Messages({ parts: [topic] }) {
  const topics = [...tables.topics.now.keys()].sort();
  if (!topic) {
    return html`<${Titled} title="Messages" /><h1>Messages</h1>
      <p class="muted">Choose a topic.</p>
      <section class="box flush"><ul class="choices">${topics.map((name) => html`<li key=${name}><a href=${to.messages(name)}>${name}</a><span class="muted num">${shortly(tables.topic_sizes.get(name)?.records, "record")}</span></li>`)}</ul></section>`;
  }
  return html`<${Titled} title=${`Messages of ${topic}`} /><${Browser} key=${topic} topic=${topic} topics=${topics} />`;
}

function Browser({ topic, topics }) {
  const { query } = place.value;
  const [open, setOpen] = useState(null);
  const [form, setForm] = useState(null);
  const known = tables.topics.get(topic);
  const wanted = {
    topic, partition: query.partition, from: query.from ?? "newest", time: query.time, until: query.until, search: query.search,
    in: query.in, member: query.member, equals: query.equals, committed: query.committed, limit: query.limit ?? LIMIT,
  };
  const live = query.from === "live";
  // Nobody leads these: nobody can read them now.
  const dark = tables.partitions.list.filter((each) => each.topic === topic && each.leader < 0 && (!query.partition || String(each.partition) === query.partition)).map((each) => each.partition).sort((a, b) => a - b);
  const all = dark.length > 0 && dark.length === (query.partition ? 1 : known?.partitions);
  const found = useRecords(wanted, live);
  const [columns, setColumns] = useState(false);
  return html`
    <nav class="crumbs" aria-label="Where"><a href="/messages">Messages</a> / <a href=${to.topic(topic)}>Topic ${topic}</a></nav>
    <div class="head"><h1>Messages of ${topic}</h1>
      ${mayWrite() ? html`<button onClick=${() => setForm({})}>Produce a record</button>` : null}</div>
    <${Controls} topic=${topic} topics=${topics} partitions=${known?.partitions ?? 0} query=${query} />
    ${dark.length ? html`<${Dark} topic=${topic} list=${dark} />` : null}
    ${all ? null : html`<section class="box"><${Histogram} topic=${topic} partition=${query.partition} from=${query.time} until=${query.until} /></section>`}
    <section class="box flush records">
      <header><h2>${live ? "Live" : query.from && query.from !== "newest" ? "From there on" : "Newest first"}</h2>
        ${all ? null : html`<${State} found=${found} live=${live} />`}
        <label class="check small"><input type="checkbox" checked=${columns} onChange=${(e) => setColumns(e.target.checked)} />JSON members as columns</label></header>
      <${Trouble} error=${found.error} />
      <${Closed} topic=${topic} list=${(found.done ?? found.progress)?.closed ?? []} />
      <${Records} list=${found.records} columns=${columns} onOpen=${setOpen} loading=${found.loading} live=${live} nobodyLeads=${all} searched=${Boolean(wanted.search || wanted.member)} />
      ${found.next && !found.loading ? html`<p class="more"><button onClick=${found.more}>${wanted.search || wanted.member ? "Search on" : "More"}</button></p>` : null}
    </section>
    ${open ? html`<${Detail} topic=${topic} record=${open} onClose=${() => setOpen(null)} onAgain=${mayWrite() ? (record) => { setOpen(null); setForm(record); } : null} />` : null}
    ${form ? html`<${Produce} topic=${topic} partitions=${known?.partitions ?? 1} first=${form} onClose=${() => setForm(null)} />` : null}`;
}

// Lines of JSON, as they come

function useRecords(wanted, live) {
  const [state, setState] = useState({ records: [], loading: true });
  const stop = useRef(null);
  const key = JSON.stringify(wanted);
  const read = async (parameters, before) => {
    stop.current?.abort();
    const mine = stop.current = new AbortController();
    let records = before;
    let pending = [];
    let latest = {};
    let timer = null;
    const flush = () => {
      timer = null;
      // What is live comes in from the top; what is searched for is added at the end.
      records = live ? [...pending.reverse(), ...records].slice(0, SHOWN_MAX) : [...records, ...pending].slice(0, SHOWN_MAX * 5);
      pending = [];
      if (!mine.signal.aborted) setState({ records, ...latest });
    };
    const show = (changes) => { latest = { ...latest, ...changes }; timer ??= setTimeout(flush, 60); };
    latest = { loading: true };
    flush();
    try {
      const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== undefined && value !== ""));
      const answer = await fetch(`/api/messages${live ? "/tail" : ""}?${query}`, { signal: mine.signal });
      if (!answer.ok) throw new Error((await answer.json()).error);
      for await (const line of linesOf(answer.body)) {
        const told = JSON.parse(line);
        if (told.record) { pending.push(told.record); show({}); }
        else if (told.skipped) show({ skipped: (latest.skipped ?? 0) + told.skipped });
        else if (told.progress) show({ progress: told.progress });
        else if (told.error) show({ error: told.error });
        else if (told.done) show({ done: told.done, next: Object.keys(told.done.next).length ? told.done.next : null });
      }
      show({ loading: false });
    } catch (error) {
      if (error.name !== "AbortError") show({ error: error.message, loading: false });
    }
    clearTimeout(timer);
    flush();
  };
  useEffect(() => {
    read(wanted, []);
    return () => stop.current?.abort();
  }, [key]);
  const more = () => {
    const next = Object.entries(state.next).map(([partition, offset]) => `${partition}:${offset}`).join();
    // Backwards the places are ends: what is older than them is wanted. Forwards they are beginnings.
    if (wanted.from === "newest") read({ ...wanted, from: "before", next }, state.records);
    else read({ ...wanted, from: "next", next }, state.records);
  };
  return { ...state, more, stop: () => { stop.current?.abort(); setState({ ...state, loading: false }); } };
}

async function* linesOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    while (true) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line) yield line;
    }
  } finally {
    reader.cancel().catch(() => null);
  }
}

function State({ found, live }) {
  const { progress, done, loading, records, skipped } = found;
  const scanned = done?.scanned ?? progress?.scanned ?? 0;
  const words = live ? `${count(scanned)} written since you look${skipped ? `, ${count(skipped)} not shown: they come too fast` : ""}`
    : loading ? `searching… ${count(scanned)} read${progress?.left ? `, ${short(progress.left)} to go` : ""}`
    : `${plural(records.length, "record")} of ${count(scanned)} read`;
  return html`<span class="muted small" role="status">${words}${loading && !live ? html` <button class="quiet small" onClick=${found.stop}>Stop</button>` : null}</span>`;
}

function Dark({ topic, list }) {
  const named = list.length > 10 ? [...list.slice(0, 10), `${list.length - 10} more`] : list;
  return html`<p class="note" role="status">${list.length === 1 ? "Partition" : "Partitions"} ${listed(named)} ${list.length === 1 ? "has" : "have"} no leader and cannot be read now. <a href=${`${to.partition(topic, list[0])}?explain=1`}>Why, and what to do</a></p>`;
}

// Batches that unpack to more than the console opens: what is looked for may be in them.
function Closed({ topic, list }) {
  if (!list.length) return null;
  return html`<div class="note" role="status"><p>Not opened here, since they unpack to too much: ${list.slice(0, 5).map((each) => `offsets ${count(each.first)} to ${count(each.last)} of partition ${each.partition} (${bytes(each.size)} packed)`).join(", ")}${list.length > 5 ? ` and ${plural(list.length - 5, "other batch", "other batches")}` : ""}.</p>
    <${Command} text=${ottla("consume", topic, "-p", list[0].partition, "-o", list[0].first, "-n", "1")} /></div>`;
}

function Controls({ topic, topics, partitions, query }) {
  const [text, setText] = useState(query.search ?? "");
  const [member, setMember] = useState(query.member ? `${query.member}=${query.equals ?? ""}` : "");
  const from = query.from ?? "newest";
  const kind = /^\d+$/.test(from) ? "offset" : from;
  const chosen = (query.in ?? PLACES.join()).split(",");
  const search = (event) => {
    event.preventDefault();
    const [name, ...value] = member.split("=");
    refine({ search: text, member: name.trim() || undefined, equals: name.trim() ? value.join("=").trim() : undefined }, { replace: false });
  };
  return html`<form class="fields" role="search" onSubmit=${search}>
    <label class="field">topic<select value=${topic} onChange=${(e) => go(to.messages(e.target.value))}>${(topics.includes(topic) ? topics : [topic, ...topics]).map((name) => html`<option key=${name}>${name}</option>`)}</select></label>
    <label class="field">partition<select value=${query.partition ?? ""} onChange=${(e) => refine({ partition: e.target.value })}><option value="">all ${partitions}</option>
      ${Array.from({ length: Math.min(partitions, 2000) }, (_, number) => html`<option key=${number} value=${number}>${number}</option>`)}</select></label>
    <label class="field">from<select value=${kind} onChange=${(e) => refine({ from: { offset: "0", newest: undefined }[e.target.value] ?? (e.target.value === "newest" ? undefined : e.target.value), time: undefined, until: undefined })}>
      <option value="newest">the newest back</option><option value="earliest">the oldest on</option><option value="offset">an offset on</option><option value="time">a time on</option><option value="live">now on, live</option></select></label>
    ${kind === "offset" ? html`<label class="field">offset<input class="short" inputmode="numeric" value=${from} onChange=${(e) => refine({ from: e.target.value.replace(/\D/g, "") || "0" })} /></label>` : null}
    ${kind === "time" ? html`<label class="field">time (local)<input type="datetime-local" step="1" value=${localText(query.time)} onChange=${(e) => refine({ time: new Date(e.target.value).getTime() || undefined })} /></label>` : null}
    <label class="field grow">containing<input type="search" value=${text} placeholder="text in key, value or headers" onInput=${(e) => setText(e.target.value)} /></label>
    <span class="segments" role="group" aria-label="Where to look">${PLACES.map((name) => html`<button type="button" key=${name} aria-pressed=${chosen.includes(name)} onClick=${() => {
      const next = chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name];
      refine({ in: next.length === PLACES.length || !next.length ? undefined : next.join() });
    }}>${name}</button>`)}</span>
    <label class="field">JSON member is<input value=${member} placeholder="customer.id=17" onInput=${(e) => setMember(e.target.value)} /></label>
    <label class="check"><input type="checkbox" checked=${query.committed === "true"} onChange=${(e) => refine({ committed: e.target.checked ? "true" : undefined })} />committed only</label>
    <button class="main">Search</button>
  </form>`;
}

function localText(ms) {
  if (!ms) return "";
  const at = new Date(Number(ms));
  return iso(at.getTime() - at.getTimezoneOffset() * 60_000)?.slice(0, 19) ?? "";
}

// How many were written when; brushing chooses the time

function Histogram({ topic, partition, from, until }) {
  const [told, setTold] = useState({ edges: [], counts: [] });
  const [error, setError] = useState(null);
  useEffect(() => {
    const stop = new AbortController();
    ask("messages/histogram", { topic, partition, from, until, buckets: innerWidth < 700 ? 40 : 90 }, { signal: stop.signal }).then(
      (found) => { setTold(found); setError(null); },
      (failed) => failed.name === "AbortError" || setError(failed.message),
    );
    return () => stop.abort();
  }, [topic, partition, from, until]);
  const data = useMemo(() => [told.counts.map((_, index) => (told.edges[index] + told.edges[index + 1]) / 2000), told.counts], [told]);
  if (error) return html`<p class="muted">${error}</p>`;
  if (!told.counts.length) return html`<p class="muted">${told.records === 0 ? "There are no records." : "Counting…"}</p>`;
  const brush = (begin, end) => refine({ from: "time", time: Math.round(begin), until: Math.round(end) }, { replace: false });
  return html`<${Chart} label=${`Records over time${from || until ? `, ${time(told.edges[0])} to ${time(told.edges.at(-1))}` : ""}`} bars data=${data} series=${[{ label: "written", colour: "--accent" }]} format=${short} height=${118} onBrush=${brush} />
    <p class="muted small">Drag to choose a time.${from || until ? html` <button class="quiet small" onClick=${() => refine({ from: undefined, time: undefined, until: undefined })}>All of it</button>` : null}</p>`;
}

// The list

function Records({ list, columns, onOpen, loading, live, nobodyLeads, searched }) {
  const names = useMemo(() => (columns ? columnsOf(list) : []), [columns, list]);
  if (!list.length) return html`<p class="empty">${nobodyLeads ? "Without a leader nothing can be read." : loading ? (live ? "Waiting for records…" : "Reading…") : searched ? "Nothing was found." : "There are no records there."}</p>`;
  const at = now();
  return html`<div class="scroll"><table aria-label="Records"><thead><tr><th>time</th><th class="num">partition</th><th class="num">offset</th><th>key</th>
    ${columns ? names.map((name) => html`<th key=${name}>${name}</th>`) : html`<th>value</th>`}<th>headers</th></tr></thead>
    <tbody>${list.map((each) => html`<tr key=${`${each.partition}/${each.offset}`} class="open" onClick=${(e) => e.target.closest("a,button") || onOpen(each)}>
      <td class="mono small nowrap">${time(each.timestamp, { millis: true, now: at })}</td><td class="num">${each.partition}</td>
      <td class="num"><button class="quiet small" onClick=${() => onOpen(each)} aria-label=${`Open the record at offset ${each.offset} of partition ${each.partition}`}>${count(each.offset)}</button></td>
      <td class="mono small cut">${brief(each.key, 60)}</td>
      ${columns ? names.map((name) => html`<td key=${name} class="mono small cut">${memberOf(each, name)}</td>`) : html`<td class="mono small cut wide">${brief(each.value, 300)}</td>`}
      <td class="small muted cut">${each.headers.length ? each.headers.map(([name]) => name.slice(0, 60)).slice(0, 10).join(", ") : ""}</td></tr>`)}</tbody></table></div>`;
}

function brief(part, most) {
  if (!part) return html`<span class="muted">null</span>`;
  if (part.base64 !== undefined) return html`<span class="muted">${bytes(part.size)}</span> ${hexOf(bytesOf(part)).slice(0, Math.min(most, 60))}`;
  const text = part.text.slice(0, most);
  return part.text.length > most ? `${text}…` : text;
}

// By part: the members of its object, each as it was written; none if it is no JSON, or no object.
const known = new WeakMap();

function partMembers(part) {
  if (!part?.text) return new Map();
  if (!known.has(part)) known.set(part, isJson(part.text) ? membersOf(part.text) : new Map());
  return known.get(part);
}

function columnsOf(list) {
  const names = new Map();
  for (const each of list.slice(0, 200)) for (const name of partMembers(each.value).keys()) names.set(name, (names.get(name) ?? 0) + 1);
  return [...names].sort((a, b) => b[1] - a[1]).slice(0, 12).map(([name]) => name);
}

function memberOf(record, name) {
  const source = partMembers(record.value).get(name);
  return source === undefined ? "" : plain(source);
}

// One record

const bytesOf = (part) => (part.base64 !== undefined ? Uint8Array.from(atob(part.base64), (each) => each.charCodeAt(0)) : new TextEncoder().encode(part.text));
const hexOf = (data) => [...data].map((each) => each.toString(16).padStart(2, "0")).join(" ");

function dump(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = data.slice(at, at + 16);
    const text = [...row].map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : "·")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hexOf(row).padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}

function Part({ name, part }) {
  const ways = part ? [...(part.text && isJson(part.text) ? ["json"] : []), ...(part.text !== undefined ? ["text"] : []), "hex"] : [];
  const [way, setWay] = useState(null);
  const chosen = ways.includes(way) ? way : ways[0];
  if (!part) return html`<div><h3>${name}</h3><p class="muted">null${name === "value" ? ": in a compacted topic this deletes the key" : ""}</p></div>`;
  const cut = part.size > (part.text ? new TextEncoder().encode(part.text).length : bytesOf(part).length);
  return html`<div><div class="head"><h3>${name} <span class="muted">${bytes(part.size)}</span></h3>
    <span class="segments" role="group" aria-label=${`Show the ${name} as`}>${ways.map((each) => html`<button key=${each} aria-pressed=${each === chosen} onClick=${() => setWay(each)}>${each.toUpperCase()}</button>`)}</span></div>
    <pre class="part" tabindex="0">${chosen === "json" ? laidOut(part.text) : chosen === "text" ? part.text : dump(bytesOf(part))}</pre>
    ${cut ? html`<p class="muted small">Only the beginning is shown.</p>` : null}</div>`;
}

function Detail({ topic, record, onClose, onAgain }) {
  const { partition, offset } = record;
  const [error, setError] = useState(null);
  const file = `/api/messages/whole?${new URLSearchParams({ topic, partition, offset })}`;
  // What is shown here may be cut: the form takes the record as the cluster has it.
  const again = () => ask("messages/one", { topic, partition, offset }).then(onAgain, (failed) => setError(failed.message));
  return html`<${Dialog} title=${`${topic}-${partition}, offset ${count(offset)}`} onClose=${onClose}>
    <p class="muted small">${time(record.timestamp, { millis: true, now: 0 })} · ${iso(record.timestamp) ?? `timestamp ${record.timestamp}`} · <a href=${to.partition(topic, partition)}>partition ${partition}</a></p>
    <${Part} name="key" part=${record.key} />
    <${Part} name="value" part=${record.value} />
    ${record.headers.length ? html`<div><h3>headers</h3><div class="scroll"><table><tbody>${record.headers.map(([name, value], index) => html`<tr key=${index}><td class="mono">${name}</td><td class="mono">${brief(value, 2000)}</td></tr>`)}</tbody></table></div>${record.headers_left_out ? html`<p class="muted small">${plural(record.headers_left_out, "other header")} not shown.</p>` : null}</div>` : null}
    <${Trouble} error=${error} />
    <div class="actions">${onAgain ? html`<button onClick=${again}>Produce it again</button>` : null}<a class="button" href=${file} download>Keep the value as a file</a></div>
    <${Command} text=${ottla("consume", topic, "-p", partition, "-o", offset, "-n", "1")} /></${Dialog}>`;
}

// What a form writes: text in a format, or null. A field changes line ends and loses control characters, so what has any is
// written as base64, as is what is no text at all.

const NEW = { text: "", format: "text", isNull: false };
const UNFIT = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/;
const UNFIT_LINES = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029]/;

function writtenAs(part, unfit = UNFIT) {
  if (!part) return { ...NEW, isNull: true };
  if (part.text !== undefined && !unfit.test(part.text)) return { ...NEW, text: part.text };
  return { ...NEW, format: "base64", text: part.base64 ?? base64Of(bytesOf(part)) };
}

function base64Of(data) {
  let binary = "";
  for (const each of data) binary += String.fromCharCode(each);
  return btoa(binary);
}

const sent = ({ text, format, isNull }) => (isNull ? null : format === "hex" || format === "base64" ? text.trim() : text);

const Format = ({ label, value, onChange }) => html`<label class="field">${label}<select value=${value.format} onChange=${(e) => onChange({ ...value, format: e.target.value })}>
  <option value="text">text</option><option value="json">JSON (checked)</option><option value="hex">hex</option><option value="base64">base64</option></select></label>`;

function Produce({ topic, partitions, first, onClose }) {
  const known = first.offset !== undefined;
  const [fields, setFields] = useState({
    partition: first.partition ?? "",
    key: known ? writtenAs(first.key) : { ...NEW, isNull: true },
    value: known ? writtenAs(first.value, UNFIT_LINES) : NEW,
    headers: (first.headers ?? []).map(([name, value]) => ({ ...writtenAs(value), name })),
  });
  const change = useChange();
  const set = (more) => { change.reset(); setFields({ ...fields, ...more }); };
  const { key, value, headers } = fields;
  const setHeader = (index, more) => set({ headers: headers.with(index, { ...headers[index], ...more }) });
  const submit = (event) => {
    event.preventDefault();
    change.go("messages/produce", {
      topic, partition: fields.partition === "" ? null : Number(fields.partition), key: sent(key), key_format: key.format,
      value: sent(value), value_format: value.format, headers: headers.map((each) => [each.name, sent(each), each.format]),
    });
  };
  return html`<${Dialog} title=${`Produce into ${topic}`} onClose=${onClose}><form onSubmit=${submit} class="produce">
    <div class="fields"><label class="field">partition<select value=${fields.partition} onChange=${(e) => set({ partition: e.target.value })}><option value="">by its key</option>${Array.from({ length: Math.min(partitions, 1000) }, (_, number) => html`<option key=${number} value=${number}>${number}</option>`)}</select></label>
      <${Format} label="key as" value=${key} onChange=${(key) => set({ key })} />
      <${Format} label="value as" value=${value} onChange=${(value) => set({ value })} />
      <label class="check"><input type="checkbox" checked=${value.isNull} onChange=${(e) => set({ value: { ...value, isNull: e.target.checked } })} />null value (tombstone)</label></div>
    <label class="field">key<input value=${key.text} disabled=${key.isNull} onInput=${(e) => set({ key: { ...key, text: e.target.value } })} /></label>
    <label class="check"><input type="checkbox" checked=${key.isNull} onChange=${(e) => set({ key: { ...key, isNull: e.target.checked } })} />without a key</label>
    ${value.isNull ? null : html`<label class="field">value<textarea rows="7" value=${value.text} onInput=${(e) => set({ value: { ...value, text: e.target.value } })}></textarea></label>`}
    ${headers.map((each, index) => html`<div key=${index} class="fields"><label class="field">header<input class="short" value=${each.name} onInput=${(e) => setHeader(index, { name: e.target.value })} /></label>
      <${Format} label="as" value=${each} onChange=${(changed) => setHeader(index, changed)} />
      <label class="field grow">its value<input value=${each.text} disabled=${each.isNull} onInput=${(e) => setHeader(index, { text: e.target.value })} /></label>
      <label class="check"><input type="checkbox" checked=${each.isNull} onChange=${(e) => setHeader(index, { isNull: e.target.checked })} />null</label>
      <button type="button" class="quiet small" onClick=${() => set({ headers: headers.toSpliced(index, 1) })} aria-label=${`Remove the header ${each.name}`}>remove</button></div>`)}
    <p><button type="button" class="quiet small" onClick=${() => set({ headers: [...headers, { ...NEW, name: "" }] })}>Add a header</button></p>
    <${Trouble} error=${change.error} />
    ${change.done ? html`<p class="note" role="status">Written: partition ${change.done.partition}, offset ${count(change.done.offset)}. <a href=${to.messages(topic, { partition: change.done.partition, from: change.done.offset })} onClick=${onClose}>Show it</a></p>` : null}
    <div class="actions"><button type="button" onClick=${onClose}>Close</button><button class="main" disabled=${change.busy}>Produce</button></div></form></${Dialog}>`;
}
