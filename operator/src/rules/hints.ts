/** What a server's hints about a tool are worth. Pure. */

export type Hints = { readonly readOnly: boolean; readonly destructive: boolean };

/**
 * Anybody can write a hint, so one can only make a tool count as more dangerous; that it counts as a read is believed of
 * servers that the Agent trusts in this, and not where the hints contradict each other. The Agent's own word comes after
 * this and wins.
 */
export function hintedKind(hints: Hints, trusted: boolean): "tool.query" | "tool.effect" {
  return trusted && hints.readOnly && !hints.destructive ? "tool.query" : "tool.effect";
}
