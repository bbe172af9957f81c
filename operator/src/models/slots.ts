/**
 * Joins the pieces of streamed tool calls into slots. The index says which slot a piece belongs to, but endpoints
 * leave it out, repeat it for different calls, and send ids that are empty or all the same; so a piece also opens a
 * new slot when it cannot belong to the one it names. Ids decide nothing by themselves. Pure.
 */
import type { ModelCall } from "#engine/ports.ts";

export type CallPiece = {
  readonly index?: number | null | undefined;
  readonly id?: string | null | undefined;
  readonly function?:
    | { readonly name?: string | null | undefined; readonly arguments?: string | object | null | undefined }
    | null
    | undefined;
};

type Slot = { index: number | undefined; id: string; name: string; text: string };

/** Object arguments (some endpoints do not encode them) as the JSON text that the dialect promises. */
export function argumentsText(value: string | object | null | undefined): string {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

export class CallSlots {
  readonly #slots: Slot[] = [];

  add(piece: CallPiece): void {
    const index = piece.index ?? undefined;
    const id = piece.id ?? "";
    const name = piece.function?.name ?? "";
    const text = argumentsText(piece.function?.arguments);
    const current = index === undefined ? this.#slots.at(-1) : this.#slots.findLast((slot) => slot.index === index);
    if (current === undefined || startsAnother(current, id, name, text)) {
      // A repeated opening without a name is the same tool again: the name came with the slot before it.
      this.#slots.push({ index, id, name: name === "" ? (current?.name ?? "") : name, text });
      return;
    }
    current.id ||= id;
    // Names come whole and once; endpoints that repeat them with every piece send the same.
    current.name ||= name;
    current.text += text;
  }

  get calls(): ModelCall[] {
    return this.#slots.map((slot) => ({ providerId: slot.id, name: slot.name, argumentsText: slot.text }));
  }
}

function startsAnother(slot: Slot, id: string, name: string, text: string): boolean {
  if (name !== "" && slot.name !== "" && name !== slot.name) return true;
  // Some gateways invent an id per piece: another id only counts where a call can begin.
  if (id !== "" && slot.id !== "" && id !== slot.id) return isComplete(slot.text) || (name !== "" && slot.text === "");
  // Nothing can follow a complete JSON object but white space, so an object that does begins the next call.
  return text.trimStart().startsWith("{") && isComplete(slot.text);
}

function isComplete(text: string): boolean {
  if (!text.trimEnd().endsWith("}")) return false;
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}
