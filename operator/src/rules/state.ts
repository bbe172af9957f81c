/**
 * The state of what a write changes, as a declared read shows it: recorded before and after the write, so that an undo
 * can refuse when the world has moved since, and can put back what was there. Pure.
 */
import { head } from "./text.ts";

/** What a look saw. Exactly one of them. */
export type State =
  /** JSON of the answer, or what the declared path leads to in it. */
  | { readonly value: unknown }
  /** An answer that is no JSON, to the letter. */
  | { readonly text: string }
  /** The service said that there is nothing. */
  | { readonly absent: true };

/** What a read answered, as far as it says something about a state. */
export type StateAnswer = {
  readonly kind: "confirmed" | "failed" | "unknown";
  readonly observation: string;
  readonly receipt?: Readonly<Record<string, unknown>>;
  readonly partial?: boolean;
  readonly absent?: boolean;
};

/** Steps of a path into JSON. */
const MAX_PATH = 8;
/** Characters of a state in a sentence. */
const MAX_SHOWN = 300;

/** Null: the look failed, or saw only part of it, or nothing stands at the path. */
export function stateIn(answer: StateAnswer, path: string | undefined): State | null {
  if (answer.kind !== "confirmed") return answer.absent === true ? { absent: true } : null;
  const result = answer.receipt?.["result"];
  if (path !== undefined) {
    const value = result === undefined ? undefined : at(result, path.split("."));
    return value === undefined ? null : { value };
  }
  if (result !== undefined) return { value: result };
  return answer.partial === true ? null : { text: answer.observation };
}

/** Own properties only. */
function at(root: unknown, steps: readonly string[]): unknown {
  if (steps.length > MAX_PATH) return undefined;
  let value = root;
  for (const step of steps) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, step)) return undefined;
    value = (value as Record<string, unknown>)[step];
  }
  return value;
}

/** As a row keeps it; null: none that this version knows. */
export function storedState(stored: unknown): State | null {
  if (typeof stored !== "object" || stored === null) return null;
  const { value, text, absent } = stored as { value?: unknown; text?: unknown; absent?: unknown };
  if (value !== undefined) return { value };
  if (typeof text === "string") return { text };
  return absent === true ? { absent: true } : null;
}

/** For a template: what was there. Undefined: nothing was, or nobody knows. */
export function valueOf(state: State | null): unknown {
  if (state === null || "absent" in state) return undefined;
  return "value" in state ? state.value : state.text;
}

/** For a sentence to the model and to people. */
export function shownState(state: State): string {
  if ("absent" in state) return "nothing";
  const text = "value" in state ? JSON.stringify(state.value) : state.text;
  return text.length > MAX_SHOWN ? `${head(text, MAX_SHOWN)}…` : text;
}
