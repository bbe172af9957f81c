/**
 * LangGraph.js: a node that goes round, its results in the graph's state, checkpointed to PostgreSQL before the next
 * step begins. `plain` keeps them in an ordinary reduced channel, `delta` in a channel that stores what was added.
 */
import { randomUUID } from "node:crypto";
import type { System } from "../system.ts";

type Graph = { invoke(input: unknown, config: unknown): Promise<unknown> };
type Builder = {
  addNode(name: string, node: (state: State) => Promise<unknown>): Builder;
  addEdge(from: string, to: string): Builder;
  addConditionalEdges(from: string, where: (state: State) => string): Builder;
  compile(options: { checkpointer: unknown }): Graph;
};
type State = { results: string[]; left: number };
type LangGraph = {
  START: string;
  END: string;
  StateGraph: new (state: unknown) => Builder;
  DeltaChannel: new (
    reducer: (state: string[], writes: string[][]) => string[],
    options: { initialValueFactory: () => string[] },
  ) => unknown;
  Annotation: ((options?: unknown) => unknown) & { Root(fields: Readonly<Record<string, unknown>>): unknown };
};
type Saver = { setup(): Promise<void>; end(): Promise<void> };

const PACKAGE: string = "@langchain/langgraph";
const CHECKPOINTS: string = "@langchain/langgraph-checkpoint-postgres";

export function langgraph(kind: "plain" | "delta"): System {
  let saver: Saver;
  let graph: Graph;
  let current: () => Promise<string>;
  return {
    async open(url) {
      const { START, END, StateGraph, DeltaChannel, Annotation } = (await import(PACKAGE)) as LangGraph;
      const { PostgresSaver } = (await import(CHECKPOINTS)) as {
        PostgresSaver: { fromConnString(url: string): Saver };
      };
      saver = PostgresSaver.fromConnString(url);
      await saver.setup();
      const none = () => [];
      const results =
        kind === "plain"
          ? Annotation({ reducer: (all: string[], more: string[]) => [...all, ...more], default: none })
          : () => new DeltaChannel((all, writes) => [...all, ...writes.flat()], { initialValueFactory: none });
      graph = new StateGraph(Annotation.Root({ results, left: Annotation() }))
        .addNode("tool", async ({ left }) => ({ results: [await current()], left: left - 1 }))
        .addEdge(START, "tool")
        .addConditionalEdges("tool", ({ left }) => (left > 0 ? "tool" : END))
        .compile({ checkpointer: saver });
    },
    async run({ steps }, step) {
      current = step;
      const config = { configurable: { thread_id: randomUUID() }, durability: "sync", recursionLimit: steps + 10 };
      await graph.invoke({ results: [], left: steps }, config);
    },
    close: () => saver.end(),
  };
}
