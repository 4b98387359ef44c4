// Replicas as logs side by side: what each has, in the colours of the leader epochs that wrote it, how far it is committed.
//
// The same drawing shows a live partition, a scenario of the lab and a trace of the simulator.
// A replica: { broker, role: leader | follower | down, epoch, start, end, hw, spans: [{ epoch, from, to }],
//              entries: [{ offset, epoch, value, lost }], note, changed, stale }

import { html } from "../lib.js";
import { count } from "../format.js";

const COLOURS = 6;
const LABEL_PART = 0.035; // of the width: a span that is narrower has no label

export const epochClass = (epoch) => `e${((epoch % COLOURS) + COLOURS) % COLOURS}`;

export function Logs({ replicas, from, to, losses = [], label }) {
  const whole = Math.max(1, to - from);
  const at = (offset) => `${(Math.min(Math.max((offset - from) / whole, 0), 1) * 100).toFixed(3)}%`;
  return html`<div class="logs" role="list" aria-label=${label ?? "Replicas"}>
    ${replicas.map((each) => html`<${Log} key=${each.broker} replica=${each} from=${from} to=${to} at=${at} whole=${whole} />`)}
    ${losses.length ? html`<div class="log" role="listitem"><div class="who"><b class="bad">lost</b><span class="role">the leader does not have them</span></div>
      <div class="lane"><div class="track">${losses.map((each) => html`<i key=${each.key} class="lostspan" title=${each.text}
        style=${{ left: at(each.from), width: `calc(${at(each.to)} - ${at(each.from)})` }}></i>`)}</div>
        <span class="visually-hidden">${losses.map((each) => each.text).join("; ")}</span></div></div>` : null}
  </div>
  <div class="ruler" aria-hidden="true"><span>${count(from)}</span><span>${count(Math.round((from + to) / 2))}</span><span>${count(to)}</span></div>`;
}

function Log({ replica, from, to, at, whole }) {
  const { broker, role, start, end, hw, spans = [], entries, changed, stale, note } = replica;
  const words = replica.words ?? (role === "down" ? "is down" : `${role}, epoch ${replica.epoch}`);
  const spoken = end === null || end === undefined ? `broker ${broker} ${words}`
    : `broker ${broker}, ${words}, from offset ${start} to ${end}, high watermark ${hw ?? "unknown"}`;
  return html`<div class=${`log ${changed ? "changed" : ""} ${stale ? "stale" : ""}`} role="listitem">
    <div class="who"><b>broker ${broker}${changed ? html`<span class="visually-hidden">, changed</span>` : null}</b>
      <span class=${`role ${role}`}>${words}</span>
      ${note ? html`<span class="fetch">${note}</span>` : null}</div>
    <div class="lane"><span class="visually-hidden">${spoken}</span>
      <div class="track" aria-hidden="true">
        ${entries ? entries.filter((each) => each.offset >= from && each.offset < to).map((each) => html`<i key=${each.offset} class=${`cell ${each.lost ? "lost" : epochClass(each.epoch)}`}
            title=${`offset ${each.offset}, epoch ${each.epoch}${each.lost ? ", lost though it was acknowledged" : ""}`}
            style=${{ left: `calc(${at(each.offset)} + 2px)`, width: `calc(${100 / whole}% - 4px)` }}>${each.value}</i>`)
          : spans.filter((each) => each.to > from && each.from < to).map((each) => {
            const wide = (Math.min(each.to, to) - Math.max(each.from, from)) / whole > LABEL_PART;
            return html`<i key=${each.epoch} class=${`span ${epochClass(each.epoch)}`} style=${{ left: at(each.from), width: `calc(${at(each.to)} - ${at(each.from)})` }}
              title=${`epoch ${each.epoch}, from offset ${each.from}`}>${wide ? `e${each.epoch}` : ""}</i>`;
          })}
      </div>
      ${hw === null || hw === undefined || hw < from ? null : html`<${Mark} kind="hw" text=${`HW ${count(hw)}`} at=${at(hw)} part=${(hw - from) / whole} />`}
      ${end === null || end === undefined || end < from ? null : html`<${Mark} kind="leo" text=${`LEO ${count(end)}`} at=${at(end)} part=${(end - from) / whole} />`}
    </div></div>`;
}

const Mark = ({ kind, text, at, part }) => html`<span aria-hidden="true" class=${`mark ${kind} ${part > 0.93 ? "right" : part < 0.07 ? "left" : ""}`} style=${{ left: at }}><span>${text}</span></span>`;

// The whole log as one thin line, with the part that is drawn above.
export function WholeLog({ start, end, epochs, from, to }) {
  const whole = Math.max(1, end - start);
  const at = (offset) => `${(Math.min(Math.max((offset - start) / whole, 0), 1) * 100).toFixed(2)}%`;
  return html`<div class="whole" aria-hidden="true"><div class="bar">
    ${spansOf(epochs, start, end).map((each) => html`<i key=${each.epoch} class=${`span ${epochClass(each.epoch)}`}
      style=${{ position: "absolute", top: 0, bottom: 0, left: at(each.from), width: `calc(${at(each.to)} - ${at(each.from)})` }}></i>`)}
    <i class="window" style=${{ left: at(from), width: `calc(${at(to)} - ${at(from)})` }}></i></div></div>`;
}

// What each epoch wrote, of a log from `start` to `end`. `epochs`: [epoch, first offset], rising.
export function spansOf(epochs, start, end) {
  return epochs.map(([epoch, first], index) => ({
    epoch,
    from: Math.max(index ? first : Math.min(first, start), start),
    to: Math.min(epochs[index + 1]?.[1] ?? Infinity, end),
  })).filter((each) => each.to > each.from);
}
