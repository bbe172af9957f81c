/** The world fake's status page: what it accepted, newest last, for a person's eyes. */
import type { LogEntry } from "./request-log.ts";
import type { WriteRecord } from "./world-store.ts";

const escape = (value: unknown): string =>
  (typeof value === "string" ? value : value == null ? "" : JSON.stringify(value)).replaceAll(
    /[&<>"']/g,
    (character) => `&#${character.charCodeAt(0)};`,
  );

const row = (cell: string, values: readonly unknown[]): string =>
  `<tr>${values.map((value) => `<${cell}>${escape(value)}</${cell}>`).join("")}</tr>`;

export function worldPage(entries: readonly LogEntry[], writes: readonly WriteRecord[]): string {
  const columns = ["seq", "at", "method", "path", "key", "outcome", "writeId", "mode"] as const;
  const requests = entries.map((entry) =>
    row(
      "td",
      columns.map((column) => entry[column]),
    ),
  );
  const records = writes.map((entry) => row("td", [entry.id, entry.path, entry.key, JSON.stringify(entry.body)]));
  return `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>The world (a stand-in)</title>
<style>body{font:15px system-ui;margin:2rem}table{border-collapse:collapse;margin-bottom:2rem}
th,td{text-align:left;padding:.3rem .8rem;border-bottom:1px solid #ccc;font-variant-numeric:tabular-nums}</style>
<h1>The world</h1><p>A stand-in for a service on the internet. ${entries.length} requests accepted, ${writes.length} writes.</p>
<h2>Requests</h2><table>${row("th", columns)}${requests.join("")}</table>
<h2>Records</h2><table>${row("th", ["id", "path", "key", "body"])}${records.join("")}</table></html>
`;
}
