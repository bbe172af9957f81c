/** A page with a title that anybody may change, behind two tools. */
import type { Tool, ToolContext, ToolOutcome } from "#engine/ports.ts";
import { quick } from "./engine.ts";

export const answered = (result: unknown): ToolOutcome => ({
  kind: "confirmed",
  observation: "HTTP 200",
  receipt: { result },
});

type Args = Readonly<Record<string, unknown>>;

export class Wiki {
  title = "Old";
  /** Looks at the page. */
  looks = 0;
  isAway = false;
  /** What becomes of the answer to a write that took place. */
  answer = (): ToolOutcome => answered({ ok: true });

  readonly set: Tool = {
    ...quick,
    name: "wiki_set_title",
    quick: false,
    effect: () => "tool.effect",
    target: () => "page",
    source: () => "wiki.test",
    execute: (args: Args, _context: ToolContext) => {
      const answer = this.answer();
      if (answer.kind !== "failed") this.title = String(args["title"]);
      return Promise.resolve(answer);
    },
  };

  readonly get: Tool = {
    ...quick,
    name: "wiki_get_page",
    quick: false,
    source: () => "wiki.test",
    execute: () => {
      this.looks += 1;
      if (this.isAway) return Promise.resolve({ kind: "failed", observation: "HTTP 503" } as const);
      return Promise.resolve(answered({ title: this.title, views: this.looks }));
    },
  };

  get tools(): Tool[] {
    return [this.set, this.get];
  }
}
