/** The tool `undo` as the model sees it. What it does is decided when its turn comes (`undo.ts`), from rows. */
import { z } from "zod";
import type { Tool } from "./ports.ts";

export const UNDO = "undo";

const schema = z.object({ effect: z.uuid().transform((id) => id.toLowerCase()) });

/** `undoing`: the tools that take something back. */
export const undoTool = (undoing: readonly string[]): Tool => ({
  name: UNDO,
  description:
    "Takes back one write of this conversation, by the id of its effect as the result of the write named it. " +
    "It is a write of its own, and happens at most once for each.",
  parameters: {
    type: "object",
    properties: { effect: { type: "string", format: "uuid", description: "The id of the effect" } },
    required: ["effect"],
    additionalProperties: false,
  },
  quick: false,
  standsFor: undoing,
  // What it tells is what another tool was answered.
  source: () => UNDO,
  timeLimitMs: 1_000,
  parse(args) {
    const parsed = schema.safeParse(args);
    return parsed.success
      ? { ok: true, value: parsed.data }
      : { ok: false, message: "effect must be the id of an effect, as the result of the write named it." };
  },
  effect: () => "compensation",
  target: (args) => `effect:${String(args["effect"])}`,
  execute: () => Promise.resolve({ kind: "failed", observation: "Nothing was sent: undo is carried out by its tool." }),
});
