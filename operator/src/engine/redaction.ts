/**
 * The secrets that this process has come to know, and the one function that takes them out of texts. Whatever leaves the
 * Credentials port is known from that moment on, whoever asked for it: the port is wrapped where it is made.
 */
import { isDeepStrictEqual } from "node:util";
import { redactJson, redactor, type Redact, type Secret } from "#rules/secrets.ts";
import type { Credentials, Tool } from "./ports.ts";

/** Values kept at a time: more than one install's Agents use; what was asked for longest ago goes first. */
export const MAX_KNOWN_SECRETS = 256;

export class Redaction {
  readonly #own: readonly Secret[];
  readonly #known = new Map<string, string>();
  #redact: Redact;

  /** `own`: of the process itself, never forgotten. */
  constructor(own: readonly Secret[] = []) {
    this.#own = own;
    this.#redact = redactor(own);
  }

  /** `what` names the value to people. A rotated one stays known: texts that quote it may still come. */
  learn(secret: Secret): void {
    // Files end in a line break that nobody quotes; both may be met.
    const value = secret.value.trim();
    const news = !this.#known.has(value);
    this.#known.delete(value);
    this.#known.set(value, secret.what);
    if (!news) return;
    const oldest = this.#known.keys().next().value;
    if (this.#known.size > MAX_KNOWN_SECRETS && oldest !== undefined) this.#known.delete(oldest);
    this.#redact = redactor([...this.#own, ...[...this.#known].map(([known, what]) => ({ value: known, what }))]);
  }

  text(text: string): string {
    return this.#redact(text);
  }

  json<T>(value: T): T {
    return redactJson(value, this.#redact);
  }

  holds(value: unknown): boolean {
    return !isDeepStrictEqual(this.json(value), value);
  }

  /** The same port; what it finds is known from then on. */
  watching(credentials: Credentials): Credentials {
    return {
      get: async (namespace, ref, host) => {
        const answer = await credentials.get(namespace, ref, host);
        if (answer.kind === "found") this.learn({ what: `Secret ${namespace}/${ref.name}`, value: answer.value });
        return answer;
      },
    };
  }

  /** The same tool; whatever it answers, by any of its methods, holds no secret. */
  covering(tool: Tool): Tool {
    return new Proxy(tool, {
      get: (target, name) => {
        const member: unknown = Reflect.get(target, name, target);
        if (typeof member !== "function") return member;
        return (...given: unknown[]): unknown => {
          const answer: unknown = Reflect.apply(member, target, given);
          // What a tool says of arguments (`target`, `parse`) may be what runs; those were looked at before.
          return answer instanceof Promise ? answer.then((value: unknown) => this.json(value)) : answer;
        };
      },
    });
  }
}
