/** `pawl memories AGENT`: what an agent remembers and who sees it; `pawl memories forget`: a person takes one back. */
import type { Runner } from "#ledger/database.ts";
import { type ForgottenByPerson, forgetByPerson, type ListedMemory, listMemories } from "#ledger/memory.ts";
import { PawlError } from "#rules/errors.ts";
import { head } from "#rules/text.ts";
import { inline } from "./plain.ts";

/** Rows of one table: more than a person reads, less than would fill a terminal's memory. */
export const MAX_LISTED = 500;
/** Of a memory in a row: enough to recognise it. */
const MAX_SHOWN = 120;
/** Of a name: it stands in the ledger from then on. */
const MAX_NAME = 100;
const UUID = /^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$/i;
const USAGE = "pawl memories forget ID --by NAME";
const HEAD = ["ID", "SINCE", "FROM", "SEEN IN", "SOURCES", "FORGOTTEN", "TEXT"] as const;

const seconds = (at: Date): string => `${at.toISOString().slice(0, 19)}Z`;

function seenIn({ visibility, conversation }: ListedMemory): string {
  if (visibility.startsWith("conversation:")) return conversation;
  return visibility === "nowhere" ? "nowhere" : "all its conversations";
}

const cells = (memory: ListedMemory): string[] =>
  [
    memory.id,
    seconds(memory.at),
    memory.actors === "" ? "-" : memory.actors,
    seenIn(memory),
    memory.sources.length === 0 ? "-" : memory.sources.join(", "),
    memory.forgotten === null ? "-" : `${seconds(memory.forgotten.at)} by ${memory.forgotten.by}`,
    memory.text.length > MAX_SHOWN ? `${head(memory.text, MAX_SHOWN)}…` : memory.text,
  ].map(inline);

export type Which = { readonly namespace: string; readonly agent: string; readonly every: boolean };

/** Pure: what a person reads. */
export function renderMemories(memories: readonly ListedMemory[], { namespace, agent, every }: Which): string {
  const whose = `${inline(namespace)}/${inline(agent)}`;
  if (memories.length === 0) {
    const rest = every ? "" : "; --all shows the forgotten ones too";
    return `Agent ${whose} remembers nothing${rest}.`;
  }
  const shown = memories.slice(0, MAX_LISTED);
  const table = [[...HEAD], ...shown.map(cells)];
  const widths = HEAD.map((_head, column) => Math.max(...table.map((row) => row[column]?.length ?? 0)));
  const lines = table.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join("  ")
      .trimEnd(),
  );
  if (memories.length > shown.length) lines.push(`Only the newest ${MAX_LISTED} are shown.`);
  return lines.join("\n");
}

export async function memoriesOf(db: Runner, which: Which): Promise<string> {
  const memories = await listMemories(db, { ...which, most: MAX_LISTED + 1 });
  if (memories === null) {
    const name = `${inline(which.namespace)}/${inline(which.agent)}`;
    throw new PawlError("terminal", "AgentUnknown", `the ledger knows no Agent ${name}; -n names another namespace`);
  }
  return renderMemories(memories, which);
}

const usage = (what: string): PawlError => new PawlError("terminal", "Usage", `${what}: ${USAGE}`);

/** Pure: a word is taken only when it is whole. */
export function parseForget(id: string | undefined, by: string | undefined): { memory: string; by: string } {
  if (id === undefined) throw usage("which memory?");
  if (!UUID.test(id)) throw usage("ID is the one that pawl memories AGENT shows");
  const name = by?.trim() ?? "";
  if (name === "") throw usage("say who forgets it");
  if (name.length > MAX_NAME) throw usage(`NAME has at most ${MAX_NAME} characters`);
  return { memory: id, by: name };
}

/** Pure: the sentence for a person. Throws where there was nothing to forget. */
export function renderForgotten(asked: { memory: string; by: string }, answer: ForgottenByPerson): string {
  switch (answer.kind) {
    case "forgotten":
      return `memory ${asked.memory} is forgotten: no agent recalls it any more`;
    case "already":
      return `memory ${asked.memory} is forgotten already, since ${seconds(answer.at)}, by ${inline(answer.by)}`;
    case "unknown_memory":
      throw new PawlError(
        "terminal",
        "MemoryUnknown",
        `the ledger knows no memory ${asked.memory}; pawl memories AGENT lists an agent's`,
      );
  }
}

export async function forgetOf(db: Runner, asked: { memory: string; by: string }): Promise<string> {
  return renderForgotten(asked, await forgetByPerson(db, asked.memory, asked.by));
}
