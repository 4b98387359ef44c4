// What is wrong now and why, what flows, and every replica at a glance.

import { html, useMemo } from "../lib.js";
import { to } from "../router.js";
import { bytes, count, duration, plural, seconds, short, shortly } from "../format.js";
import { tables } from "../store.js";
import { Chart, columnsOf, Spark } from "../parts/chart.js";
import { eventOf, Events } from "../parts/events.js";
import { Heat } from "../parts/heat.js";
import { Titled } from "../parts/page.js";
import { Problems, Verdict } from "../parts/problems.js";

const rate = (format) => (value) => (value === null || value === undefined ? "–" : `${format(value)}/s`);
const GAP_MS = 15_000;

export default function Overview() {
  const problems = tables.problems.list.sort(byRank);
  const brokers = tables.brokers.list.sort((a, b) => a.id - b.id);
  return html`<${Titled} title=${problems.length ? `${plural(problems.length, "problem")}` : "Overview"} />
    <${Verdict} problems=${problems} cluster=${tables.cluster.get("cluster")} totals=${tables.totals.get("cluster")} brokers=${brokers} quorum=${tables.quorum.get("cluster")} />
    ${problems.length ? html`<${Problems} list=${problems} />` : null}
    <${Tiles} />
    <div class="grid">
      <div class="w8 box"><${Rates} /></div>
      <div class="w4 stack"><div class="box"><${Quorum} /></div><div class="box grow"><${Late} /></div></div>
    </div>
    <section class="box"><header><h2>Brokers and partitions</h2></header><${TheHeat} /></section>
    <div class="grid">
      <section class="w5 box flush"><header><h2>Brokers</h2></header><${Brokers} list=${brokers} /></section>
      <section class="w7 box"><header><h2>What happened last</h2><a class="more" href="/timeline">Timeline</a></header><${Newest} /></section>
    </div>`;
}

export const byRank = (a, b) => a.rank - b.rank;

function Tiles() {
  const point = tables.rates.get("cluster")?.at(-1) ?? [];
  const groups = tables.groups.list.filter((each) => each.seconds !== null);
  const worst = groups.sort((a, b) => b.seconds - a.seconds)[0];
  const totals = tables.totals.get("cluster");
  return html`<dl class="tiles">
    <${Tile} name="records in" value=${rate(short)(point[1])} />
    <${Tile} name="bytes in" value=${rate(bytes)(point[2])} />
    <${Tile} name="bytes out" value=${rate(bytes)(point[3])} />
    <${Tile} name="partitions" value=${count(totals?.partitions)} more=${!totals ? "" : totals.not_preferred ? `${count(totals.not_preferred)} not led by their first replica` : "all led by their first replica"} />
    <${Tile} name="groups" value=${count(totals ? tables.groups.now.size : null)} href="/groups" more=${worst ? (worst.seconds >= 1 ? html`<a href=${to.group(worst.id)}>${worst.id}</a> ${seconds(worst.seconds)} behind` : "none behind") : ""} />
  </dl>`;
}

const Tile = ({ name, value, more, href }) => html`<div class="tile"><dt>${href ? html`<a href=${href}>${name}</a>` : name}</dt><dd>${value}</dd>${more ? html`<dd class="more">${more}</dd>` : null}</div>`;

function Rates() {
  const points = tables.rates.get("cluster") ?? [];
  const columns = useMemo(() => columnsOf(points.length ? points : [[0, 0, 0, 0]], GAP_MS), [points]);
  const hasBytes = columns[2]?.some((each) => each !== null);
  const hasOut = columns[3]?.some((each) => each !== null);
  return html`<${Chart} key="records" label="Records" sync="rates" data=${[columns[0], columns[1]]} series=${[{ label: "in", colour: "--accent", fill: true }]} format=${rate(short)} height=${132} />
    ${hasBytes ? html`<${Chart} key="bytes" label="Bytes" sync="rates" data=${[columns[0], columns[2], ...(hasOut ? [columns[3]] : [])]}
      series=${[{ label: "in", colour: "--accent", fill: true }, ...(hasOut ? [{ label: "out", colour: "--warn" }] : [])]} format=${rate(bytes)} height=${132} />` : null}`;
}

function Quorum() {
  const quorum = tables.quorum.get("cluster");
  const observers = (quorum?.observers ?? []).filter((each) => tables.brokers.get(String(each.id))?.standing === "up");
  if (!quorum) return html`<h2>Controllers</h2><p class="empty">Nobody tells about a quorum.</p>`;
  const isLate = (voter) => voter.id !== quorum.leader && voter.behind_ms > 5000;
  const follow = quorum.voters.filter((voter) => !isLate(voter)).length;
  return html`<header class="head"><h2>Controllers</h2><span class="muted small">epoch ${count(quorum.epoch)}</span></header>
    <ul class="voters">${quorum.voters.map((voter) => html`<li key=${voter.id} class=${voter.id === quorum.leader ? "active" : isLate(voter) ? "late" : ""}>
      <b>${voter.id}</b>
      <span>${voter.id === quorum.leader ? "active" : isLate(voter) ? `silent for ${duration(voter.behind_ms)}` : "follows"}</span>
      <span class="num muted small">${voter.id === quorum.leader ? `offset ${count(voter.log_end)}` : voter.lag ? `${count(voter.lag)} behind` : "up to date"}</span></li>`)}</ul>
    ${observers.length ? html`<p class="muted small">${plural(observers.length, "broker follows", "brokers follow")} as observer${observers.length > 1 ? "s" : ""}, ${count(Math.max(...observers.map((each) => each.lag)))} behind at most.</p>` : null}
    <p class="muted small">${whatMayFail(quorum, follow)}</p>`;
}

function whatMayFail({ voters }, follow) {
  if (voters.length === 1) return "There is one controller: nothing is decided without it.";
  const spare = follow - Math.floor(voters.length / 2) - 1;
  if (spare < 0) return "Too few controllers follow: nothing can be decided.";
  if (!spare) return "If another controller fails, nothing can be decided any more.";
  return `${plural(spare, follow < voters.length ? "more controller" : "controller")} may fail.`;
}

function Late() {
  const list = tables.groups.list.filter((each) => each.lag !== null).sort((a, b) => b.seconds - a.seconds || b.lag - a.lag).slice(0, 5);
  return html`<header class="head"><h2>Groups that are farthest behind</h2><a class="small" href="/groups">All</a></header>
    ${list.length ? html`<ul class="late">${list.map((each) => html`<li key=${each.id}><a class="name" href=${to.group(each.id)}>${each.id}</a>
      <span class=${`num ${each.seconds >= 10 ? "warn" : "muted"}`}>${each.seconds >= 1 || each.seconds === null ? seconds(each.seconds) : "up to date"}</span>
      <span class="num muted small">${shortly(each.lag, "record")}</span></li>`)}</ul>` : html`<p class="empty">No group has committed anything.</p>`}`;
}

function TheHeat() {
  return html`<${Heat} topics=${tables.topics.now} partitions=${tables.partitions.now} brokers=${tables.brokers.now}
    versions=${[tables.topics.version.value, tables.partitions.version.value, standings(tables.brokers.list)]} />`;
}

// What of the brokers decides how the squares look: rates and counts change all the time.
const standings = (list) => list.map((each) => `${each.id}${each.standing}${each.leaders}`).sort().join();

const STANDINGS = { up: ["good", "up"], fenced: ["bad", "down"], silent: ["bad", "does not answer"], gone: ["bad", "gone"] };

function Brokers({ list }) {
  const rates = tables.broker_rates.now;
  const disks = tables.disks.now;
  return html`<div class="scroll"><table><thead><tr><th>broker</th><th>is</th><th class="num">leads</th><th class="num">replicas</th><th>disk</th><th>bytes in</th></tr></thead>
    <tbody>${list.map((row) => {
      const disk = disks.get(String(row.id));
      const [tone, word] = STANDINGS[row.standing];
      return html`<tr key=${row.id}><td><a href=${to.broker(row.id)}>${row.id}</a>${row.rack ? html` <small class="muted">${row.rack}</small>` : null}</td>
        <td><span class=${`chip ${tone}`}>${word}</span></td><td class="num">${count(row.leaders)}</td>
        <td class="num">${count(row.replicas)}${row.out_of_sync ? html` <span class="warn">−${count(row.out_of_sync)}</span>` : null}</td>
        <td><${Disk} disk=${disk} /></td>
        <td><${Spark} values=${(rates.get(String(row.id)) ?? []).map((each) => each[2])} label="bytes in over the last hour" /></td></tr>`;
    })}</tbody></table></div>`;
}

export function Disk({ disk }) {
  if (!disk) return html`<span class="muted">–</span>`;
  if (disk.failed.length) return html`<span class="chip bad">failed</span>`;
  if (!disk.total_bytes) return bytes(disk.used_bytes);
  const part = 1 - disk.free_bytes / disk.total_bytes;
  return html`<span class="disk" title=${`${bytes(disk.free_bytes)} free of ${bytes(disk.total_bytes)}`}><meter min="0" max="1" low="0.8" high="0.9" optimum="0" value=${part} aria-label=${`${Math.round(part * 100)} % full`}></meter> <small>${bytes(disk.used_bytes)}</small></span>`;
}

function Newest() {
  const points = tables.newest.get("all") ?? [];
  const cluster = tables.cluster.get("cluster");
  if (cluster?.has_event_log === false) return html`<p class="empty">There is no event log: this cluster keeps none, or you may not read it. What is wrong is shown all the same.</p>`;
  return html`<${Events} list=${points.slice(-12).reverse().map(eventOf)} empty="Nothing yet." />`;
}
