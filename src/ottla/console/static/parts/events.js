// Entries of the event log as lines.

import { html } from "../lib.js";
import { PartitionLink, to } from "../router.js";
import { iso, time } from "../format.js";
import { now } from "../store.js";

const FIELDS = ["id", "at_ms", "kind", "severity", "node", "about", "partition", "cause", "text", "fields"];

// A point of the ring of the newest entries.
export const eventOf = (point) => Object.fromEntries(FIELDS.map((name, index) => [name, point[index]]));

export const KIND_WORDS = {
  election: "election", offline: "no leader", leader_start: "leader began", isr_shrink: "left the ISR", isr_expand: "joined the ISR",
  truncation: "truncation", fenced: "fenced", unfenced: "unfenced", log_dir_failure: "disk failed", log_dir_room: "disk room",
  directory_move: "directory move", controller_change: "controller", reassignment: "reassignment", setting_changed: "setting",
  quota_exceeded: "quota", transaction_aborted: "transaction aborted", rebalance: "rebalance", member_expired: "member expired",
  node_start: "node started", node_stop: "node stops", events_dropped: "entries missing", stray_log: "stray log",
};

export function Events({ list, empty = "Nothing happened.", label = "Events", onPick }) {
  if (!list.length) return html`<p class="empty">${empty}</p>`;
  const at = now();
  // Each node writes when it can: the order of the log is not that of the times. The newest comes first.
  const ordered = [...list].sort((a, b) => b.at_ms - a.at_ms);
  return html`<ol class="events" aria-label=${label}>
    ${ordered.map((event) => html`<li key=${event.id} class=${`event s${event.severity}`}>
      ${onPick ? html`<button class="quiet when" onClick=${() => onPick(event)} title="Show the cluster as it was then"><time datetime=${iso(event.at_ms)}>${time(event.at_ms, { millis: true, now: at })}</time></button>`
        : html`<time class="when" datetime=${iso(event.at_ms)}>${time(event.at_ms, { millis: true, now: at })}</time>`}
      <span class="kind">${KIND_WORDS[event.kind] ?? event.kind}</span>
      <span class="text">${linked(event)}</span>
    </li>`)}</ol>`;
}

// The sentence, with a link where it names what it is about.
function linked(event) {
  const { text, partition, about } = event;
  if (partition && text.startsWith(partition)) {
    return html`${partition.startsWith("__ottla") ? html`<span class="name">${partition}</span>` : html`<${PartitionLink} name=${partition} />`}${text.slice(partition.length)}`;
  }
  const [kind, ...rest] = about.split(":");
  const name = rest.join(":");
  const at = kind === "group" || kind === "broker" ? text.indexOf(name) : -1;
  if (at < 0 || !name) return text;
  return html`${text.slice(0, at)}<a href=${to.about(about)}>${name}</a>${text.slice(at + name.length)}`;
}
