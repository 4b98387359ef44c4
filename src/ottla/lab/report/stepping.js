// Previous and next for the timelines of a scenario. Without this script all steps are shown, one below the other.
"use strict";
for (const scenario of document.querySelectorAll(".scenario")) {
  const tables = [...scenario.querySelectorAll(".timeline")].map((table) => [...table.tBodies[0].rows]);
  const count = Math.max(...tables.map((rows) => rows.length));
  let at = -1; // all of them
  const bar = document.createElement("div");
  bar.className = "steps";
  const button = (text, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", () => { act(); show(); });
    bar.append(made);
    return made;
  };
  const back = button("Previous", () => { at -= 1; });
  const next = button("Next", () => { at += 1; });
  const all = button("All steps", () => { at = -1; });
  const said = document.createElement("span");
  said.className = "soft";
  said.setAttribute("role", "status");
  bar.append(said);
  const show = () => {
    for (const rows of tables) {
      const shown = Math.min(at, rows.length - 1);
      rows.forEach((row, number) => { row.hidden = at >= 0 && number !== shown; });
    }
    if (at >= 0) scenario.querySelectorAll("details").forEach((each) => { each.open = true; });
    back.disabled = at <= 0;
    next.disabled = at >= count - 1;
    all.disabled = at < 0;
    said.textContent = at < 0 ? `${count} steps` : `step ${at + 1} of ${count}`;
  };
  show();
  scenario.querySelector(".legend").after(bar);
}
