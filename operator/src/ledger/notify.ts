/**
 * Listening for `pawl_due`: a hint that a run became due. The connection may go silent without anybody noticing, so
 * nothing depends on it; it is made anew when it breaks.
 */
import pg from "pg";
import { CONNECT_TIMEOUT_MS } from "./database.ts";

/** Between two tries to listen again. */
export const RECONNECT_MS = 1_000;

/** Calls `wake` on every notification, and once after each (re)connect, until the signal aborts. */
export function listenForDue(url: string, wake: () => void, signal: AbortSignal): void {
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
      listenForDue(url, wake, signal);
    }, RECONNECT_MS);
    const cancel = () => clearTimeout(timer);
    signal.addEventListener("abort", cancel, { once: true });
  };
  signal.addEventListener("abort", end, { once: true });
  client.on("error", end);
  client.on("end", end);
  client.on("notification", wake);
  client
    .connect()
    .then(() => client.query("listen pawl_due").then(wake), end)
    .catch(end);
}
