// One partition: its replicas as logs side by side, what is wrong with it and why, and everything that happened to it.

import { html, useMemo, useRef, useState } from "../lib.js";
import { go, to } from "../router.js";
import { count, plural, short } from "../format.js";
import { ask, tables } from "../store.js";
import { eventOf, Events } from "../parts/events.js";
import { Explained } from "../parts/explanation.js";
import { epochClass, Logs, spansOf, WholeLog } from "../parts/logs.js";
import { Since, Titled, useAsked } from "../parts/page.js";
import { ElectLeader } from "../parts/actions.js";

const WIDTHS = [40, 80, 160, 400, 800, 1600, 4000, 8000, 16000, 40000, 100000, 400000, 1e6, 4e6, 1e7, 1e8, 1e9];
const STORY_MAX = 300;

export default function Partition({ parts: [topic, number] }) {
  const name = `${topic}-${number}`;
  const row = tables.partitions.get(name);
  const known = tables.topics.get(topic);
  if (!row) {
    return html`<${Titled} title=${name} /><${Crumbs} topic=${topic} /><h1>${name}</h1>
      <p class="muted">${known && Number(number) >= known.partitions ? `Topic ${topic} has ${plural(known.partitions, "partition")} only.` : "Looking for it…"}</p>`;
  }
  const settings = tables.settings.get(topic);
  const offsets = tables.offsets.get(name);
  const changes = `${row.leader} ${row.epoch} ${row.isr} ${row.replicas}`;
  return html`<${Titled} title=${name} />
    <${Crumbs} topic=${topic} />
    <div class="head"><h1>${name}</h1>
      <a class="button" href=${to.messages(topic, { partition: number })}>Messages</a>
      <${ElectLeader} row=${row} /></div>
    <p class="chips">
      ${row.leader >= 0 ? html`<span class="chip good">leader <a href=${to.broker(row.leader)}>broker ${row.leader}</a></span>` : html`<span class="chip bad">no leader</span>`}
      <span class="chip">epoch ${count(row.epoch)}</span>
      <span class=${`chip ${row.isr.length < row.replicas.length ? "warn" : ""}`}>ISR ${row.isr.join(", ") || "empty"} of ${row.replicas.join(", ")}</span>
      ${settings?.min_insync ? html`<span class=${`chip ${row.isr.length < settings.min_insync ? "bad" : ""}`}>min.insync.replicas ${settings.min_insync}</span>` : null}
      ${offsets?.rate ? html`<span class="chip">${short(offsets.rate)} records/s</span>` : null}
      <${Since} at=${row.since_ms} zero="" />
    </p>
    <${Replicas} name=${name} row=${row} />
    <div class="grid">
      <div class="w6"><${Explained} about=${`partition:${name}`} again=${changes} /></div>
      <section class="w6 box"><header><h2>What happened to it</h2><a class="more" href=${`/timeline?topic=${encodeURIComponent(topic)}&partition=${number}`}>Timeline</a></header><${Story} topic=${topic} number=${number} name=${name} /></section>
    </div>`;
}

const Crumbs = ({ topic }) => html`<nav class="crumbs" aria-label="Where"><a href="/topics">Topics</a> / <a href=${to.topic(topic)}>${topic}</a></nav>`;

function Replicas({ name, row }) {
  const all = tables.replicas.now;
  const told = tables.epochs.get(name);
  const brokers = tables.brokers.now;
  const last = useRef({});
  const [wide, setWide] = useState(false);
  const span = useRef(null);

  // In a fixed order, so that an election does not move the lines: the preferred replica first.
  const rows = row.replicas.map((id) => {
    const found = all.get(`${name}/${id}`);
    const answers = found && found.end !== null;
    if (answers) last.current[id] = found;
    return { id, answers, ...(answers ? found : last.current[id] ?? { start: null, end: null, high_watermark: null }) };
  });
  const leader = rows.find((each) => each.id === row.leader && each.answers);
  const known = rows.filter((each) => each.end !== null);
  const asked = row.replicas.some((id) => all.has(`${name}/${id}`));
  if (!known.length) return html`<section class="box"><p class="empty">${asked ? "No replica answers." : "Asking the replicas…"}</p></section>`;
  const end = Math.max(...known.map((each) => each.end));
  const start = Math.min(...known.map((each) => each.start));
  const behind = end - Math.min(...known.filter((each) => each.answers).map((each) => each.end), end);
  const epochs = told?.epochs ?? [[row.epoch, start]];
  const { from, to: until } = wide ? { from: start, to: Math.max(end, start + 1) } : sliding(span, start, end, behind);

  const replicas = rows.map((each) => {
    const role = !each.answers ? "down" : each.id === row.leader ? "leader" : "follower";
    const lag = leader && each.end !== null ? leader.end - each.end : null;
    const note = role === "follower" && leader ? html`fetches from ${count(each.end)}${lag > 0 ? html`, <span class="warn">${count(lag)} behind</span>` : ""}${row.isr.includes(each.id) ? "" : html` <span class="chip warn">not in the ISR</span>`}`
      : role === "down" && each.end !== null ? `ended at ${count(each.end)} when last seen` : null;
    const words = role === "down" ? standingWords(brokers.get(String(each.id))) : undefined;
    return { broker: each.id, role, words, epoch: row.epoch, start: each.start, end: each.end, hw: each.high_watermark,
      spans: each.end === null ? [] : spansOf(epochs, each.start, each.end), note, stale: role === "down" };
  });
  const losses = tables.losses.list.filter((each) => each.partition === name && each.first_offset !== null).map((each) => ({
    key: `${each.at}${each.first_offset}`, from: each.first_offset, to: each.possible_end_offset ?? end,
    text: each.kind === "open_election" ? `what others may have from ${each.first_offset} on` : `offsets ${each.first_offset} to ${each.possible_end_offset - 1}, lost at ${each.at}`,
  }));
  return html`<section class="box"><header><h2>Replicas</h2>
      <span class="segments" role="group" aria-label="How much of the log"><button aria-pressed=${!wide} onClick=${() => setWide(false)}>End of the log</button><button aria-pressed=${wide} onClick=${() => setWide(true)}>All of it</button></span></header>
    <${WholeLog} start=${start} end=${end} epochs=${epochs} from=${from} to=${until} />
    <${Logs} replicas=${replicas} from=${from} to=${until} losses=${losses.filter((each) => each.to > from && each.from < until)} label=${`Replicas of ${name}`} />
    <${Epochs} epochs=${epochs} end=${end} />
    ${losses.length ? html`<p class="note bad">${plural(losses.length, "loss", "losses")} in this partition: ${losses.map((each) => each.text).join("; ")}.</p>` : null}
  </section>`;
}

const standingWords = (row) => ({ up: "does not tell", silent: "does not answer", fenced: "is down", gone: "is gone" })[row?.standing ?? "gone"];

// The part of the log that is drawn. It stands still while the logs grow in it, and moves on when they reach its end.
function sliding(span, start, end, behind) {
  const needed = Math.max(30, behind * 1.4);
  let width = span.current?.width ?? 0;
  const rate = span.current ? (end - span.current.end) / Math.max(0.2, (performance.now() - span.current.at) / 1000) : 0;
  const smooth = span.current ? span.current.rate * 0.9 + Math.max(0, rate) * 0.1 : 0;
  const wanted = WIDTHS.find((each) => each >= Math.max(needed, smooth * 20)) ?? WIDTHS.at(-1);
  if (wanted > width || wanted < width / 8) width = wanted;
  let from = span.current?.from ?? end - width * 0.6;
  if (end > from + width * 0.95 || end < from || from + width * 0.02 > end - behind || width !== span.current?.width) from = end - Math.max(width * 0.6, Math.min(behind * 1.15, width * 0.9));
  from = Math.max(start, Math.floor(from));
  span.current = { from, width, end, rate: smooth, at: performance.now() };
  return { from, to: from + width };
}

function Epochs({ epochs, end }) {
  const shown = epochs.slice(-8);
  return html`<ul class="epochs" aria-label="Leader epochs">${epochs.length > shown.length ? html`<li class="muted">${plural(epochs.length - shown.length, "earlier epoch")}</li>` : null}
    ${shown.map(([epoch, first], index) => {
      const next = shown[index + 1]?.[1] ?? end;
      return html`<li key=${epoch}><i class=${epochClass(epoch)}></i>epoch ${epoch} <span class="muted">${next > first ? `from ${count(first)}, ${plural(next - first, "record")}` : "nothing yet"}</span></li>`;
    })}</ul>`;
}

function Story({ topic, number, name }) {
  const cluster = tables.cluster.get("cluster");
  const asked = useAsked((signal) => ask("events", { topic, partition: number, limit: STORY_MAX, from: 0 }, { signal }), [name, cluster?.has_event_log]);
  const live = (tables.newest.get("all") ?? []).map(eventOf).filter((each) => each.partition === name);
  const list = useMemo(() => {
    const seen = new Map((asked.value?.events ?? []).map((each) => [each.id, each]));
    for (const each of live) seen.set(each.id, each);
    return [...seen.values()].sort((a, b) => b.at_ms - a.at_ms);
  }, [asked.value, live.length, live.at(-1)?.id]);
  if ((asked.error ?? asked.value?.missing) && !list.length) return html`<p class="muted">${asked.error ?? asked.value.missing}</p>`;
  return html`<div class="tall"><${Events} list=${list} empty=${asked.loading ? "Looking…" : "Nothing is known."} label=${`What happened to ${name}`}
    onPick=${(event) => refineTo(event)} /></div>`;
}

const refineTo = (event) => go(`/timeline?at=${event.at_ms}`);
