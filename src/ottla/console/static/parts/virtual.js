// A table of thousands of rows of which only those that can be seen are in the document.

import { html, useLayoutEffect, useMemo, useRef, useState } from "../lib.js";

const ROW = 37;
const OVERSCAN = 8;

export function VirtualTable({ columns, rows, rowKey, initial, label, empty, height = "calc(100vh - 240px)" }) {
  const [[by, down], setBy] = useState(initial);
  const [top, setTop] = useState(0);
  const [seen, setSeen] = useState(600);
  const box = useRef(null);
  const column = columns.find((each) => each.name === by) ?? columns[0];
  const ordered = useMemo(() => {
    const value = column.value ?? ((row) => row[column.name]);
    return [...rows].sort((a, b) => compare(value(a), value(b)) * (down ? -1 : 1));
  }, [rows, by, down]);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => setSeen(box.current.clientHeight));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(top / ROW) - OVERSCAN);
  const last = Math.min(ordered.length, Math.ceil((top + seen) / ROW) + OVERSCAN);
  const template = { gridTemplateColumns: columns.map((each) => each.width ?? "1fr").join(" ") };
  return html`<div class="vtable" role="table" aria-label=${label} aria-rowcount=${ordered.length + 1} ref=${box} style=${{ maxHeight: height }} tabindex="0" onScroll=${(e) => setTop(e.target.scrollTop)}>
    <div class="vhead" role="row" style=${template}>${columns.map((each) => html`<span key=${each.name} role="columnheader" class=${each.num ? "num" : ""}
      aria-sort=${each.name === by ? (down ? "descending" : "ascending") : undefined}>${each.sort === false ? html`${each.head}<span class="visually-hidden">${each.head ? "" : each.name}</span>`
        : html`<button onClick=${() => setBy([each.name, each.name === by ? !down : Boolean(each.num)])}>${each.head}</button>`}</span>`)}</div>
    <div role="rowgroup" class="vbody" style=${{ height: `${ordered.length * ROW}px` }}>
      ${ordered.slice(first, last).map((row, at) => html`<div key=${rowKey(row)} class="vrow" role="row" aria-rowindex=${first + at + 2} style=${{ ...template, transform: `translateY(${(first + at) * ROW}px)` }}>
        ${columns.map((each) => html`<span key=${each.name} role="cell" class=${each.num ? "num" : ""}>${each.show(row)}</span>`)}</div>`)}
    </div>
    ${ordered.length ? null : html`<p class="empty">${empty}</p>`}</div>`;
}

// Numbers by size, names as people count them; nothing comes first.
export function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
}
