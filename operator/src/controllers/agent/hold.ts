/**
 * Who serves an Agent, where two installs see the same one. Pure. The holder's id stands in its status, and every write
 * of it is fenced by resourceVersion. Whoever finds another's id asks by putting his own there, as a question
 * (Accepted=Unknown, OtherInstallation), and serves nothing meanwhile. A living holder puts his own back at once; after
 * a while without an answer there is nobody to answer (a lost ledger, a restored cluster), and the question is settled.
 */
import type { AgentStatus } from "@pawl/crds";

export type Holding = {
  readonly status: AgentStatus | undefined;
  readonly ours: string;
  /** Our ledger has this Agent: its messages may be here. */
  readonly known: boolean;
  /** How long ago this process asked; null: it has not. */
  readonly askedForMs: number | null;
  /** It was answered lately. */
  readonly refused: boolean;
};

export type Hold =
  | { readonly do: "serve" }
  | { readonly do: "ask" }
  /** The question stands; look again then. */
  | { readonly do: "wait"; readonly ms: number }
  /** Another one lives and serves it. */
  | { readonly do: "give up" }
  | { readonly do: "leave" };

export const isAsked = (status: AgentStatus | undefined): boolean =>
  status?.conditions?.some(
    ({ type, status: verdict, reason }) =>
      type === "Accepted" && verdict === "Unknown" && reason === "OtherInstallation",
  ) === true;

/** Whose it is, for everybody who only reads. */
export function holderOf(status: AgentStatus | undefined, ours: string): "ours" | "nobody" | "other" {
  if (status?.installation === undefined) return "nobody";
  return status.installation === ours && !isAsked(status) ? "ours" : "other";
}

export function holdOf({ status, ours, known, askedForMs, refused }: Holding, takeoverMs: number): Hold {
  const holder = status?.installation;
  if (holder === undefined) return { do: "serve" };
  if (holder === ours) {
    if (!isAsked(status)) return { do: "serve" };
    const left = takeoverMs - (askedForMs ?? 0);
    return left > 0 ? { do: "wait", ms: left } : { do: "serve" };
  }
  if (isAsked(status)) return known && askedForMs === null ? { do: "serve" } : { do: "leave" };
  if (askedForMs !== null) return { do: "give up" };
  return refused ? { do: "leave" } : { do: "ask" };
}
