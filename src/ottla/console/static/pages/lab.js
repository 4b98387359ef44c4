// Scenarios of the lab and traces of the simulator, stepped through in the drawing of a live partition: forwards and backwards.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib.js";
import { place, refine } from "../router.js";
import { plural } from "../format.js";
import { ask, send } from "../store.js";
import { Command, Titled, Trouble, useAsked } from "../parts/page.js";
import { epochClass, Logs } from "../parts/logs.js";
import { Icon } from "../parts/icons.js";

export default function Lab() {
  const { query } = place.value;
  const listed = useAsked((signal) => ask("lab", {}, { signal }), []);
  const [trace, setTrace] = useState(null);
  const { scenarios = [], designs = [] } = listed.value ?? {};
  const scenario = query.scenario;
  const design = query.design ?? designs.find((each) => each.is_product)?.name;
  return html`<${Titled} title="Simulator and lab" />
    <div class="head"><h1>Simulator and lab</h1></div>
    <p class="muted">The same brokers, simulated: every step of a schedule, with every replica's log. What a reader of the documents looks for is the truncation that loses a record.</p>
    <section class="box"><div class="fields">
      <label class="field grow">scenario<select value=${trace ? "" : scenario ?? ""} onChange=${(e) => { setTrace(null); refine({ scenario: e.target.value, step: undefined }); }}><option value="">choose one…</option>${scenarios.map((each) => html`<option key=${each.name} value=${each.name}>${each.title}</option>`)}</select></label>
      <label class="field">truncates by<select value=${design ?? ""} onChange=${(e) => { setTrace(null); refine({ design: e.target.value, step: undefined }); }}>${designs.map((each) => html`<option key=${each.name} value=${each.name}>${each.name}${each.is_product ? " (as Kafka today)" : ""}</option>`)}</select></label>
      <label class="field">or a trace (ottla sim --seed N --trace FILE)<input type="file" onChange=${(e) => { if (e.target.files[0]) setTrace(e.target.files[0]); }} /></label></div>
      ${listed.loading && !listed.value ? html`<p class="muted small" role="status">Looking into the lab…</p>` : null}<${Trouble} error=${listed.error} /></section>
    ${trace ? html`<${Trace} file=${trace} key=${trace.name + trace.lastModified} />` : scenario && design ? html`<${Scenario} key=${`${scenario}/${design}`} scenario=${scenario} design=${design} />` : null}`;
}

function Scenario({ scenario, design }) {
  const asked = useAsked((signal) => ask("lab/play", { scenario, design }, { signal }), [scenario, design]);
  if (asked.error) return html`<${Trouble} error=${asked.error} />`;
  if (!asked.value) return html`<section class="box"><p class="muted" role="status">The simulator plays it…</p></section>`;
  const { title, steps, verdict, is_broken } = asked.value;
  return html`<${Player} title=${`${design}: ${title}`} steps=${steps.map(ofScenario)} verdict=${verdict} broken=${is_broken} command=${`ottla lab play ${scenario} --design ${design}`} />`;
}

// A step of the lab as the drawing takes it.
function ofScenario(step) {
  const ends = step.replicas.flatMap((each) => [each.log_end, ...each.log.map((entry) => entry.offset + 1)]);
  return {
    at_s: step.at_s, what: step.what, events: step.events, from: 0, to: Math.max(6, ...ends) + 1,
    replicas: step.replicas.map((each) => ({
      broker: each.broker, role: each.role, epoch: each.epoch, start: 0, end: each.log_end, hw: each.high_watermark, changed: each.changed,
      entries: each.log.map((entry) => ({ offset: entry.offset, epoch: entry.epoch, value: entry.value, lost: entry.is_lost })),
    })),
  };
}

function Trace({ file }) {
  const [told, setTold] = useState({});
  const [chosen, setChosen] = useState("");
  useEffect(() => { send("lab/trace", file).then((found) => { setTold(found); setChosen(busiest(found.partitions)); }, (error) => setTold({ error: error.message })); }, [file]);
  const asked = useAsked(() => (chosen ? send(`lab/trace?partition=${encodeURIComponent(chosen)}`, file) : Promise.resolve(null)), [chosen]);
  const steps = useMemo(() => asked.value?.steps.map(ofTrace), [asked.value]);
  if (told.error) return html`<${Trouble} error=${told.error} />`;
  if (!told.partitions) return html`<section class="box"><p class="muted" role="status">Reading the trace…</p></section>`;
  return html`<section class="box"><label class="field">partition<select value=${chosen} onChange=${(e) => setChosen(e.target.value)}>${Object.entries(told.partitions).map(([name, number]) => html`<option key=${name} value=${name}>${name}, ${plural(number, "line")}</option>`)}</select></label>
      ${asked.value?.left_out ? html`<p class="note">${asked.value.left_out} later steps are left out.</p>` : null}</section>
    <${Trouble} error=${asked.error} />
    ${steps ? html`<${Player} key=${chosen} title=${`${file.name}: ${chosen}`} steps=${steps} />` : html`<p class="muted" role="status">Following ${chosen}…</p>`}`;
}


const busiest = (partitions) => Object.entries(partitions).filter(([name]) => !name.startsWith("__")).sort((a, b) => b[1] - a[1])[0]?.[0] ?? Object.keys(partitions)[0];

function ofTrace(step) {
  const ends = step.replicas.map((each) => each.end);
  const to = Math.max(8, ...ends, step.lost?.[1] ?? 0);
  return {
    at_s: step.at_s, what: step.what, events: [], isr: step.isr, lost: step.lost, from: Math.max(0, to - 60), to: to + 1,
    replicas: step.replicas.map((each) => ({
      broker: each.broker, role: each.role, epoch: each.epoch, start: each.start, end: each.end, hw: each.high_watermark, changed: each.broker === step.broker,
      spans: each.spans.map((span) => ({ epoch: span.epoch, from: span.begin, to: span.end })), note: step.isr.includes(each.broker) ? "in the ISR" : null,
    })),
  };
}

// Steps, one at a time

function Player({ title, steps, verdict, broken, command }) {
  const first = Math.min(Math.max(0, Number(place.value.query.step ?? 1) - 1), steps.length - 1);
  const [at, setAt] = useState(first);
  const [plays, setPlays] = useState(false);
  const root = useRef(null);
  const go = (next) => { setAt(Math.min(Math.max(0, next), steps.length - 1)); };
  const by = (step) => { setAt((now) => Math.min(Math.max(0, now + step), steps.length - 1)); };
  useEffect(() => { refine({ step: at ? at + 1 : undefined }); }, [at]);
  useEffect(() => {
    if (!plays) return undefined;
    if (at >= steps.length - 1) { setPlays(false); return undefined; }
    const timer = setTimeout(() => by(1), steps.length > 60 ? 160 : 1400);
    return () => clearTimeout(timer);
  }, [plays, at]);
  // With the first picture: a key that is pressed as soon as the steps can be seen counts.
  useLayoutEffect(() => {
    const onKey = (event) => {
      if (event.target.closest?.("input, select, textarea, dialog")) return;
      const keys = { ArrowRight: () => by(1), ArrowLeft: () => by(-1), Home: () => go(0), End: () => go(steps.length - 1), " ": () => setPlays((each) => !each) };
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [steps.length]);
  const losses = useMemo(() => steps.flatMap((step, index) => (step.lost || step.replicas.some((each) => each.entries?.some((entry) => entry.lost)) ? [index] : [])), [steps]);
  if (!steps.length) return html`<section class="box"><p class="empty">Nothing happened to it.</p></section>`;
  const step = steps[at];
  const nextLoss = losses.find((index) => index > at) ?? losses[0];
  return html`<section class="box player" ref=${root} aria-label=${title}>
    <header><h2>${title}</h2><span class="muted small">step ${at + 1} of ${steps.length}, after ${step.at_s.toFixed(steps.length > 60 ? 3 : 1)} s</span></header>
    <div class="moment"><span class="segments" role="group" aria-label="Steps">
        <button onClick=${() => go(0)} aria-label="First step"><${Icon} name="first" /></button><button onClick=${() => by(-1)} disabled=${!at} aria-label="Step back"><${Icon} name="left" /></button>
        <button onClick=${() => setPlays(!plays)} aria-pressed=${plays} aria-label=${plays ? "Pause" : "Play"}><${Icon} name=${plays ? "pause" : "play"} /></button>
        <button onClick=${() => by(1)} disabled=${at >= steps.length - 1} aria-label="Step on"><${Icon} name="right" /></button><button onClick=${() => go(steps.length - 1)} aria-label="Last step"><${Icon} name="last" /></button></span>
      <input type="range" min="0" max=${steps.length - 1} value=${at} aria-label="Step" aria-valuetext=${`step ${at + 1}: ${step.what}`} onInput=${(e) => go(Number(e.target.value))} />
      ${nextLoss !== undefined ? html`<button class="danger" onClick=${() => go(nextLoss)}>To the ${at >= losses.at(-1) ? "first" : "next"} loss</button>` : null}
      <span class="muted small wide-only"><kbd>←</kbd> <kbd>→</kbd> step, <kbd>space</kbd> plays</span></div>
    <p class="what" role="status">${step.what}</p>
    ${step.lost ? html`<p class="note bad">Committed records are cut off here: offsets ${step.lost[0]} to ${step.lost[1] - 1}.</p>` : null}
    <${Logs} replicas=${step.replicas} from=${step.from} to=${step.to} losses=${step.lost ? [{ key: "lost", from: step.lost[0], to: step.lost[1], text: `offsets ${step.lost[0]} to ${step.lost[1] - 1}` }] : []} label=${title} />
    <${EpochKeys} step=${step} />
    ${step.events.length ? html`<ul class="did">${step.events.map((event, index) => html`<li key=${index} class="mono small">${event}</li>`)}</ul>` : null}
    ${verdict && at === steps.length - 1 ? html`<p class=${`note ${broken ? "bad" : ""}`}><b>In the end: ${verdict}.</b></p>` : null}
    ${command ? html`<${Command} text=${command} />` : null}</section>`;
}

function EpochKeys({ step }) {
  const epochs = new Set(step.replicas.flatMap((each) => [...(each.entries ?? []), ...(each.spans ?? [])].map((entry) => entry.epoch)));
  return html`<ul class="epochs" aria-label="Leader epochs">${[...epochs].sort((a, b) => a - b).map((epoch) => html`<li key=${epoch}><i class=${epochClass(epoch)}></i>epoch ${epoch}</li>`)}</ul>`;
}
