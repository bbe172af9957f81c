/**
 * When an absence that nobody saw happen is believed: never about many objects at once, and never about objects older
 * than their kind, because an API server that lost its data, or a kind made anew, looks just like that.
 */
import { CRDS } from "#kube/resources.ts";
import type { Context } from "./context.ts";

/** More than this many and more than this share of what is looked for: not believed. */
export const MAX_MISSING = 10;
export const MAX_MISSING_SHARE = 0.2;

/** Pure: whether so many absences can be true. */
export const isCredible = (missing: number, sought: number): boolean =>
  missing <= MAX_MISSING || missing <= sought * MAX_MISSING_SHARE;

/** When the kind was made: objects from before went with the kind that was here then. Null: it is not here. */
export async function kindSince(context: Context, crd: string, signal: AbortSignal): Promise<Date | null> {
  const got = await context.kube.get(CRDS, { name: crd }, { signal });
  return got.found ? new Date(got.object.metadata.creationTimestamp ?? 0) : null;
}
