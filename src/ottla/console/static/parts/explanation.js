// An explanation, as `ottla explain` gives it, with links and commands to copy.

import { html } from "../lib.js";
import { duration, iso, time } from "../format.js";
import { ask } from "../store.js";
import { Command, Trouble, useAsked } from "./page.js";

export function Explained({ about, again }) {
  const { value, error, loading } = useAsked((signal) => ask("explain", { about }, { signal }), [about, again]);
  return html`<section class="box explanation" aria-label="Explanation" aria-busy=${loading}>
    ${error ? html`<${Trouble} error=${error} />` : null}
    ${value ? value.map((each) => html`<${Explanation} key=${each.subject} told=${each} />`) : error ? null : html`<p class="muted" role="status">Asking the cluster why…</p>`}
  </section>`;
}

function Explanation({ told }) {
  const same = told.producers.join() === told.consumers.join();
  return html`
    <p class="headline">${told.headline}</p>
    ${told.cause.length ? html`<div><h3>Why</h3>${told.cause.map((line) => html`<p key=${line}>${line}</p>`)}</div>` : null}
    <div><h3>What it means now</h3>
      ${same ? told.producers.map((line) => html`<p key=${line}>Producers and consumers: ${line}</p>`)
        : html`${told.producers.map((line) => html`<p key=${line}>Producers: ${line}</p>`)}${told.consumers.map((line) => html`<p key=${line}>Consumers: ${line}</p>`)}`}</div>
    <div><h3>What to do</h3>
      ${told.steps.length ? html`<ol class="steps">${told.steps.map((step) => html`<li key=${step.text + step.command}>${step.text}
        ${step.command ? html`<${Command} text=${step.command} />` : null}</li>`)}</ol>` : html`<p>Nothing.</p>`}</div>
    ${told.timeline.length ? html`<div><h3>What happened</h3>${told.earlier ? html`<p class="muted small">${told.earlier}</p>` : null}
      <ol class="story">${told.timeline.map((line, index) => html`<li key=${index}>
        <time datetime=${iso(line.at_ms)} title=${index ? `${duration(line.at_ms - told.timeline[index - 1].at_ms)} later` : ""}>${time(line.at_ms, { millis: true, now: told.now_ms })}</time><span>${line.text}</span></li>`)}</ol></div>` : null}
    ${told.unknown.length ? html`<details><summary class="muted small">What is not known</summary>${told.unknown.map((line) => html`<p class="small muted" key=${line}>${line}</p>`)}</details>` : null}`;
}
