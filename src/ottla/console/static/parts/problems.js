// What is wrong now, in words, with the way to why and to what it concerns.

import { html, useState } from "../lib.js";
import { plural, time } from "../format.js";
import { PartitionLink, to } from "../router.js";
import { asOf, connection } from "../store.js";
import { Since } from "./page.js";

const WORDS = { 3: "wrong", 2: "degraded", 1: "notice" };
const SHOWN = 8;

export function Problems({ list, past = false }) {
  return html`<ul class="problems" aria-label="What is wrong">
    ${list.map((each) => html`<${Problem} key=${each.id} problem=${each} past=${past} />`)}</ul>`;
}

function Problem({ problem, past }) {
  const [all, setAll] = useState(false);
  const { severity, text, why, about, places, total } = problem;
  const shown = all ? places : places.slice(0, SHOWN);
  const explained = about !== "cluster" && !about.startsWith("transaction");
  return html`<li class=${`problem s${severity}`}>
    <span class="visually-hidden">${WORDS[severity]}: </span>
    <div class="what"><p class="text">${text}</p>
      ${why ? html`<p class="why">${why}</p>` : null}
      ${places.length > 1 || (places.length && !text.includes(places[0])) ? html`<p class="places">${shown.map((name) => html`<${PartitionLink} key=${name} name=${name} /> `)}
        ${total > shown.length ? (all ? html`<span class="muted">and ${total - shown.length} more</span>`
          : html`<button class="quiet small" onClick=${() => setAll(true)}>and ${total - shown.length} more</button>`) : null}</p>` : null}
    </div>
    <div class="when"><${Since} at=${problem.since_ms} />
      ${past ? null : html`<a class="button" href=${explained ? `${to.about(about)}?explain=1` : to.about(about)}>${explained ? "Why, and what to do" : "Show"}</a>`}</div>
  </li>`;
}

// The first line of the page: one sentence. Before the cluster has told what it is made of, nothing is said of it; while the
// console does not answer, it is said how it was.
export function Verdict({ problems, cluster, totals, brokers, quorum, past: then }) {
  const lost = !then && connection.value === "lost";
  const past = then || lost;
  const known = totals && (then || cluster?.answers !== null);
  const wrong = problems.filter((each) => each.severity === 3).length;
  const soft = problems.filter((each) => each.severity === 2).length;
  const up = brokers.filter((each) => each.standing === "up").length;
  const was = past ? "were" : "are";
  const sentence = !then && cluster?.answers === false ? `The cluster ${lost ? "did" : "does"} not answer.`
    : wrong ? `${wrong === 1 ? `One thing ${past ? "was" : "is"}` : `${wrong} things ${was}`} wrong${soft ? `, and there ${soft === 1 ? `${past ? "was" : "is"} one weakness` : `${was} ${soft} weaknesses`}` : ""}.`
    : soft ? (soft === 1 ? `It ${past ? "worked" : "works"}, with one weakness.` : `It ${past ? "worked" : "works"}, with ${soft} weaknesses.`)
    : known ? (past ? "All was well." : "All is well.") : "Looking…";
  const controller = quorum?.leader >= 0 ? `controller ${quorum.leader}` : "no active controller";
  return html`<div class="verdict"><span class=${`lamp ${lost || (!known && !problems.length) ? "off" : wrong ? "bad" : soft ? "warn" : "good"}`} aria-hidden="true"></span>
    <div><h1>${sentence}${lost && known ? html` <span class="muted">As of ${time(asOf())}: the console does not answer.</span>` : null}</h1>
    ${known ? html`<p class="muted">${up} of ${brokers.length} ${brokers.length === 1 ? "broker" : "brokers"} up, ${plural(totals.partitions, "partition")} in ${plural(totals.topics, "topic")}${totals.offline ? `, ${totals.offline} without a leader` : ""}${totals.under_replicated ? `, ${totals.under_replicated} with fewer replicas in sync` : ""}, ${controller}</p>` : null}</div></div>`;
}
