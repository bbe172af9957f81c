/**
 * What the model calls the tools of servers: `<server>_<tool>` in the characters that every provider takes. Names that
 * are too long, or that would be one after this, get a few digits of the hash of what they were: the same ones whatever
 * else a server lists, so that a run, its declarations and the next run speak of one tool. Pure.
 */
import { canonicalHash } from "./canonical.ts";

export const MAX_NAME = 64;
const DIGITS = 8;

export type ServerTool = { readonly server: string; readonly tool: string };

const plain = ({ server, tool }: ServerTool): string => `${server}_${tool}`.replaceAll(/[^a-zA-Z0-9_-]/g, "_");

function marked(tool: ServerTool): string {
  const hash = canonicalHash({ server: tool.server, tool: tool.tool }).slice(0, DIGITS);
  return `${plain(tool).slice(0, MAX_NAME - DIGITS - 1)}_${hash}`;
}

/** In the order given. `taken`: names of tools of our own, which keep them. A tool that is listed twice counts once. */
export function namesFor(tools: readonly ServerTool[], taken: ReadonlySet<string>): ReadonlyMap<string, ServerTool> {
  const once = [...new Map(tools.map((tool) => [`${tool.server}\n${tool.tool}`, tool])).values()];
  const counts = new Map<string, number>();
  for (const tool of once) counts.set(plain(tool), (counts.get(plain(tool)) ?? 0) + 1);
  const names = new Map<string, ServerTool>();
  for (const tool of once) {
    const name = plain(tool);
    const usable = name.length <= MAX_NAME && counts.get(name) === 1 && !taken.has(name);
    names.set(usable ? name : marked(tool), tool);
  }
  return names;
}
