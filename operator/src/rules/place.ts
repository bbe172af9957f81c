/** Which tools may be used where a run answers. Pure. */
import { matchesAny } from "./globs.ts";

/** Direct: one person alone; Private: a closed channel; Shared: an open one. */
export type Place = "Direct" | "Private" | "Shared";

export type PlaceRule = {
  readonly place: string;
  /** Globs over tool names. */
  readonly allow: readonly string[];
  /** Stronger than `allow`. */
  readonly deny: readonly string[];
};

/** Where a run answers. Until there are connectors for chats it is always one person at an API. */
export const placeOf = (_connector: string): Place => "Direct";

/** A place that nobody wrote a rule for has all tools. */
export function isAllowed(rules: readonly PlaceRule[], place: Place, tool: string): boolean {
  return rules
    .filter((rule) => rule.place === place)
    .every(({ allow, deny }) => matchesAny(allow, tool) && !matchesAny(deny, tool));
}
