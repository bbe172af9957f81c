/**
 * `pawl effects`: what is in flight and what nobody knows; `pawl effects resolve`: a person's word about one of the
 * latter. Only a person or the world says what became of a write, never the model.
 */
import type { Runner } from "#ledger/database.ts";
import { type Resolution, type Resolved, resolveEffect } from "#ledger/effects.ts";
import { type ListedEffect, listEffects } from "#ledger/journal.ts";
import { PawlError } from "#rules/errors.ts";
import { redactTokens } from "#rules/secrets.ts";
import { inline } from "./plain.ts";

/** Rows of one table: more than a person reads, less than would fill a terminal's memory. */
export const MAX_LISTED = 500;
/** Of a name and of a reason: both become part of what the model reads. */
const MAX_NAME = 100;
const MAX_REASON = 1_000;
const UUID = /^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$/i;
const USAGE = "pawl effects resolve ID --landed|--not-landed --by NAME [--reason TEXT]";

const seconds = (at: Date): string => `${at.toISOString().slice(0, 19)}Z`;
const HEAD = ["ID", "RUN", "KIND", "TARGET", "STATE", "ATTEMPTS", "SINCE", "APPROVED BY", "RESOLVED BY"] as const;

const cells = (effect: ListedEffect): string[] =>
  [
    effect.id,
    `${effect.object ?? "-"} (${effect.namespace}/${effect.agent})`,
    effect.kind,
    effect.target,
    effect.state,
    String(effect.attempt),
    seconds(effect.since),
    effect.approvedBy ?? "-",
    effect.resolvedBy ?? "-",
  ].map(inline);

/** Pure: what a person reads. */
export function renderEffects(
  effects: readonly ListedEffect[],
  { namespace, every }: { readonly namespace: string; readonly every: boolean },
): string {
  if (effects.length === 0) {
    return every
      ? `There is no effect in namespace ${inline(namespace)}; -n names another one.`
      : `No effect in namespace ${inline(namespace)} is in flight or unknown; -n names another one, --all shows the settled ones too.`;
  }
  const shown = effects.slice(0, MAX_LISTED);
  const table = [[...HEAD], ...shown.map(cells)];
  const widths = HEAD.map((_head, column) => Math.max(...table.map((row) => row[column]?.length ?? 0)));
  const lines = table.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join("  ")
      .trimEnd(),
  );
  if (effects.length > shown.length) lines.push(`Only the newest ${MAX_LISTED} are shown.`);
  if (shown.some(({ state }) => state === "unknown")) lines.push("", `Look at the target, then: ${USAGE}`);
  return lines.join("\n");
}

export async function effectsOf(db: Runner, which: { namespace: string; every: boolean }): Promise<string> {
  return renderEffects(await listEffects(db, { ...which, most: MAX_LISTED + 1 }), which);
}

const usage = (what: string): PawlError => new PawlError("terminal", "Usage", `${what}: ${USAGE}`);

/** Pure: a word is taken only when it is whole. */
export function parseResolution(
  id: string | undefined,
  flags: {
    readonly landed: boolean;
    readonly "not-landed": boolean;
    readonly by?: string | undefined;
    readonly reason?: string | undefined;
  },
): Resolution {
  if (id === undefined) throw usage("which effect?");
  if (!UUID.test(id)) throw usage("ID is the one that pawl effects shows");
  if (flags.landed && flags["not-landed"]) throw usage("it either landed or it did not");
  if (!flags.landed && !flags["not-landed"]) throw usage("say whether it landed");
  const by = flags.by?.trim() ?? "";
  const reason = flags.reason?.trim() ?? "";
  if (by === "") throw usage("say who says so");
  if (by.length > MAX_NAME) throw usage(`NAME has at most ${MAX_NAME} characters`);
  if (reason.length > MAX_REASON) throw usage(`TEXT has at most ${MAX_REASON} characters`);
  return { effectId: id, landed: flags.landed, by, reason: reason === "" ? null : redactTokens(reason) };
}

const WORDS = { confirmed: "it took place", failed: "it did not take place" } as const;
const whoSaid = (resolvedBy: string | null): string =>
  resolvedBy === null ? "its sender saw" : `${inline(resolvedBy)} said`;

/** Pure: the sentence for a person. Throws where the word was not taken. */
export function renderResolved(resolution: Resolution, resolved: Resolved): string {
  const { effectId, landed } = resolution;
  const refused = (reason: string, what: string) => new PawlError("terminal", reason, what);
  switch (resolved.kind) {
    case "resolved":
      return `effect ${effectId} on ${inline(resolved.target)} is ${landed ? "confirmed" : "failed"}: ${inline(resolution.by)} said that ${WORDS[landed ? "confirmed" : "failed"]}`;
    case "already":
      return `effect ${effectId} is ${resolved.state} already: ${whoSaid(resolved.resolvedBy)} that ${WORDS[resolved.state]}`;
    case "conflict":
      throw refused(
        "EffectSettled",
        `effect ${effectId} is ${resolved.state} and stays so: ${whoSaid(resolved.resolvedBy)} that ${WORDS[resolved.state]}`,
      );
    case "too_early":
      throw refused(
        "EffectInFlight",
        `effect ${effectId} is in flight and its sender may be alive: nobody decides about it before ${resolved.settleAt.toISOString()}`,
      );
    case "unknown_effect":
      throw refused("EffectMissing", `the ledger knows no effect ${effectId}; pawl effects --all lists them`);
  }
}

export async function resolveOf(db: Runner, resolution: Resolution): Promise<string> {
  return renderResolved(resolution, await resolveEffect(db, resolution));
}
