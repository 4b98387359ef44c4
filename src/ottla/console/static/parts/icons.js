// Small line drawings for the rail and the buttons. They say nothing that words do not say beside them.

import { html } from "../lib.js";

const PATHS = {
  overview: "M3 3h8v8H3zM13 3h8v5h-8zM13 10h8v11h-8zM3 13h8v8H3z",
  timeline: "M3 12h18M6 8v8M11 5v14M17 9v6",
  topics: "M4 5h16M4 10h16M4 15h10M4 20h13",
  messages: "M4 5h16v11H9l-5 4z",
  groups: "M8 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2 20c0-4 3-6 6-6s6 2 6 6M16 11a3 3 0 1 0 0-6M16 14c3 0 6 2 6 6",
  moves: "M4 8h14l-4-4M20 16H6l4 4",
  transactions: "M7 4v13a3 3 0 0 0 3 3h7M7 9h6a4 4 0 0 0 4-4V4M14 17l3 3-3 3",
  security: "M12 3l8 3v6c0 5-3.5 8-8 9-4.5-1-8-4-8-9V6zM9 12l2 2 4-4",
  lab: "M9 3h6M10 3v6l-6 10a1.5 1.5 0 0 0 1.3 2.2h13.4A1.5 1.5 0 0 0 20 19L14 9V3M7.5 15h9",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM20 20l-4-4",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.5M17.5 17.5L19 19M19 5l-1.5 1.5M6.5 17.5L5 19",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z",
  auto: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  close: "M5 5l14 14M19 5L5 19",
  left: "M15 5l-7 7 7 7",
  right: "M9 5l7 7-7 7",
  first: "M17 5l-7 7 7 7M6 5v14",
  last: "M7 5l7 7-7 7M18 5v14",
  play: "M7 4l13 8-13 8z",
  pause: "M7 4v16M17 4v16",
  out: "M9 4H5v16h4M14 8l4 4-4 4M18 12H9",
};

export const Icon = ({ name }) => html`
  <svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round"
    stroke-linejoin="round" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
