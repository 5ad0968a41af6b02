import { count } from "../format.js";
import { html } from "../html.js";
import { Card, Pill, Table } from "../parts.js";
import { set } from "../store.js";

export function Dead({ job, settings }) {
  const { rows, samples } = job.dead_letters;
  const wanted = settings.get("stream");
  const shown = wanted ? samples.filter((sample) => sample.stream === wanted) : samples;
  return html`
    <${Card} title="Dead letters" note="Rows that came too late or cannot be used. None is dropped silently.">
      <${Table}
        label="Dead letters by stream"
        empty="No stream is known yet."
        rows=${job.streams}
        columns=${[
          {
            title: "Stream",
            show: (s) =>
              html`<button class="link" aria-pressed=${wanted === s.name} onClick=${() => set({ stream: wanted === s.name ? null : s.name })}>
                ${s.name}
              </button>`,
          },
          { title: "Rows", number: true, show: (s) => count(s.rows) },
          { title: "Late", number: true, show: (s) => count(s.late) },
          { title: "Unusable", number: true, show: (s) => count(s.unusable) },
        ]}
      />
    <//>
    <${Card} title="Samples" note=${`The newest ${shown.length} of ${count(rows)}${wanted ? `, of ${wanted} only` : ""}.`}>
      <${Table}
        label="Samples of dead letters"
        empty="No row had to be set aside."
        rows=${shown}
        columns=${[
          { title: "Batch", number: true, show: (s) => s.batch_id },
          { title: "Stream", show: (s) => s.stream },
          { title: "Reason", show: (s) => html`<${Pill} kind="bad long">${s.reason}<//>` },
          { title: "Row", show: (s) => html`<code class="row">${s.row}</code>` },
        ]}
      />
    <//>
  `;
}
