// All events on one axis. Back in time: the cluster as it was at the moment that is chosen.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib.js";
import { place, refine } from "../router.js";
import { count, duration, plural, time } from "../format.js";
import { ask, clock, now, pastTables, tables } from "../store.js";
import { colour } from "../parts/chart.js";
import { eventOf, Events, KIND_WORDS } from "../parts/events.js";
import { Heat } from "../parts/heat.js";
import { Titled, Trouble } from "../parts/page.js";
import { Problems, Verdict } from "../parts/problems.js";
import { byRank } from "./overview.js";

const MINUTE = 60_000;
const SPANS = [["5 min", 5 * MINUTE], ["30 min", 30 * MINUTE], ["2 h", 120 * MINUTE], ["12 h", 720 * MINUTE], ["2 days", 2880 * MINUTE], ["7 days", 10080 * MINUTE]];
const LANES = [
  ["leaders", ["election", "offline", "leader_start"]],
  ["in sync", ["isr_shrink", "isr_expand"]],
  ["truncations", ["truncation"]],
  ["nodes", ["fenced", "unfenced", "node_start", "node_stop", "log_dir_failure", "log_dir_room", "directory_move", "stray_log", "events_dropped"]],
  ["controllers", ["controller_change"]],
  ["moves", ["reassignment"]],
  ["groups", ["rebalance", "member_expired", "transaction_aborted"]],
  ["settings", ["setting_changed", "quota_exceeded"]],
];
const LIMIT = 5000;
const LISTED = 120;

export default function Timeline() {
  const { query } = place.value;
  const spanMs = Number(query.span) || 30 * MINUTE;
  const at = query.at ? Number(query.at) : null;
  const until = query.until ? Number(query.until) : null;
  const filter = { topic: query.topic, partition: query.partition, broker: query.broker, kind: query.kind };
  const [asked, setAsked] = useState({ events: [] });
  const live = (tables.newest.get("all") ?? []).map(eventOf);
  const newest = live.at(-1)?.id;
  clock.value; // the axis goes on with the time

  // With the time that is chosen in sight.
  const end = until ?? (at && at < now() - spanMs * 0.95 ? at + spanMs * 0.3 : now() + spanMs * 0.02);
  const begin = end - spanMs;
  const turn = useRef(0);
  const key = JSON.stringify([filter, spanMs, until, at && at < now() - spanMs * 0.95 ? at : 0, tables.cluster.get("cluster")?.has_event_log]);
  useEffect(() => {
    const mine = ++turn.current;
    // From a little before, so that what began earlier is drawn as going on.
    ask("events", { ...filter, from: Math.floor(begin - spanMs), until: Math.ceil(Math.max(end, until ? 0 : now() + 1000)), limit: LIMIT }).then(
      (found) => { if (mine === turn.current) setAsked({ ...found, error: found.missing ?? null }); },
      (error) => { if (mine === turn.current) setAsked({ events: [], error: error.message }); },
    );
  }, [key]);
  const events = useMemo(() => {
    const seen = new Map(asked.events.map((each) => [each.id, each]));
    if (!until) for (const each of live) if (fits(each, filter)) seen.set(each.id, each);
    return [...seen.values()].sort((a, b) => a.at_ms - b.at_ms);
  }, [asked, newest, key]);

  const choose = (ms) => refine({ at: ms === null || ms >= now() - 300 ? undefined : Math.round(ms) });
  const zoom = (from, to) => {
    const width = Math.max(1000, to - from);
    refine({ span: Math.round(width), until: to >= now() ? undefined : Math.round(to) });
  };
  return html`<${Titled} title="Timeline" />
    <div class="head"><h1>Timeline</h1>
      <span class="segments" role="group" aria-label="How much time">${SPANS.map(([text, ms]) => html`<button key=${ms} aria-pressed=${spanMs === ms} onClick=${() => refine({ span: ms, until: undefined })}>${text}</button>`)}</span></div>
    <${Filters} filter=${filter} />
    ${asked.missing ? html`<p class="note">${asked.missing}</p>` : asked.error ? html`<${Trouble} error=${asked.error} />` : null}
    <section class="box">
      <${Axis} events=${events} begin=${begin} end=${end} at=${at} choose=${choose} zoom=${zoom} losses=${tables.losses.list.filter((each) => fitsPartition(each.partition, filter))} />
      <${Moment} at=${at} choose=${choose} events=${events} />
      ${asked.left_out ? html`<p class="note">${count(asked.left_out)} older entries of this time are not drawn: choose a shorter time, or a topic.</p>` : null}
      ${asked.dropped ? html`<p class="note">Nodes had more to tell than they could write down: some entries of this time are missing.</p>` : asked.complete === false ? html`<p class="note">The event log is longer than what was read: the oldest part of this time is missing.</p>` : null}
    </section>
    <${Then} at=${at} />
    <section class="box"><header><h2>${at ? `Up to ${time(at, { millis: true, now: now() })}` : "Newest first"}</h2><span class="muted small">${plural(events.length, "event")}</span></header>
      <${Events} list=${events.filter((each) => (at === null || each.at_ms <= at) && each.at_ms >= begin).slice(-LISTED).reverse()} onPick=${(event) => choose(event.at_ms)} empty=${asked.error ? "Nothing is known." : "Nothing happened in this time."} /></section>`;
}

const fitsPartition = (name, { topic, partition }) => !topic || (name && name.slice(0, name.lastIndexOf("-")) === topic && (partition === undefined || name === `${topic}-${partition}`));

function fits(event, filter) {
  if (filter.kind && !filter.kind.split(",").includes(event.kind)) return false;
  if (filter.topic && !fitsPartition(event.partition, filter) && event.about !== `topic:${filter.topic}`) return false;
  if (filter.partition && !event.partition) return false;
  if (filter.broker) {
    const id = Number(filter.broker);
    const { fields } = event;
    return event.about === `broker:${id}` || event.node === id && event.kind === "truncation"
      || [fields.broker, fields.leader, fields.previous_leader, fields.controller].includes(id)
      || [fields.brokers, fields.adding, fields.removing].some((each) => each?.includes?.(id));
  }
  return true;
}

function Filters({ filter }) {
  const topics = [...tables.topics.now.keys()].sort();
  const brokers = [...tables.brokers.now.keys()].sort((a, b) => a - b);
  const chosen = new Set((filter.kind ?? "").split(",").filter(Boolean));
  const toggle = (kinds) => {
    const next = new Set(chosen);
    const all = kinds.every((each) => next.has(each));
    for (const each of kinds) if (all) next.delete(each); else next.add(each);
    refine({ kind: [...next].join(",") });
  };
  const partitions = tables.topics.get(filter.topic)?.partitions ?? 0;
  return html`<div class="fields" role="group" aria-label="Filters">
    <label class="field">topic<input list="timeline-topics" value=${filter.topic ?? ""} placeholder="all" onChange=${(e) => refine({ topic: e.target.value.trim(), partition: undefined })} /></label>
    <datalist id="timeline-topics">${topics.map((name) => html`<option key=${name} value=${name} />`)}</datalist>
    ${filter.topic ? html`<label class="field">partition<select value=${filter.partition ?? ""} onChange=${(e) => refine({ partition: e.target.value })}><option value="">all</option>
      ${Array.from({ length: Math.min(partitions, 1000) }, (_, number) => html`<option key=${number} value=${number}>${number}</option>`)}</select></label>` : null}
    <label class="field">broker<select value=${filter.broker ?? ""} onChange=${(e) => refine({ broker: e.target.value })}><option value="">all</option>
      ${brokers.map((id) => html`<option key=${id} value=${id}>${id}</option>`)}</select></label>
    <span class="segments" role="group" aria-label="Kinds">${LANES.map(([name, kinds]) => html`<button key=${name} aria-pressed=${kinds.every((each) => chosen.has(each))} title=${kinds.map((each) => KIND_WORDS[each]).join(", ")} onClick=${() => toggle(kinds)}>${name}</button>`)}</span>
    ${filter.topic || filter.broker || filter.kind ? html`<button class="quiet" onClick=${() => refine({ topic: undefined, partition: undefined, broker: undefined, kind: undefined })}>Show all</button>` : null}
  </div>`;
}

// The drawing

const LEFT = 96;
const HEAD = 26;
const ROW = 26;
const THIN = 15;
const BROKERS_MAX = 16;

// Times in which something was so, from entries that begin and end it.
function intervals(events, begins, ends, keyOf) {
  const open = new Map();
  const found = [];
  for (const event of events) {
    const key = keyOf(event);
    if (key === undefined || key === null) continue;
    if (begins(event)) { if (!open.has(key)) open.set(key, event.at_ms); }
    else if (ends(event)) {
      // Ended without a beginning that we know: a broker that came for the first time, or it began before what was read.
      if (open.has(key)) found.push({ key, from: open.get(key), to: event.at_ms });
      open.delete(key);
    }
  }
  for (const [key, from] of open) found.push({ key, from, to: null });
  return found;
}

function rowsOf(events, losses) {
  const down = intervals(events, (e) => e.kind === "fenced", (e) => e.kind === "unfenced", (e) => e.kind === "fenced" || e.kind === "unfenced" ? e.fields.broker : undefined);
  const leaderless = intervals(events, (e) => e.kind === "offline", (e) => e.kind === "election" && e.fields.previous_leader === -1, (e) => e.kind === "offline" || e.kind === "election" ? e.partition : undefined);
  const brokers = [...new Set(down.map((each) => each.key))].sort((a, b) => a - b).slice(0, BROKERS_MAX);
  const rows = brokers.map((id) => ({ name: `broker ${id} down`, height: THIN, spans: down.filter((each) => each.key === id), tone: "--warn-fill" }));
  if (leaderless.length) rows.push({ name: "no leader", height: ROW, spans: leaderless, tone: "--bad-fill" });
  for (const [name, kinds] of LANES) {
    const marks = events.filter((each) => kinds.includes(each.kind));
    if (marks.length) rows.push({ name, height: ROW, marks });
  }
  if (losses.length) rows.push({ name: "lost records", height: ROW, losses: losses.map((each) => ({ ...each, at_ms: Date.parse(each.at) })) });
  return rows;
}

function Axis({ events, begin, end, at, choose, zoom, losses }) {
  const canvas = useRef(null);
  const [width, setWidth] = useState(800);
  const [hover, setHover] = useState(null);
  const [theme, setTheme] = useState(0);
  const drag = useRef(null);
  const rows = useMemo(() => rowsOf(events, losses), [events, losses]);
  const height = HEAD + rows.reduce((sum, row) => sum + row.height, 0) + 6;
  const inner = Math.max(50, width - LEFT - 10);
  const x = (ms) => LEFT + ((ms - begin) / (end - begin)) * inner;
  const msAt = (px) => begin + ((px - LEFT) / inner) * (end - begin);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(entry.contentRect.width));
    observer.observe(canvas.current.parentNode);
    const again = () => setTheme((n) => n + 1);
    const media = matchMedia("(prefers-color-scheme: dark)");
    media.addEventListener("change", again);
    addEventListener("theme", again);
    return () => { observer.disconnect(); media.removeEventListener("change", again); removeEventListener("theme", again); };
  }, []);
  const colours = useMemo(() => Object.fromEntries(["--ink", "--muted", "--line", "--accent", "--insync", "--leader", "--warn-fill", "--bad-fill", "--surface", "--raised"].map((name) => [name, colour(name)])), [theme]);
  useEffect(() => { draw(canvas.current, { width, height, rows, x, begin, end, at, hover, colours, drag: drag.current }); });

  const spot = (event) => {
    const box = canvas.current.getBoundingClientRect();
    return { px: event.clientX - box.left, py: event.clientY - box.top };
  };
  const onDown = (event) => {
    canvas.current.setPointerCapture(event.pointerId);
    const { px } = spot(event);
    const grabs = at !== null && Math.abs(px - x(at)) < 9;
    drag.current = { from: px, to: px, grabs };
  };
  const onMove = (event) => {
    const { px, py } = spot(event);
    if (drag.current) {
      drag.current.to = px;
      if (drag.current.grabs) choose(msAt(Math.min(Math.max(px, LEFT), width)));
    }
    setHover(nearest(rows, x, px, py) ?? { px });
  };
  const onUp = (event) => {
    const { px } = spot(event);
    const done = drag.current;
    drag.current = null;
    if (!done) return;
    if (!done.grabs && Math.abs(px - done.from) > 6) zoom(msAt(Math.max(LEFT, Math.min(px, done.from))), msAt(Math.max(px, done.from)));
    else if (!done.grabs) choose(hover?.event?.at_ms ?? msAt(Math.max(px, LEFT)));
    setHover(null);
  };
  const onWheel = (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
    event.preventDefault();
    const middle = msAt(spot(event).px);
    const factor = (event.deltaY || event.deltaX) > 0 ? 1.3 : 1 / 1.3;
    zoom(middle - (middle - begin) * factor, middle + (end - middle) * factor);
  };
  const moveTo = (step) => {
    const here = at ?? now();
    const times = [...new Set(events.map((each) => each.at_ms))];
    choose(step > 0 ? times.find((ms) => ms > here) ?? null : times.findLast((ms) => ms < here) ?? here);
  };
  const onKey = (event) => {
    const steps = { ArrowLeft: () => moveTo(-1), ArrowRight: () => moveTo(1), PageDown: () => choose((at ?? now()) - (end - begin) / 20), PageUp: () => choose((at ?? now()) + (end - begin) / 20), Home: () => choose(begin), End: () => choose(null), Escape: () => choose(null) };
    if (!steps[event.key]) return;
    event.preventDefault();
    steps[event.key]();
  };
  const value = at ?? now();
  return html`<div class="axis"><canvas ref=${canvas} tabindex="0" role="slider" aria-label="Time at which the cluster is shown" aria-valuemin=${Math.round(begin)} aria-valuemax=${Math.round(end)}
      aria-valuenow=${Math.round(value)} aria-valuetext=${at === null ? "now" : time(at, { millis: true, now: now() })}
      style=${{ width: `${width}px`, height: `${height}px` }}
      onPointerDown=${onDown} onPointerMove=${onMove} onPointerUp=${onUp} onPointerLeave=${() => !drag.current && setHover(null)} onDblClick=${() => zoom(begin - (end - begin) / 2, end + (end - begin) / 2)} onWheel=${onWheel} onKeyDown=${onKey}></canvas>
    ${hover?.text ? html`<div class="tip axis-tip" role="status" style=${{ left: `${Math.min(hover.px + 12, width - 260)}px`, top: `${hover.py + 12}px` }}>${hover.text}</div>` : null}
    <p class="muted small">Click, or use the arrow keys, to go back in time. Drag to look closer; double-click to see more.</p></div>`;
}

function nearest(rows, x, px, py) {
  let top = HEAD;
  for (const row of rows) {
    if (py >= top && py < top + row.height) {
      let best = null;
      for (const event of row.marks ?? []) {
        const far = Math.abs(x(event.at_ms) - px);
        if (far < 7 && (!best || far < best.far || (far === best.far && event.severity > best.event.severity))) best = { far, event };
      }
      if (best) {
        const same = row.marks.filter((each) => Math.abs(x(each.at_ms) - x(best.event.at_ms)) < 2).length;
        return { px, py, event: best.event, text: `${time(best.event.at_ms, { millis: true, now: now() })}  ${best.event.text}${same > 1 ? `  (and ${same - 1} more here)` : ""}` };
      }
      const loss = row.losses?.find((each) => px > x(each.at_ms) - 8 && px < x(each.at_ms) + 130);
      if (loss) return { px, py, event: loss, text: lossText(loss) };
      const span = row.spans?.find((each) => px >= x(each.from) - 2 && px <= x(each.to ?? 1e15) + 2);
      if (span) return { px, py, text: `${row.name === "no leader" ? `${span.key}: no leader` : row.name} from ${time(span.from, { millis: true, now: now() })}, ${span.to ? `for ${duration(span.to - span.from)}` : "still"}` };
    }
    top += row.height;
  }
  return null;
}

export function lossText(loss) {
  if (loss.kind === "open_election") return `${loss.partition}: an unclean election; what brokers ${loss.may_be_held_by.join(", ")} may have is not known`;
  const certain = loss.end_offset > loss.first_offset;
  return `${loss.partition} ${certain ? "lost" : "may have lost"} offsets ${count(loss.first_offset)} to ${count((certain ? loss.end_offset : loss.possible_end_offset) - 1)}`;
}

function draw(canvas, { width, height, rows, x, begin, end, at, hover, colours, drag }) {
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "12px Inter, system-ui, sans-serif";
  pen.textBaseline = "middle";
  // The axis
  const step = stepOf(end - begin, (width - LEFT) / 110);
  pen.fillStyle = colours["--muted"];
  pen.strokeStyle = colours["--line"];
  pen.lineWidth = 1;
  for (let ms = Math.ceil(begin / step) * step; ms < end; ms += step) {
    const at = Math.round(x(ms)) + 0.5;
    pen.beginPath();
    pen.moveTo(at, HEAD - 4);
    pen.lineTo(at, height - 4);
    pen.stroke();
    pen.textAlign = "center";
    pen.fillText(step < 1000 ? time(ms, { millis: true, now: ms }) : step >= 86_400_000 ? new Date(ms).toLocaleDateString("en-CA") : time(ms, { now: ms }).slice(0, step < 60_000 ? 8 : 5), at, 11);
  }
  let top = HEAD;
  pen.textAlign = "left";
  for (const row of rows) {
    const middle = top + row.height / 2;
    pen.fillStyle = colours["--muted"];
    pen.fillText(row.name, 0, middle);
    pen.save();
    pen.beginPath();
    pen.rect(LEFT - 6, top, width - LEFT + 6, row.height);
    pen.clip();
    for (const span of row.spans ?? []) {
      const from = x(span.from);
      const to = span.to === null ? x(Math.min(end, now())) : x(span.to);
      if (to < LEFT - 6 || from > width) continue;
      pen.fillStyle = colours[row.tone];
      pen.fillRect(from, middle - 4, Math.max(2, to - from), 8);
    }
    if (row.marks) drawMarks(pen, row.marks, x, middle, row.height, colours, width);
    for (const loss of row.losses ?? []) {
      const from = x(loss.at_ms);
      if (from < LEFT - 140 || from > width) continue;
      pen.fillStyle = colours["--bad-fill"];
      pen.fillRect(from - 1, top + 3, 3, row.height - 6);
      pen.fillText(lossText(loss).replace(/ offsets /, " "), from + 6, middle);
    }
    pen.restore();
    top += row.height;
  }
  if (drag && !drag.grabs && Math.abs(drag.to - drag.from) > 6) {
    pen.globalAlpha = 0.16;
    pen.fillStyle = colours["--accent"];
    pen.fillRect(Math.min(drag.from, drag.to), HEAD - 4, Math.abs(drag.to - drag.from), height);
    pen.globalAlpha = 1;
  }
  if (hover?.px > LEFT) {
    pen.strokeStyle = colours["--muted"];
    pen.setLineDash([3, 3]);
    line(pen, hover.px, HEAD - 4, height - 4);
    pen.setLineDash([]);
  }
  const ms = at ?? now();
  const here = x(ms);
  pen.strokeStyle = at === null ? colours["--leader"] : colours["--ink"];
  pen.fillStyle = pen.strokeStyle;
  pen.lineWidth = 2;
  line(pen, here, HEAD - 8, height - 2);
  pen.beginPath();
  pen.arc(here, HEAD - 8, 5, 0, 7);
  pen.fill();
}

function drawMarks(pen, marks, x, middle, height, colours, width) {
  const tones = [colours["--leader"], colours["--warn-fill"], colours["--bad-fill"]];
  const bins = new Map();
  for (const event of marks) {
    const at = Math.round(x(event.at_ms) / 3) * 3;
    if (at < LEFT - 6 || at > width) continue;
    const bin = bins.get(at) ?? { number: 0, severity: 0 };
    bin.number++;
    bin.severity = Math.max(bin.severity, event.severity);
    bins.set(at, bin);
  }
  for (const severity of [0, 1, 2]) {
    pen.fillStyle = tones[severity];
    for (const [at, bin] of bins) {
      if (bin.severity !== severity) continue;
      const tall = Math.min(height - 6, 6 + 4.2 * Math.log2(bin.number));
      if (bin.number === 1) {
        pen.beginPath();
        pen.arc(at, middle, severity === 2 ? 4.6 : 3.6, 0, 7);
        pen.fill();
      } else pen.fillRect(at - 2, middle - tall / 2, 4, tall);
    }
  }
}

function line(pen, at, top, bottom) {
  pen.beginPath();
  pen.moveTo(at, top);
  pen.lineTo(at, bottom);
  pen.stroke();
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, 60 * MINUTE, 120 * MINUTE, 180 * MINUTE, 360 * MINUTE, 720 * MINUTE, 1440 * MINUTE, 2880 * MINUTE];
const stepOf = (ms, most) => STEPS.find((step) => ms / step <= Math.max(2, most)) ?? 7 * 1440 * MINUTE;

// The cluster then

function Moment({ at, choose, events }) {
  const [plays, setPlays] = useState(false);
  const newest = useRef(null);
  newest.current = { at, events };
  useEffect(() => {
    if (!plays) return undefined;
    const timer = setInterval(() => {
      const { at, events } = newest.current;
      const next = events.find((each) => each.at_ms > (at ?? now()));
      if (at === null || !next) { setPlays(false); choose(null); } else choose(next.at_ms);
    }, 500);
    return () => clearInterval(timer);
  }, [plays]);
  const step = (direction) => {
    const here = at ?? now();
    const found = direction > 0 ? events.find((each) => each.at_ms > here) : events.findLast((each) => each.at_ms < here);
    choose(found ? found.at_ms : direction > 0 ? null : here);
  };
  return html`<div class="moment"><span class="segments" role="group" aria-label="Step through events">
      <button onClick=${() => step(-1)} aria-label="The event before">◀</button>
      <button onClick=${() => setPlays(!plays)} disabled=${at === null} aria-pressed=${plays}>${plays ? "Pause" : "Play"}</button>
      <button onClick=${() => step(1)} disabled=${at === null} aria-label="The next event">▶</button></span>
    <b>${at === null ? "Now" : time(at, { millis: true, now: now() })}</b>
    ${at === null ? null : html`<span class="muted">${duration(now() - at)} ago</span><button onClick=${() => choose(null)}>Back to now</button>`}</div>`;
}

function Then({ at }) {
  const [past, setPast] = useState(null);
  const [trouble, setTrouble] = useState(null);
  const state = useRef({ busy: false, wanted: null });
  // One question at a time, always for the moment that is wanted last: dragging asks as fast as answers come.
  useEffect(() => {
    state.current.wanted = at;
    const next = async () => {
      if (state.current.busy || state.current.wanted === null) return;
      const mine = state.current.wanted;
      state.current.busy = true;
      try {
        const found = await ask("past", { at: mine });
        setPast(found.missing ? null : { ...found, tables: pastTables(found.news) });
        setTrouble(found.missing ?? null);
      } catch (error) {
        setTrouble(error.message);
      }
      state.current.busy = false;
      if (state.current.wanted !== mine) next();
    };
    next();
  }, [at]);
  if (trouble && at !== null) return html`<p class="note">${trouble}</p>`;
  const is = at === null || !past ? null : past;
  const source = is ? is.tables : tables;
  const problems = source.problems.list.sort(byRank);
  const brokers = source.brokers.list.sort((a, b) => a.id - b.id);
  const topics = tables.topics.now;
  const totals = is ? totalsOf(source.partitions.rows, topics) : tables.totals.get("cluster");
  return html`<section class="box then" aria-label=${at === null ? "The cluster now" : "The cluster then"} aria-live="off">
    <${Verdict} problems=${problems} cluster=${tables.cluster.get("cluster")} totals=${totals} brokers=${brokers} quorum=${source.quorum.get("cluster")} past=${Boolean(is)} />
    ${is ? html`<p class="muted small">As leaders, ISRs and brokers were, from the event log. Lags and disks are not written down there, nor topics that were deleted since.</p>` : null}
    ${is && is.dropped ? html`<p class="note">Nodes had more to tell than they could write down: what is shown may not be all that changed since then.</p>` : is && !is.complete ? html`<p class="note">The event log does not reach back so far: what is shown is of the oldest moment that is known.</p>` : null}
    ${problems.length ? html`<${Problems} list=${problems} past=${Boolean(is)} />` : null}
    <${Heat} topics=${topics} partitions=${source.partitions.now} brokers=${source.brokers.now} height="360px"
      versions=${[topics, tables.topics.version.value, source.partitions.rows, source.partitions.version.value, source.brokers.list.map((each) => each.id + each.standing + each.leaders).join()]} /></section>`;
}

function totalsOf(partitions, topics) {
  const rows = [...partitions.values()];
  return { partitions: rows.length, topics: topics.size, offline: rows.filter((each) => each.leader < 0).length, under_replicated: rows.filter((each) => each.isr.length < each.replicas.length).length };
}
