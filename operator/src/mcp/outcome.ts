/**
 * What an answer to `tools/call` says about whether the tool did something. Pure.
 *
 * An error result says that the tool ended badly, not that nothing happened on the way: a write is `unknown` then, unless
 * the Agent declares that this server's errors mean that nothing was applied. Protocol errors that are given before a tool
 * runs (parse error, invalid request, unknown method or tool, invalid parameters) prove that it did not run.
 */
import { z } from "zod";
import type { ToolOutcome } from "#engine/ports.ts";
import { clip, MAX_OBSERVATION } from "#tools/body.ts";
import { shortJson } from "#tools/http-request.ts";
import { verdictOf } from "#tools/outcome.ts";
import type { Posted } from "./wire.ts";

const BEFORE_IT_RAN = new Set([-32_700, -32_600, -32_601, -32_602]);

const block = z.looseObject({ type: z.string() });
const result = z.object({
  content: z.array(block).default([]),
  structuredContent: z.record(z.string(), z.unknown()).optional(),
  isError: z.boolean().default(false),
});

export type Judging = {
  readonly isRead: boolean;
  readonly errorMeansNotApplied: boolean;
};

const UNSURE = "It is not known whether it was carried out: look before you try again.";

export function outcomeOf(posted: Posted, judging: Judging): ToolOutcome {
  const { isRead } = judging;
  switch (posted.kind) {
    case "not-sent":
      return { kind: "failed", observation: `Nothing was sent. ${posted.why}`, unsent: true };
    case "no-answer":
      return isRead
        ? { kind: "failed", observation: `There was no answer. ${posted.why}` }
        : { kind: "unknown", observation: `The call was sent. ${posted.why} ${UNSURE}` };
    case "status":
      return statusOf(posted, isRead);
    case "error": {
      const said = clip(`The server answered with error ${posted.code}: ${posted.message}`, MAX_OBSERVATION);
      return isRead || BEFORE_IT_RAN.has(posted.code)
        ? { kind: "failed", observation: said }
        : { kind: "unknown", observation: `${said}\n${UNSURE}` };
    }
    case "result":
      return resultOf(posted.result, judging);
  }
}

function statusOf({ status, text }: { status: number; text: string }, isRead: boolean): ToolOutcome {
  const verdict = verdictOf({ kind: "answered", status }, isRead);
  // A redirect hands the call to another address; nobody follows it, so nothing was carried out here.
  const failed = verdict === "failed" || (status >= 300 && status < 400);
  const said = clip(`HTTP ${status}\n${text}`.trimEnd(), MAX_OBSERVATION);
  return failed
    ? { kind: "failed", observation: `Not carried out. ${said}` }
    : { kind: "unknown", observation: `${said}\n${UNSURE}` };
}

function resultOf(value: unknown, { isRead, errorMeansNotApplied }: Judging): ToolOutcome {
  const parsed = result.safeParse(value);
  if (!parsed.success) {
    const said = "The server's answer is no result of a tool.";
    return isRead ? { kind: "failed", observation: said } : { kind: "unknown", observation: `${said} ${UNSURE}` };
  }
  const { content, structuredContent, isError } = parsed.data;
  const texts = content.map(shown);
  const whole = texts.length > 0 ? texts.join("\n") : JSON.stringify(structuredContent ?? null);
  const observation = clip(whole, MAX_OBSERVATION);
  if (isError) {
    const said = `The tool answered with an error: ${observation}`;
    return isRead || errorMeansNotApplied
      ? { kind: "failed", observation: said }
      : { kind: "unknown", observation: `${said}\n${UNSURE}` };
  }
  const first = content[0];
  const text = content.length === 1 && first?.type === "text" ? wordOf(first["text"]) : undefined;
  const json = structuredContent === undefined ? shortJson(text) : shortJson(JSON.stringify(structuredContent));
  return {
    kind: "confirmed",
    observation,
    receipt: json === undefined ? {} : { result: json },
    partial: observation.length < whole.length,
  };
}

const wordOf = (value: unknown): string => (typeof value === "string" ? value : "");

/** Everything that is no text is named: a model that believes it saw a picture is worse off than one that knows. */
function shown(item: z.infer<typeof block>): string {
  const of = (value: unknown): Record<string, unknown> =>
    typeof value === "object" && value !== null ? { ...value } : {};
  switch (item.type) {
    case "text":
      return wordOf(item["text"]);
    case "resource": {
      const { text, uri } = of(item["resource"]);
      return typeof text === "string" ? text : `[resource ${wordOf(uri)}, not shown]`;
    }
    case "resource_link":
      return `[resource ${wordOf(item["uri"])}]`;
    default:
      return `[${item.type} ${wordOf(item["mimeType"])}, not shown]`;
  }
}
