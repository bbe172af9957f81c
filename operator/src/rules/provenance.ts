/**
 * Who may be shown what came from outside. Each result from outside leaves evidence; replies and memories keep what
 * they were built on, and are shown only where all of it may be. Pure; `ledger/memory.ts` says the same in SQL.
 */
/** From the narrowest on. */
export const AUDIENCES = ["conversation", "agent", "public"] as const;
/** The conversation that asked, every conversation of its agent, or everybody. */
export type Audience = (typeof AUDIENCES)[number];

/** What nobody declared is for the conversation that asked. */
export const DEFAULT_AUDIENCE: Audience = "conversation";

/** Of what two sources said together, as far as audiences alone tell. */
export const narrower = (one: Audience, other: Audience): Audience =>
  AUDIENCES[Math.min(AUDIENCES.indexOf(one), AUDIENCES.indexOf(other))] ?? DEFAULT_AUDIENCE;

/** Of a source's name: a host or a server. */
export const MAX_SOURCE = 256;

export type Limit = {
  readonly audience: Audience;
  readonly agentId: string;
  /** Null: the row is gone, so nobody knows for whom it was. */
  readonly conversationId: string | null;
};
export type Evidence = Limit & { readonly id: string; readonly source: string };
export type Place = { readonly agentId: string; readonly conversationId: string };

function reaches(limit: Limit, place: Place): boolean {
  switch (limit.audience) {
    case "public":
      return true;
    case "agent":
      return limit.agentId === place.agentId;
    case "conversation":
      return limit.conversationId === place.conversationId;
  }
}

/** What stands in the way of showing something built on `evidence` there. */
export const barred = <L extends Limit>(evidence: readonly L[], place: Place): L[] =>
  evidence.filter((limit) => !reaches(limit, place));

export const mayShow = (evidence: readonly Limit[], place: Place): boolean => barred(evidence, place).length === 0;

/**
 * All limits as one word: the places where something is shown. Two texts of one agent are the same memory only where
 * this is the same, else one would hide the other.
 */
export function visibility(limits: readonly Limit[]): string {
  const conversations = new Set(limits.filter(({ audience }) => audience === "conversation").map(conversationOf));
  const agents = new Set(limits.filter(({ audience }) => audience !== "public").map(({ agentId }) => agentId));
  const [conversation, ...others] = conversations;
  if (others.length > 0 || agents.size > 1 || conversations.has("")) return "nowhere";
  if (conversation !== undefined) return `conversation:${conversation}`;
  const [agent] = agents;
  return agent === undefined ? "everywhere" : `agent:${agent}`;
}

const conversationOf = (limit: Limit): string => limit.conversationId ?? "";

/** Sources by name, each once, in their order. */
export const sourcesOf = (evidence: readonly { readonly source: string }[]): string[] => [
  ...new Set(evidence.map(({ source }) => source)),
];
