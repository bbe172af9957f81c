/**
 * Runs that went while their message was open. A watched DELETE of the recorded object is believed after one GET by
 * name; an absence that nobody saw happen is left to the sweep. Who deleted is unknown: the Run's own actor is taken to
 * have withdrawn it.
 */
import { refOf, RUNS } from "#kube/resources.ts";
import { listLiveMessagesOfObject, type LiveMessage } from "#ledger/mirrors.ts";
import { requestStop } from "#ledger/turns.ts";
import type { Context } from "../context.ts";

/** One GET by name. `absent`: no such object, or another one of that name. `doubt`: the answer is about something else. */
export async function lookFor(
  context: Context,
  key: string,
  uid: string,
  signal?: AbortSignal,
): Promise<"present" | "absent" | "doubt"> {
  const got = await context.kube.get(RUNS, refOf(key), signal === undefined ? {} : { signal });
  if (got.found) return got.object.metadata.uid === uid ? "present" : "absent";
  return got.missing === "object" ? "absent" : "doubt";
}

export async function withdraw(context: Context, message: LiveMessage, uid: string): Promise<void> {
  const stopped = await requestStop(context.db, {
    eventId: message.eventId,
    extId: `delete:${uid}`,
    actor: message.actor,
    why: "its Run was deleted",
  });
  context.log.info({ run: `${message.namespace}/${message.object?.name ?? ""}`, uid, stopped }, "run deleted");
}

const MAX_REMEMBERED = 10_000;

export class Departures {
  readonly #context: Context;
  /** UIDs whose DELETE was watched, by key; kept until the ledger has been told. */
  readonly #gone = new Map<string, Set<string>>();

  constructor(context: Context) {
    this.#context = context;
  }

  watched(key: string, uid: string): void {
    const uids = this.#gone.get(key) ?? new Set<string>();
    this.#gone.set(key, uids.add(uid));
    // A standby settles none of them; what falls out here is the sweep's.
    for (const [oldest] of this.#gone) {
      if (this.#gone.size <= MAX_REMEMBERED) break;
      this.#gone.delete(oldest);
    }
  }

  names(): Iterable<string> {
    return [...this.#gone.keys()];
  }

  /** Tells the ledger about the departures of this name. Throws (and is called again) while something is away. */
  async settle(key: string, signal?: AbortSignal): Promise<void> {
    const uids = this.#gone.get(key);
    for (const uid of uids ?? []) {
      const messages = (await listLiveMessagesOfObject(this.#context.db, uid)).filter(({ stopping }) => !stopping);
      if (messages.length > 0 && (await lookFor(this.#context, key, uid, signal)) !== "absent") {
        // Still there, or nobody can tell: the sweep looks after it.
        uids?.delete(uid);
        continue;
      }
      for (const message of messages) await withdraw(this.#context, message, uid);
      uids?.delete(uid);
    }
    if (uids?.size === 0) this.#gone.delete(key);
  }
}
