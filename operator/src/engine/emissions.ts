/**
 * Saying something outside besides the answer, once per request (I8). The row comes first, then it is said, then the row
 * tells what became of it. Whoever dies in between leaves a row that nobody says again: a missing notice is better than
 * a second one, and the Run's status says the same.
 */
import { type EmissionKey, reserveEmission, type Reserved, settleEmission } from "#ledger/emissions.ts";
import type { EngineDeps } from "./deps.ts";
import type { Outbound, Posted } from "./ports.ts";

/** For connectors whose rows people read themselves (kubectl): being there is being said. */
export const asRows: Outbound = {
  post: () => Promise.resolve({ kind: "landed", receipt: { delivered: "ledger" } }),
};

type Deps = Pick<EngineDeps, "db" | "outbound" | "settings" | "log" | "newId">;

/** Whose word it is: a run's, and where that answers. */
export type Speaker = {
  readonly runId: string;
  readonly requestId: string;
  readonly conversationId: string;
  readonly connector: string;
  readonly conversationKey: string;
};

export const speakerOf = ({ run }: { readonly run: { readonly id: string } & Omit<Speaker, "runId"> }): Speaker => ({
  runId: run.id,
  requestId: run.requestId,
  conversationId: run.conversationId,
  connector: run.connector,
  conversationKey: run.conversationKey,
});

export type Saying = Pick<EmissionKey, "kind" | "sequence"> & { readonly text: string };

/** How long a reserved one may be on its way. */
export const postMs = (deps: Pick<EngineDeps, "settings">): number =>
  deps.settings.sendMs + deps.settings.settleSlackMs;

/** Says what was reserved under this nonce, and records what became of it. Never throws: it holds up no turn. */
export async function post(deps: Deps, speaker: Speaker, saying: Saying, nonce: string): Promise<Posted["kind"]> {
  const { requestId, conversationId, connector, conversationKey } = speaker;
  const { kind, sequence, text } = saying;
  const key = `${requestId}/${kind}/${sequence}`;
  const conversation = { id: conversationId, connector, key: conversationKey };
  const signal = AbortSignal.timeout(deps.settings.sendMs);
  let posted: Posted;
  try {
    const over = new Promise<Posted>((resolve) => {
      signal.addEventListener("abort", () => resolve({ kind: "unknown", why: "no answer in time" }), { once: true });
    });
    const said = deps.outbound.post({ conversation, request: requestId, kind, sequence, text, key }, signal);
    posted = await Promise.race([said, over]);
  } catch (error) {
    posted = { kind: "unknown", why: (error as Error).message };
  }
  const receipt = posted.kind === "landed" ? (posted.receipt ?? {}) : { why: posted.why };
  try {
    await settleEmission(deps.db, { requestId, kind, sequence, nonce, state: posted.kind, receipt });
  } catch (error) {
    deps.log.warn({ run: speaker.runId, key, error: (error as Error).message }, "what became of a notice is not known");
  }
  if (posted.kind !== "landed") deps.log.warn({ run: speaker.runId, key, why: posted.why }, "a notice did not land");
  return posted.kind;
}

/**
 * Says it unless this request has said it, or perhaps said it, before. `token`: of the lease under which it is said;
 * null: by somebody who holds none. `sequence` names what is said among those of its kind, the same for whoever tries.
 */
export async function emit(
  deps: Deps,
  speaker: Speaker,
  saying: Saying,
  token: number | null = null,
): Promise<Posted["kind"] | Exclude<Reserved, "reserved" | "already">> {
  const nonce = deps.newId();
  const { runId, requestId } = speaker;
  const reserved = await reserveEmission(deps.db, {
    ...saying,
    runId,
    requestId,
    token,
    nonce,
    postMs: postMs(deps),
  });
  return reserved === "reserved" || reserved === "already" ? post(deps, speaker, saying, nonce) : reserved;
}

/** A sentence for the people of the conversation about a message: its `seq` says which, so it is told once. */
export const notice = (deps: Deps, speaker: Speaker, seq: number, text: string): ReturnType<typeof emit> =>
  emit(deps, speaker, { kind: "notice", sequence: seq, text });
