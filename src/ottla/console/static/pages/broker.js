// One broker: why it is as it is, what it carries, what happened to it.

import { html, useMemo } from "../lib.js";
import { bytes, count, plural, short } from "../format.js";
import { ask, tables } from "../store.js";
import { Chart, columnsOf } from "../parts/chart.js";
import { Events } from "../parts/events.js";
import { Explained } from "../parts/explanation.js";
import { Since, Titled, useAsked } from "../parts/page.js";
import { Disk } from "./overview.js";

const rate = (format) => (value) => (value === null || value === undefined ? "–" : `${format(value)}/s`);

export default function Broker({ parts: [id] }) {
  const row = tables.brokers.get(id);
  const disk = tables.disks.get(id);
  const events = useAsked((signal) => ask("events", { broker: id, limit: 200, from: 0 }, { signal }), [id, row?.standing]);
  if (!row) return html`<${Titled} title=${`Broker ${id}`} /><h1>Broker ${id}</h1><p class="muted">Looking for it…</p>`;
  return html`<${Titled} title=${`Broker ${id}`} />
    <div class="head"><h1>Broker ${id}</h1></div>
    <p class="chips"><span class=${`chip ${row.standing === "up" ? "good" : "bad"}`}>${{ up: "up", fenced: "down", silent: "does not answer", gone: "gone" }[row.standing]}</span>
      ${row.host ? html`<span class="chip mono">${row.host}:${row.port}</span>` : null}${row.rack ? html`<span class="chip">rack ${row.rack}</span>` : null}
      <span class="chip">leads ${count(row.leaders)}</span><span class="chip">${plural(row.replicas, "replica")}</span>
      ${row.out_of_sync ? html`<span class="chip warn">${count(row.out_of_sync)} not in sync</span>` : null}
      ${disk ? html`<span class="chip"><${Disk} disk=${disk} /></span>` : null}<${Since} at=${row.since_ms} zero="" /></p>
    <div class="grid"><div class="w6"><${Explained} about=${`broker:${id}`} again=${row.standing} /></div>
      <section class="w6 box"><${Rates} id=${id} /></section></div>
    <section class="box"><header><h2>What happened</h2><a class="more" href=${`/timeline?broker=${id}`}>Timeline</a></header>
      ${events.error ?? events.value?.missing ? html`<p class="muted">${events.error ?? events.value.missing}</p>` : html`<div class="tall"><${Events} list=${events.value?.events ?? []} /></div>`}</section>`;
}

function Rates({ id }) {
  const points = tables.broker_rates.get(id) ?? [];
  const columns = useMemo(() => columnsOf(points.length ? points : [[0, 0, 0, 0, 0, 0]], 40_000), [points]);
  if (!points.length) return html`<h2>Rates</h2><p class="empty">What flows through this broker is not known: it does not say it, or does not answer.</p>`;
  return html`<${Chart} label="Bytes" sync="broker" data=${[columns[0], columns[2], columns[3], columns[4]]} format=${rate(bytes)}
      series=${[{ label: "in", colour: "--accent", fill: true }, { label: "out", colour: "--warn" }, { label: "copied", colour: "--muted" }]} />
    <${Chart} label="Processor" sync="broker" data=${[columns[0], columns[5]]} format=${(value) => value === null ? "–" : `${Math.round(value * 100)} %`} series=${[{ label: "of one core", colour: "--accent", fill: true }]} height=${110} />
    <p class="muted small">Records in: ${rate(short)(points.at(-1)?.[1])}</p>`;
}
