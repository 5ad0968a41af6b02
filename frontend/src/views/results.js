import { useEffect, useState } from "preact/hooks";
import { instant, plural } from "../format.js";
import { html } from "../html.js";
import { Card, Empty, Fault, Table } from "../parts.js";
import { store } from "../store.js";

const NEVER = new Set(["valid_to"]); // what has no end is valid for ever

// The newest results of a query, asked for again with every batch.
function useResults(query, batch) {
  const [told, tell] = useState(null);
  useEffect(() => {
    let wanted = true;
    store.results(query).then(
      (results) => wanted && tell({ query, results }),
      (error) => wanted && tell({ query, error }),
    );
    return () => (wanted = false);
  }, [query, batch]);
  return told?.query === query ? told : null;
}

export function Results({ query, live, now }) {
  if (!query) return html`<${Empty}>The job has no queries.<//>`;
  return html`<${Newest} key=${query.name} query=${query} live=${live} batch=${live ? store.live?.batch : now} />`;
}

function Newest({ query, live, batch }) {
  const told = useResults(query.name, batch);
  const results = told?.results;
  const shown = results?.rows.length ?? 0;
  const complete = query.released === null ? "" : ` All that start before ${instant(query.released, query.time)} are there.`;
  return html`<${Card}
    title=${`Results of ${query.name}`}
    note=${results
      ? `The newest ${plural(shown, "row")} that ${shown === 1 ? "was" : "were"} released, newest first${live ? "" : ", as of now"}.${complete}`
      : "Reading…"}
  >
    ${told?.error && html`<${Fault} error=${told.error} />`}
    ${results &&
    html`<${Table}
      label=${`Newest results of ${query.name}`}
      empty="Nothing has been released yet."
      headed=${false}
      rows=${results.rows}
      columns=${results.columns.map((column, i) => ({
        title: column.name,
        number: column.number,
        show: (row) => (row[i] === null ? html`<span class="null">${NEVER.has(column.name) ? "∞" : "NULL"}</span>` : row[i]),
      }))}
    />`}
    <p class="note below">All of them: <code>midstream results ${store.live?.checkpoint ?? ""} ${query.name}</code></p>
  <//>`;
}
