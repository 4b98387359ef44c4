// All consumer groups: how far behind each is, in records and in seconds, and since when.

import { html, useState } from "../lib.js";
import { to } from "../router.js";
import { count, duration, plural, seconds } from "../format.js";
import { clock, tables } from "../store.js";
import { Spark } from "../parts/chart.js";
import { Sorted, Titled } from "../parts/page.js";

const LATE_S = 10;

export default function Groups() {
  const [filter, setFilter] = useState("");
  const all = tables.groups.list;
  const rings = tables.group_lags.now;
  const rows = all.filter((row) => row.id.toLowerCase().includes(filter.toLowerCase()));
  const late = all.filter((row) => row.seconds >= LATE_S).length;
  return html`<${Titled} title="Groups" />
    <div class="head"><h1>Groups</h1><input type="search" placeholder="Filter" aria-label="Filter groups" value=${filter} onInput=${(e) => setFilter(e.target.value)} /></div>
    <p class="muted">${plural(all.length, "group")}${late ? html`, <span class="warn">${late} more than ${LATE_S} s behind</span>` : all.length ? ", none late" : ""}. Seconds are the age of the oldest record that a group has not read. Late is a group from ${LATE_S} s on.</p>
    <section class="box flush"><${Sorted} label="Consumer groups" rows=${rows} rowKey=${(row) => row.id} initial=${["seconds", true]} empty="No group has committed anything."
      columns=${[
        { name: "id", head: "group", show: (row) => html`<a class="name" href=${to.group(row.id)}>${row.id}</a>` },
        { name: "state", head: "state", show: (row) => html`<${State} row=${row} />` },
        { name: "members", head: "members", num: true, show: (row) => count(row.members) },
        { name: "lag", head: "records behind", num: true, show: (row) => count(row.lag) },
        { name: "seconds", head: "seconds behind", num: true, show: (row) => html`<span class=${row.seconds >= LATE_S ? "warn" : ""}>${seconds(row.seconds)}</span>` },
        { name: "late_since_ms", head: "late for", show: (row) => row.late_since_ms ? html`${row.late_at_least ? "at least " : ""}${duration(clock.value - row.late_since_ms)}` : html`<span class="muted">–</span>` },
        { name: "trend", head: "last hour", sort: false, show: (row) => html`<${Spark} values=${(rings.get(row.id) ?? []).map((each) => each[2])} label=${`seconds that ${row.id} was behind, over the last hour`} />` },
        { name: "topics", head: "topics", sort: false, show: (row) => row.topics.slice(0, 4).map((name, index) => html`${index ? ", " : ""}<a href=${to.topic(name)}>${name}</a>`).concat(row.topics.length > 4 ? ` and ${row.topics.length - 4} more` : "") },
      ]} /></section>`;
}

const TONES = { Stable: "good", Empty: "", PreparingRebalance: "warn", CompletingRebalance: "warn", Assigning: "warn", Reconciling: "warn", Dead: "bad" };

export const State = ({ row }) => html`<span class=${`chip ${TONES[row.state] ?? ""}`}>${row.state || "?"}</span>`;
