/** Which tools may be used where a run answers. Pure. */

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

/** `*` stands for any run of characters, everything else for itself. Linear in the name for each star. */
export function matchesGlob(glob: string, name: string): boolean {
  const [first = "", ...parts] = glob.split("*");
  if (parts.length === 0) return glob === name;
  const last = parts.pop() ?? "";
  if (!name.startsWith(first) || name.length < first.length + last.length || !name.endsWith(last)) return false;
  let from = first.length;
  for (const part of parts) {
    const found = name.indexOf(part, from);
    if (found < 0) return false;
    from = found + part.length;
  }
  return from <= name.length - last.length;
}

/** A place that nobody wrote a rule for has all tools. */
export function isAllowed(rules: readonly PlaceRule[], place: Place, tool: string): boolean {
  return rules
    .filter((rule) => rule.place === place)
    .every(
      ({ allow, deny }) =>
        allow.some((glob) => matchesGlob(glob, tool)) && !deny.some((glob) => matchesGlob(glob, tool)),
    );
}
