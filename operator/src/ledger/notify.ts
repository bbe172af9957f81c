/**
 * Listening for what the ledger tells: `pawl_due`, a run became due or a message waits for a decision; `pawl_signal`,
 * something was said to a run that somebody holds (its id). Hints only: the connection may go silent without anybody
 * noticing, so nothing depends on it; it is made anew when it breaks.
 */
import pg from "pg";
import { CONNECT_TIMEOUT_MS } from "./database.ts";

/** Between two tries to listen again. */
export const RECONNECT_MS = 1_000;

export type Heard = {
  readonly due: () => void;
  /** Null: after a (re)connect, when some may have been missed. */
  readonly signal: (runId: string | null) => void;
};

/** Calls back on every notification, and once after each (re)connect, until the signal aborts. */
export function listenToLedger(url: string, heard: Heard, signal: AbortSignal): void {
  if (signal.aborted) return;
  const client = new pg.Client({
    connectionString: url,
    application_name: "pawl-listen",
    keepAlive: true,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
  });
  let ended = false;
  const end = () => {
    if (ended) return;
    ended = true;
    signal.removeEventListener("abort", end);
    client.end().catch(() => {});
    if (signal.aborted) return;
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", cancel);
      listenToLedger(url, heard, signal);
    }, RECONNECT_MS);
    const cancel = () => clearTimeout(timer);
    signal.addEventListener("abort", cancel, { once: true });
  };
  signal.addEventListener("abort", end, { once: true });
  client.on("error", end);
  client.on("end", end);
  client.on("notification", ({ channel, payload }) => {
    if (channel === "pawl_signal") heard.signal(payload ?? null);
    else heard.due();
  });
  const listening = () => {
    heard.due();
    heard.signal(null);
  };
  client
    .connect()
    .then(() => client.query("listen pawl_due; listen pawl_signal").then(listening), end)
    .catch(end);
}
