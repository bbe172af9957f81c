/** Which turn a person means: the name of a Run object in a namespace, or the id of a turn. */
import type { Runner } from "#ledger/database.ts";
import { findRunByName } from "#ledger/mirrors.ts";
import { PawlError } from "#rules/errors.ts";

const UUID = /^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$/i;

export function runUnknown(namespace: string, name: string): PawlError {
  const what = UUID.test(name) ? `no turn ${name}` : `no Run ${namespace}/${name}; -n names another namespace`;
  return new PawlError("terminal", "RunUnknown", `the ledger knows ${what}`);
}

const STANDS: Readonly<Record<string, string>> = {
  withdrawn: "was taken back before any turn read it",
  observed: "was not said to the agent",
  undecided: "has no turn yet: it is being found out what it means to the one at work",
};

/**
 * An id is taken as it is: whether there is such a turn is seen when it is read. `met`: of a message that is in no turn,
 * the one that it met will do.
 */
export async function runIdOf(db: Runner, namespace: string, name: string, met = false): Promise<string> {
  if (UUID.test(name)) return name;
  const found = await findRunByName(db, namespace, name);
  if (found === null) throw runUnknown(namespace, name);
  const id = found.runId ?? (met ? found.metRunId : null);
  if (id !== null) return id;
  const stands = STANDS[found.state] ?? `waits in its conversation's mailbox (${found.state}); it has no turn yet`;
  throw new PawlError("terminal", "NoTurnYet", `Run ${namespace}/${name} ${stands}`);
}
