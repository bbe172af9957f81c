/**
 * How the MCP fake behaves. PUT /control takes one of these; the mode of a tool (or of `*`) applies to its calls, and
 * `times` uses it up. Where a mode says *done*, the call is carried out and logged before the mode takes effect.
 */
import { z } from "zod";

const common = { tool: z.string().default("*"), times: z.int().positive().optional() };

const mode = z.discriminatedUnion("mode", [
  z.strictObject({ ...common, mode: z.literal("normal") }),
  /** Done; the connection is reset instead of an answer. */
  z.strictObject({ ...common, mode: z.literal("cut") }),
  /** Done; an event stream begins, and is reset before the answer. */
  z.strictObject({ ...common, mode: z.literal("halfway") }),
  /** Done; the answer waits for POST /release. */
  z.strictObject({ ...common, mode: z.literal("hold") }),
  /** Done; answered with a JSON-RPC error. */
  z.strictObject({ ...common, mode: z.literal("error"), code: z.int().default(-32_603) }),
  /** Done; answered with a result that says that it is an error. */
  z.strictObject({ ...common, mode: z.literal("toolError") }),
  /** Not done; the connection is reset after the request was read. */
  z.strictObject({ ...common, mode: z.literal("drop") }),
  /** Not done; answered with a JSON-RPC error. */
  z.strictObject({ ...common, mode: z.literal("refuse"), code: z.int().default(-32_602) }),
  /** Not done; answered with an HTTP status. */
  z.strictObject({ ...common, mode: z.literal("status"), status: z.int().min(300).max(599) }),
]);

export const mcpControl = z.union([
  mode,
  /** Another description or schema for a tool, from the next listing on; null takes the tool away. */
  z.strictObject({
    describe: z.string(),
    as: z.strictObject({ description: z.string().optional(), inputSchema: z.unknown().optional() }).nullable(),
  }),
  z.strictObject({ answers: z.enum(["json", "stream"]) }),
  z.strictObject({ pageSize: z.int().positive() }),
  /** What initialize answers with, whatever was asked for. */
  z.strictObject({ protocolVersion: z.string() }),
]);

export type McpMode = z.infer<typeof mode>;
/** As it is sent to PUT /control: defaults may be left out. */
export type McpControl = z.input<typeof mcpControl>;

export class McpModes {
  readonly #modes = new Map<string, { mode: McpMode; left: number }>();

  set(value: McpMode): void {
    this.#modes.set(value.tool, { mode: value, left: value.times ?? Number.POSITIVE_INFINITY });
  }

  clear(): void {
    this.#modes.clear();
  }

  /** The mode of a call of `tool`, counted as used. */
  take(tool: string): McpMode {
    const chosen = [this.#modes.get(tool), this.#modes.get("*")].find((entry) => entry !== undefined && entry.left > 0);
    if (chosen === undefined) return { tool, mode: "normal" };
    chosen.left -= 1;
    return chosen.mode;
  }
}
