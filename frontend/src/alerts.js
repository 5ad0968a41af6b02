// What somebody should look at, above every view: an error that ended the job, queries that stand still, rows that are lost to results.
import { count, instant, moment, plural } from "./format.js";
import { html } from "./html.js";
import { address } from "./store.js";

const LATELY = 20; // batches
const SILENT = 5; // batches without a row after which it is worth a word that somebody waits

export function alertsOf(job, series) {
  return [...stopped(job), ...quarantined(job), ...waiting(job), ...owed(job, series), ...lost(job, series)];
}

function stopped(job) {
  if (!job.stopped || job.stopped.reason === "asked") return [];
  const { reason, at, message, detail, hint, batch } = job.stopped;
  const what = reason === "error" ? "An error has stopped the job" : "The job was killed";
  const since = job.phase === "failed" ? "" : ", and no batch is done since";
  const when = [moment(at), batch !== null && `after batch ${count(batch)}`].filter(Boolean).join(", ");
  return [{ key: "stopped", kind: "bad", text: html`<strong>${what}</strong>${since} (${when}): ${message}`, detail, hint }];
}

function quarantined(job) {
  return job.queries
    .filter((query) => query.quarantine)
    .map((query) => ({
      key: `quarantine ${query.name}`,
      kind: "bad",
      text: html`<strong>${query.name}</strong> takes in nothing since batch ${query.quarantine.batch}: ${query.quarantine.reason}`,
      link: address("actions", query.name, { do: "resume" }),
    }));
}

function waiting(job) {
  if (job.phase !== "running") return [];
  return job.queries
    .filter((query) => query.waits && query.waits.batches >= SILENT)
    .map((query) => ({
      key: `waits ${query.name}`,
      kind: "old",
      text: html`<strong>${query.name}</strong> waits for stream ${query.waits.stream}, silent for ${plural(query.waits.batches, "batch", "batches")}`,
      link: address("waits", query.name),
    }));
}

// What the newest batch of a running job released is on its way to sinks.
function owed(job, series) {
  const before = series.batch.indexOf(job.batch) - 1;
  const due = (query) => (job.phase === "running" ? series.released?.[query.name]?.[before] ?? -Infinity : query.released);
  return job.queries.flatMap((query) =>
    (query.sinks ?? [])
      .filter((sink) => sink.owed && (sink.until === null || sink.until < due(query)))
      .map((sink) => ({
        key: `owed ${query.name} ${sink.name}`,
        kind: "old",
        text: html`Sink <strong>${sink.name}</strong> of ${query.name} is owed ${plural(sink.owed, "result")}${sink.until === null ? ", all there are" : `, those that start at ${instant(sink.until, query.time)} or later`}`,
        link: address("results", query.name),
      })),
  );
}

function lost(job, series) {
  const until = series.batch.indexOf(job.batch);
  if (until < 0) return [];
  const from = Math.max(0, until + 1 - LATELY);
  const lately = (kind, stream) =>
    (series[kind]?.[stream] ?? []).slice(from, until + 1).reduce((sum, value) => sum + (value ?? 0), 0);
  return job.streams.flatMap((stream) => {
    const [late, unusable] = [lately("late", stream.name), lately("unusable", stream.name)];
    if (!late && !unusable) return [];
    const what = [late && `${count(late)} late`, unusable && `${count(unusable)} unusable`].filter(Boolean).join(" and ");
    const rows = late + unusable === 1 ? "row" : "rows";
    return [
      {
        key: `lost ${stream.name}`,
        kind: "old",
        text: html`<strong>${stream.name}</strong> had ${what} ${rows} in the last ${plural(until + 1 - from, "batch", "batches")}`,
        link: address("dead", "", { stream: stream.name }),
      },
    ];
  });
}

export function Alerts({ job, series }) {
  const found = alertsOf(job, series);
  if (!found.length) return null;
  return html`<ul class="alerts" aria-label="Alerts">
    ${found.map(
      (alert) => html`<li key=${alert.key} class=${alert.kind}>
        ${alert.link ? html`<a href=${alert.link}>${alert.text}</a>` : html`<span>${alert.text}</span>`}
        ${alert.detail && html`<pre>${alert.detail}</pre>`} ${alert.hint && html`<p>${alert.hint}</p>`}
      </li>`,
    )}
  </ul>`;
}
