/**
 * How the world fake behaves, per path. The mode whose `path` is the longest prefix of a request's path applies;
 * `times` uses it up. PUT /control takes one of these, or `{refuseConnections: N}` to reset the next N connections
 * before anything is read from them.
 *
 * Where a mode says *written*, the write is stored and logged before the mode takes effect.
 */
import { z } from "zod";

const common = { path: z.string().startsWith("/"), times: z.int().positive().optional() };

const mode = z.discriminatedUnion("mode", [
  z.strictObject({ ...common, mode: z.literal("normal") }),
  /** Written; the answer waits for POST /release, forever if need be. */
  z.strictObject({ ...common, mode: z.literal("hold") }),
  /** Written; the connection is reset instead of an answer. */
  z.strictObject({ ...common, mode: z.literal("cut") }),
  /** Written; status and half of the body, then a reset. */
  z.strictObject({ ...common, mode: z.literal("partial") }),
  /** Written; answered with an error status all the same. */
  z.strictObject({ ...common, mode: z.literal("error"), status: z.int().min(400).max(599).default(500) }),
  /** Written; answered after `delayMs`. */
  z.strictObject({ ...common, mode: z.literal("slow"), delayMs: z.int().min(0).max(60_000) }),
  /** Written; answered with bytes that are not HTTP. */
  z.strictObject({ ...common, mode: z.literal("garbage") }),
  /** Not written, not logged: reset after the request was read. */
  z.strictObject({ ...common, mode: z.literal("drop") }),
  /** Not written: answered with `status`, and a Location when given. */
  z.strictObject({
    ...common,
    mode: z.literal("reject"),
    status: z.int().min(300).max(599).default(422),
    location: z.string().optional(),
  }),
  /** Reads and writes are answered with a body of `bytes` bytes. */
  z.strictObject({
    ...common,
    mode: z.literal("big"),
    bytes: z
      .int()
      .min(1)
      .max(64 * 1024 * 1024),
  }),
]);

export const worldControl = z.union([mode, z.strictObject({ refuseConnections: z.int().min(0) })]);

export type WorldMode = z.infer<typeof mode>;
/** As it is sent to PUT /control: defaults may be left out. */
export type WorldControl = z.input<typeof worldControl>;

export class Modes {
  readonly #modes = new Map<string, { mode: WorldMode; left: number }>();

  set(value: WorldMode): void {
    this.#modes.set(value.path, { mode: value, left: value.times ?? Number.POSITIVE_INFINITY });
  }

  clear(): void {
    this.#modes.clear();
  }

  /** The mode of a request to `path`, counted as used. */
  take(path: string): WorldMode {
    const fitting = [...this.#modes.values()].filter((entry) => entry.left > 0 && path.startsWith(entry.mode.path));
    const chosen = fitting.toSorted((a, b) => b.mode.path.length - a.mode.path.length)[0];
    if (chosen === undefined) return { path: "/", mode: "normal" };
    chosen.left -= 1;
    return chosen.mode;
  }
}
