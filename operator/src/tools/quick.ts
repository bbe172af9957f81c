/** The quick tool `calculate`: models are bad at arithmetic, and this one needs nothing but the process it runs in. */
import { z } from "zod";
import type { Tool } from "#engine/ports.ts";
import { evaluate } from "./arithmetic.ts";
import { jsonSchema, parseArguments } from "./arguments.ts";

/** Longer than any sum a person would ask for; bounds the time of the evaluation. */
export const MAX_EXPRESSION = 1_000;

const schema = z.strictObject({
  expression: z
    .string()
    .min(1)
    .max(MAX_EXPRESSION)
    .describe("Numbers with + - * / % ^ and parentheses, for example (17 + 4) * 2"),
});

export const calculate: Tool = {
  name: "calculate",
  description: "Works out an arithmetic expression exactly as written. Use it instead of computing in your head.",
  parameters: jsonSchema(schema),
  quick: true,
  timeLimitMs: 100,
  parse: (args) => parseArguments(schema, args),
  effect: () => "tool.query",
  target: () => "tool:calculate",
  execute: async (args) => {
    const answer = evaluate(String(args["expression"]));
    if (!answer.ok) return { kind: "failed", observation: answer.message };
    return { kind: "confirmed", observation: answer.text, receipt: {} };
  },
};
