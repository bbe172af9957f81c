// The recount: from the witness's own log and nothing else. It knows shops and orders, and no workers, ledgers or kills.
import type { LogEntry } from "@pawl/fakes";
import { type Shop, SHOPS } from "./shops.ts";

export type Count = {
  /** Different orders that reached the shop. */
  readonly orders: number;
  /** Without those that only looked. */
  readonly requests: number;
  /** Orders that the shop carried out, copies included. */
  readonly writes: number;
  /** Writes beyond the first of the same order. */
  readonly doubled: number;
};

type Seen = { readonly path?: unknown; readonly outcome?: unknown; readonly bodyPreview?: unknown };

function orderOf(entry: Seen): string {
  const body = typeof entry.bodyPreview === "string" ? entry.bodyPreview : "";
  try {
    return String((JSON.parse(body) as { order?: unknown }).order);
  } catch {
    return body;
  }
}

export function recount(log: readonly (LogEntry | Seen)[], shop: Shop): Count {
  const entries = (log as readonly Seen[]).filter(({ path, outcome }) => path === SHOPS[shop] && outcome !== "read");
  const writes = entries.filter((entry) => entry.outcome === "write");
  return {
    orders: new Set(entries.map(orderOf)).size,
    requests: entries.length,
    writes: writes.length,
    doubled: writes.length - new Set(writes.map(orderOf)).size,
  };
}

/** The log file, one JSON object per line, as the witness wrote it; its first line says that it started. */
export function parseLog(text: string): LogEntry[] {
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as LogEntry)
    .filter(({ seq }) => seq > 0);
}
