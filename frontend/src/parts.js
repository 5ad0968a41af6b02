// Small parts that all views are made of.
import { html } from "./html.js";

export function Card({ title, note, children, class: kind = "", actions, id }) {
  const heading = id ?? `card-${String(title).toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;
  return html`<section class=${`card ${kind}`} aria-labelledby=${heading}>
    <header class="card-head">
      <h2 id=${heading}>${title}</h2>
      ${note && html`<p class="note">${note}</p>`} ${actions && html`<div class="card-actions">${actions}</div>`}
    </header>
    ${children}
  </section>`;
}

export function Stat({ label, value, note, kind = "", children }) {
  return html`<div class=${`stat ${kind}`}>
    <dt>${label}</dt>
    <dd>${value}${note && html`<small>${note}</small>`}</dd>
    ${children}
  </div>`;
}

export function Pill({ kind = "plain", children }) {
  return html`<span class=${`pill ${kind}`}>${children}</span>`;
}

export function Empty({ children }) {
  return html`<p class="empty">${children}</p>`;
}

// On a phone each row stands by itself, below its first value if it is headed by it, with headings beside values; the roles say that it is still a table.
export function Table({ label, columns, rows, empty = "Nothing yet.", onRow, headed = true }) {
  if (!rows.length) return html`<${Empty}>${empty}<//>`;
  return html`<div class="table-wrap" tabindex="0" role="group" aria-label=${label}>
    <table role="table" class=${headed ? "headed" : ""}>
      <thead role="rowgroup">
        <tr role="row">
          ${columns.map((column) => html`<th role="columnheader" scope="col" class=${column.number ? "number" : ""}>${column.title}</th>`)}
        </tr>
      </thead>
      <tbody role="rowgroup">
        ${rows.map(
          (row, i) => html`<tr key=${row.key ?? i} role="row" class=${onRow ? "pressable" : ""} onClick=${onRow && (() => onRow(row))}>
            ${columns.map((column) => html`<td role="cell" class=${column.number ? "number" : ""} data-label=${column.title}><span class="cell">${column.show(row)}</span></td>`)}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

export function Choice({ label, value, options, onChange, id }) {
  return html`<label class="choice"
    ><span>${label}</span>
    <select id=${id} value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${options.map(([key, text]) => html`<option value=${key} selected=${key === value}>${text}</option>`)}
    </select></label
  >`;
}

// A bar whose length stands for a part of the whole; the figure stands beside it for those who do not see it.
export function Bar({ part, kind = "" }) {
  const width = `${Math.max(0, Math.min(1, part || 0)) * 100}%`;
  return html`<span class=${`bar ${kind}`} aria-hidden="true"><span style=${{ width }}></span></span>`;
}

export function Fault({ error }) {
  return html`<div class="fault" role="alert">
    <strong>${error.message}</strong>
    ${error.place && html`<pre>${error.place}</pre>`} ${error.detail && html`<pre>${error.detail}</pre>`} ${error.hint && html`<p>${error.hint}</p>`}
  </div>`;
}
