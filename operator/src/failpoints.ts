/**
 * Failpoints: named places around every ledger write and every outside call at which a test can kill, pause or cut.
 * Inert unless `PAWL_FAILPOINT=name:occurrence:action` is set: one comparison with a constant per place.
 *
 * Actions: `kill` (SIGKILL to this process), `stop` (SIGSTOP to this process), `swallow` (only meaningful after a
 * ledger commit: the commit stands, the caller is told that the connection was lost).
 */
export type FailpointAction = "kill" | "stop" | "swallow";
type Armed = { name: string; occurrence: number; action: FailpointAction };

let armed: Armed | undefined;
let record: ((name: string) => void) | undefined;
const seen = new Map<string, number>();

/** Arms one failpoint from its text form; called by the composition root with the value from the configuration. */
export function armFailpoint(text: string): void {
  const match = /^(.+):(\d+):(kill|stop|swallow)$/.exec(text);
  if (match === null) throw new Error(`PAWL_FAILPOINT must read name:occurrence:kill|stop|swallow, got "${text}"`);
  seen.clear();
  armed = { name: match[1] ?? "", occurrence: Number(match[2]), action: match[3] as FailpointAction };
}

/** Back to inert, for tests that arm one place after another in the same process. */
export function disarmFailpoint(): void {
  armed = undefined;
  seen.clear();
}

/** Tells a listener of every place that is passed; a fault-free run collects the sweep's list this way. */
export function recordFailpoints(listener: ((name: string) => void) | undefined): void {
  record = listener;
}

/** Passes the place `name`. Returns true when the caller must behave as if its connection had just been lost. */
export function failpoint(name: string): boolean {
  if (armed === undefined && record === undefined) return false;
  record?.(name);
  if (armed?.name !== name) return false;
  const occurrence = (seen.get(name) ?? 0) + 1;
  seen.set(name, occurrence);
  if (occurrence !== armed.occurrence) return false;
  if (armed.action === "swallow") return true;
  process.kill(process.pid, armed.action === "kill" ? "SIGKILL" : "SIGSTOP");
  return false;
}
