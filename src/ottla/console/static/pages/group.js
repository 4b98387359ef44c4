// One group: lag over time, who reads what, why it is behind, and moving its offsets after a look at what that changes.

import { html, useMemo, useState } from "../lib.js";
import { groupOf, PartitionLink, place, to } from "../router.js";
import { count, duration, plural, seconds, short, shortly } from "../format.js";
import { clock, tables } from "../store.js";
import { Chart, columnsOf } from "../parts/chart.js";
import { Confirmed, mayWrite, useChange } from "../parts/actions.js";
import { Explained } from "../parts/explanation.js";
import { Command, named, ottla, Sorted, Titled, Trouble } from "../parts/page.js";
import { State } from "./groups.js";

export default function Group({ parts: [part] }) {
  const id = groupOf(part);
  const row = tables.groups.get(id);
  const lags = tables.lags.list.filter((each) => each.group === id);
  const members = tables.members.list.filter((each) => each.group === id);
  if (!row) return html`<${Titled} title=${id} /><p class="crumbs"><a href="/groups">Groups</a></p><h1>${id}</h1><p class="muted">Looking for it…</p>`;
  return html`<${Titled} title=${id} />
    <nav class="crumbs" aria-label="Where"><a href="/groups">Groups</a></nav>
    <div class="head"><h1>${id}</h1><${Reset} group=${id} row=${row} lags=${lags} members=${members} /><${Delete} group=${id} members=${members} /></div>
    <p class="chips"><${State} row=${row} /><span class="chip">${row.type || row.protocol || "group"}</span>
      <span class="chip">coordinator <a href=${to.broker(row.coordinator)}>broker ${row.coordinator}</a></span>
      <span class="chip">${plural(members.length || row.members || 0, "member")}</span>
      <span class=${`chip ${row.seconds >= 10 ? "warn" : ""}`}>${row.lag === null ? "lag unknown" : `${shortly(row.lag, "record")}${row.seconds === null ? "" : `, ${seconds(row.seconds)}`} behind`}</span>
      ${row.late_since_ms ? html`<span class="chip warn">late for ${row.late_at_least ? "at least " : ""}${duration(clock.value - row.late_since_ms)}</span>` : null}</p>
    ${row.hold_up ? html`<${HoldUp} told=${row.hold_up} />` : null}
    <div class="grid">
      <section class="w7 box"><${Lag} id=${id} /></section>
      <div class="w5"><${Explained} about=${`group:${id}`} again=${`${row.state} ${row.late_since_ms}`} /></div>
    </div>
    <section class="box flush"><header><h2>Partitions</h2><span class="muted small">${plural(lags.length, "partition")}</span></header>
      <${Sorted} label="Lag by partition" rows=${lags} rowKey=${(each) => `${each.topic}-${each.partition}`} initial=${["seconds", true]} empty="It has committed nothing."
        columns=${[
          { name: "name", head: "partition", value: (each) => `${each.topic}-${each.partition}`, show: (each) => html`<${PartitionLink} name=${`${each.topic}-${each.partition}`} />` },
          { name: "committed", head: "committed", num: true, show: (each) => count(each.committed) },
          { name: "log_end", head: "log end", num: true, show: (each) => count(each.log_end) },
          { name: "lag", head: "records behind", num: true, show: (each) => html`<${LagBar} row=${each} />` },
          { name: "seconds", head: "seconds behind", num: true, show: (each) => html`<span class=${each.seconds >= 10 ? "warn" : ""}>${seconds(each.seconds)}</span>` },
          { name: "member", head: "read by", show: (each) => html`<${Owner} id=${each.member} members=${members} />` },
          { name: "next", head: "", sort: false, show: (each) => each.lag ? html`<a class="small" href=${to.messages(each.topic, { partition: each.partition, from: each.committed ?? each.log_start })}>next record</a>` : null },
        ]} /></section>
    <section class="box flush"><header><h2>Members</h2></header>
      <${Sorted} label="Members" rows=${members} rowKey=${(each) => each.id} empty="It has no members." columns=${[
        { name: "client_id", head: "client", show: (each) => html`<b>${each.client_id}</b>${each.instance_id ? html` <span class="chip">static ${each.instance_id}</span>` : null}<br /><span class="muted small mono">${each.id}</span>` },
        { name: "host", head: "host" },
        { name: "assigned", head: "partitions", num: true, value: (each) => each.assigned.length, show: (each) => count(each.assigned.length) },
        { name: "which", head: "", sort: false, show: (each) => html`<${Assigned} places=${each.assigned} />` },
      ]} /></section>`;
}

function Lag({ id }) {
  const points = tables.group_lags.get(id) ?? [];
  const columns = useMemo(() => columnsOf(points.length ? points : [[0, 0, 0]], 60_000), [points]);
  if (!points.length) return html`<h2>Lag over time</h2><p class="empty">It has not been behind since the console looks.</p>`;
  return html`<${Chart} label="Seconds behind" sync="lag" data=${[columns[0], columns[2]]} series=${[{ label: "oldest unread record", colour: "--warn", fill: true }]} format=${(value) => value === null ? "–" : duration(value * 1000)} height=${150} />
    <${Chart} label="Records behind" sync="lag" data=${[columns[0], columns[1]]} series=${[{ label: "unread", colour: "--accent", fill: true }]} format=${short} height=${150} />`;
}

function LagBar({ row }) {
  const whole = Math.max(1, row.log_end - row.log_start);
  return html`<span class="lagbar"><i style=${{ width: `${Math.min(100, (row.lag / whole) * 100).toFixed(1)}%` }}></i></span> ${count(row.lag)}`;
}

function Owner({ id, members }) {
  if (!id) return html`<span class="muted">nobody</span>`;
  const member = members.find((each) => each.id === id);
  return html`<span title=${id}>${member ? `${member.client_id} @ ${member.host}` : id}</span>`;
}

function Assigned({ places }) {
  const topics = new Map();
  for (const [topic, number] of places) topics.set(topic, [...(topics.get(topic) ?? []), number]);
  return [...topics].map(([topic, numbers]) => html`<span key=${topic} class="small">${topic}: ${numbers.sort((a, b) => a - b).slice(0, 20).join(", ")}${numbers.length > 20 ? " …" : ""} </span>`);
}

const HoldUp = ({ told }) => html`<div class="note"><b>A rebalance waits.</b> ${Object.entries(told).map(([name, value]) => html`<span key=${name}>${name.replaceAll("_", " ")}: <span class="mono">${typeof value === "object" ? JSON.stringify(value) : String(value)}</span>. </span>`)}</div>`;

// Offsets

const WHERE = [["earliest", "the beginning"], ["latest", "the end"], ["time", "a time"], ["offset", "an offset"], ["shift", "records from where it is"]];

function Reset({ group, row, lags, members }) {
  const [open, setOpen] = useState(place.value.query.reset === "1");
  return html`<button onClick=${() => setOpen(!open)} aria-expanded=${open}>${mayWrite() ? "Move its offsets" : "Preview a move of its offsets"}</button>
    ${open ? html`<${ResetForm} group=${group} lags=${lags} members=${members} onClose=${() => setOpen(false)} />` : null}`;
}

function ResetForm({ group, lags, members, onClose }) {
  const [where, setWhere] = useState("earliest");
  const [value, setValue] = useState("");
  const [topic, setTopic] = useState("");
  const [preview, setPreview] = useState(null);
  const change = useChange((done) => setPreview({ ...done }));
  const topics = [...new Set(lags.map((each) => each.topic))];
  const wanted = where === "time" ? new Date(value || 0).toISOString() : where === "shift" ? (/^[+-]/.test(value) ? value : `+${value}`) : where === "offset" ? value : where;
  const fields = { group, to: wanted, topics: topic ? [topic] : [] };
  const command = ottla("groups", "reset-offsets", named(group), "--to", wanted, ...(topic ? ["--topic", topic] : []));
  const ready = ["earliest", "latest"].includes(where) || value;
  const look = async () => {
    change.reset();
    setPreview(null);
    const found = await change.go("groups/preview-reset", fields);
    if (found) setPreview(found);
  };
  const form = () => { change.reset(); setPreview(null); };
  return html`<section class="box reset" aria-label="Move offsets">
    <div class="fields">
      <label class="field">to<select value=${where} onChange=${(e) => { setWhere(e.target.value); setValue(""); form(); }}>${WHERE.map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}</select></label>
      ${where === "time" ? html`<label class="field">time (local)<input type="datetime-local" step="1" value=${value} onInput=${(e) => { setValue(e.target.value); form(); }} /></label>` : null}
      ${where === "offset" || where === "shift" ? html`<label class="field">${where === "shift" ? "+N or −N" : "offset"}<input inputmode="numeric" value=${value} placeholder=${where === "shift" ? "-1000" : "0"} onInput=${(e) => { setValue(e.target.value.trim()); form(); }} /></label>` : null}
      <label class="field">topic<select value=${topic} onChange=${(e) => { setTopic(e.target.value); form(); }}><option value="">all that it has committed</option>${topics.map((name) => html`<option key=${name}>${name}</option>`)}</select></label>
      <button onClick=${look} disabled=${!ready || change.busy}>Show what that changes</button>
      <button class="quiet" onClick=${onClose}>Close</button></div>
    ${members.length ? html`<p class="note">It has ${plural(members.length, "member")}. Offsets can only be moved while nobody reads: stop them first.</p>` : null}
    <${Trouble} error=${change.error} />
    ${preview ? html`<${Changes} list=${preview.partitions} lags=${lags} />
      ${preview.done ? html`<p class="note" role="status">Done: ${plural(preview.partitions.length, "partition")}.</p>` : html`<${Command} text=${command} />
        ${mayWrite() ? html`<p><button class="main" disabled=${change.busy} onClick=${() => change.go("groups/reset", fields)}>Move ${plural(preview.partitions.length, "offset")}</button></p>` : html`<p class="muted small">This console only reads; the command above does it.</p>`}`}` : null}
  </section>`;
}

function Changes({ list }) {
  return html`<div class="scroll"><table><thead><tr><th>partition</th><th class="num">from</th><th class="num">to</th><th class="num">records</th><th></th></tr></thead>
    <tbody>${list.map((each) => {
      const difference = each.before === null ? null : each.after - each.before;
      return html`<tr key=${`${each.topic}-${each.partition}`}><td>${each.topic}-${each.partition}</td><td class="num">${count(each.before)}</td><td class="num">${count(each.after)}</td>
        <td class="num">${difference === null ? "–" : difference < 0 ? `reads ${count(-difference)} again` : difference > 0 ? html`<span class="warn">skips ${count(difference)}</span>` : "stays"}</td>
        <td class="muted small">${each.limited ? `limited to what the log has (${count(each.limited[1])} to ${count(each.limited[2])})` : ""}</td></tr>`;
    })}</tbody></table></div>`;
}

const Delete = ({ group, members }) => members.length ? null : html`<${Confirmed} danger label="Delete" title=${`Delete group ${group}?`} name="groups/delete" fields=${{ group }} typed=${group} command=${ottla("groups", "delete", named(group))} confirm="Delete it">
  <p>Its committed offsets are gone then. Who reads under this name again begins anew.</p></${Confirmed}>`;
