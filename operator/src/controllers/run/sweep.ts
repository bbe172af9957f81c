/**
 * The look behind the watch: open messages whose Run is gone without anybody having seen it go. An absence is believed
 * only when two looks, some time apart, say so about an object whose namespace and kind are the ones its message came
 * from; and never about many at once, because an API server that lost its data looks just like that.
 */
import { listLiveAppliedKeys, type LiveMessage } from "#ledger/mirrors.ts";
import { isCredible, kindSince } from "../absence.ts";
import type { Context } from "../context.ts";
import { lookFor, withdraw } from "./departures.ts";

const RUN_CRD = "runs.pawl.dev";

async function missing(
  context: Context,
  messages: readonly LiveMessage[],
  signal: AbortSignal,
): Promise<LiveMessage[] | null> {
  const since = await kindSince(context, RUN_CRD, signal);
  if (since === null) return null;
  const found: LiveMessage[] = [];
  for (const message of messages) {
    if (message.object === null || message.receivedAt < since) continue;
    const { uid, name } = message.object;
    const namespace = await context.namespaces.uid(message.namespace, { fresh: true, signal });
    if (namespace !== message.namespaceUid) continue;
    const seen = await lookFor(context, `${message.namespace}/${name}`, uid, signal);
    if (seen === "doubt") return null;
    if (seen === "absent") found.push(message);
  }
  return found;
}

/** Asks only for what the copy lacks. Throws when something is away; the next sweep begins anew. */
export async function sweepRuns(context: Context, signal: AbortSignal): Promise<void> {
  const open = await listLiveAppliedKeys(context.db);
  const lacking = open.filter(({ namespace, object, stopping }) => {
    if (object === null || stopping) return false;
    return context.runs.get(`${namespace}/${object.name}`)?.metadata.uid !== object.uid;
  });
  const first = lacking.length === 0 ? [] : await missing(context, lacking, signal);
  if (first === null || first.length === 0) {
    context.metrics?.sweep("clean", 0);
    return;
  }
  if (!isCredible(first.length, open.length)) {
    context.metrics?.sweep("suspended", first.length);
    context.log.error(
      { missing: first.length, open: open.length },
      "too many Runs are gone at once to be believed; their turns go on: look whether the API server lost data, and delete or re-apply the Runs",
    );
    return;
  }
  await context.clock.sleep(context.timing.absenceMs, signal);
  if (signal.aborted) return;
  const second = (await missing(context, first, signal)) ?? [];
  for (const message of second) await withdraw(context, message, message.object?.uid ?? "");
  context.metrics?.sweep(second.length === 0 ? "clean" : "cancelled", second.length);
}
