// Open transactions: how long, what they hold back, and ending those that hang.

import { html } from "../lib.js";
import { PartitionLink, to } from "../router.js";
import { count, duration, plural } from "../format.js";
import { clock, tables } from "../store.js";
import { Confirmed } from "../parts/actions.js";
import { named, ottla, Sorted, Titled } from "../parts/page.js";

export default function Transactions() {
  const rows = tables.transactions.list;
  const holds = tables.holds.list;
  const held = new Map();
  for (const hold of holds) held.set(hold.producer_id, [...(held.get(hold.producer_id) ?? []), hold]);
  const heldBack = (row) => (held.get(row.producer_id) ?? []).reduce((sum, each) => sum + each.held_back, 0);
  const startedMs = (row) => row.started_ms ?? Math.min(...(held.get(row.producer_id) ?? []).map((each) => each.last_ms), Infinity);
  return html`<${Titled} title="Transactions" />
    <div class="head"><h1>Transactions</h1></div>
    <p class="muted">${rows.length ? `${plural(rows.length, "transaction")} open` : "No transaction is open"}${holds.length ? `, ${plural(holds.length, "partition")} with records that consumers of committed transactions cannot read yet` : ""}.</p>
    <section class="box flush"><${Sorted} label="Open transactions" rows=${rows} rowKey=${(row) => `${row.id}/${row.producer_id}`} initial=${["open", true]} empty="Nothing is open." columns=${[
      { name: "id", head: "transactional id", show: (row) => row.id ? html`<b class="name">${row.id}</b>` : html`<span class="chip bad">hanging</span> <span class="muted">no coordinator knows it</span>` },
      { name: "state", head: "state", show: (row) => html`<span class=${`chip ${row.state === "Ongoing" ? "" : "warn"}`}>${row.state}</span>` },
      { name: "producer_id", head: "producer", num: true, show: (row) => html`<span class="mono">${row.producer_id}</span> <small class="muted">epoch ${row.producer_epoch}</small>` },
      { name: "open", head: "open for", num: true, value: (row) => clock.value - startedMs(row), show: (row) => html`<${Age} row=${row} started=${startedMs(row)} />` },
      { name: "held", head: "holds back", num: true, value: heldBack, show: (row) => count(heldBack(row)) },
      { name: "places", head: "partitions", sort: false, show: (row) => html`${row.places.slice(0, 6).map(([topic, number]) => html`<${PartitionLink} key=${`${topic}-${number}`} name=${`${topic}-${number}`} /> `)}${row.places.length > 6 ? html`<span class="muted">and ${row.places.length - 6} more</span>` : null}` },
      { name: "coordinator", head: "coordinator", num: true, show: (row) => row.coordinator === null ? "–" : html`<a href=${to.broker(row.coordinator)}>${row.coordinator}</a>` },
      { name: "end", head: "", sort: false, show: (row) => html`<${Abort} row=${row} holds=${held.get(row.producer_id) ?? []} />` },
    ]} /></section>
    <section class="box flush"><header><h2>What is held back</h2></header><${Sorted} label="Partitions with records that are held back" rows=${holds} rowKey=${(row) => `${row.topic}-${row.partition}/${row.producer_id}`} initial=${["held_back", true]} empty="Every committed record can be read." columns=${[
      { name: "name", head: "partition", value: (row) => `${row.topic}-${row.partition}`, show: (row) => html`<${PartitionLink} name=${`${row.topic}-${row.partition}`} />` },
      { name: "producer_id", head: "producer", num: true, show: (row) => html`<span class="mono">${row.producer_id}</span>` },
      { name: "start_offset", head: "from offset", num: true, show: (row) => html`<a href=${to.messages(row.topic, { partition: row.partition, from: row.start_offset })}>${count(row.start_offset)}</a>` },
      { name: "held_back", head: "records", num: true, show: (row) => count(row.held_back) },
      { name: "last_ms", head: "its producer wrote last", show: (row) => `${duration(clock.value - row.last_ms)} ago` },
    ]} /></section>`;
}

function Age({ row, started }) {
  if (!Number.isFinite(started)) return html`<span class="muted">–</span>`;
  const age = clock.value - started;
  const late = row.timeout_ms && age > row.timeout_ms;
  return html`<span class=${late ? "bad" : ""}>${duration(age)}</span>${row.timeout_ms ? html` <small class="muted">of ${duration(row.timeout_ms)}</small>` : null}`;
}

function Abort({ row, holds }) {
  if (row.id) {
    return html`<${Confirmed} danger quiet label="abort" title=${`Abort transaction ${row.id}?`} name="transactions/abort" fields=${{ id: row.id }} confirm="Abort it" command=${ottla("transactions", "abort", named(row.id))}>
      <p>Its producer is fenced: its next request fails, and what it wrote in this transaction is never read as committed.</p></${Confirmed}>`;
  }
  const hold = holds[0];
  if (!hold) return null;
  return html`<${Confirmed} danger quiet label="abort" title=${`Abort the transaction of producer ${row.producer_id}?`} name="transactions/abort-hanging" fields=${{ topic: hold.topic, partition: hold.partition, producer_id: row.producer_id }} confirm="Abort it"
    command=${ottla("transactions", "abort", "--topic", hold.topic, "--partition", hold.partition, "--start-offset", hold.start_offset)}>
    <p>No coordinator will ever end it. The leader of ${hold.topic}-${hold.partition} writes the abort marker.</p></${Confirmed}>`;
}
