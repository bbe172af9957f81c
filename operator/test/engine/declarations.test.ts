/** What an Agent writes about its tools, before anything runs: what cannot be meant is said in ResolvedRefs. */
import assert from "node:assert/strict";
import { readAgentSpec } from "#engine/agent.ts";
import { declarationProblem } from "#engine/declarations.ts";
import { declared } from "#engine/declared.ts";
import type { EffectDeclaration, Tool } from "#engine/ports.ts";
import { httpRequestTool } from "#tools/http-request.ts";
import { finder, quick, writer } from "../support/engine.ts";

const http = httpRequestTool({
  clock: { monotonic: () => 0, sleep: () => Promise.resolve() },
  dialer: { dial: () => Promise.resolve({ ok: false, why: "nowhere" }) },
});
const tools: Tool[] = [writer([]), finder([]), quick, http];
const problem = (effects: unknown[]) => {
  const { effects: said } = readAgentSpec({ tools: { effects } });
  const all = tools.map((tool) =>
    declared(
      tool,
      said.find((effect) => effect.tool === tool.name),
    ),
  );
  return declarationProblem(said, (name) => all.find((tool) => tool.name === name))?.message ?? null;
};
const probing = (probe: object) => [{ tool: "write", probe: { tool: "find", ...probe } }];

describe("what an Agent declares about its tools", () => {
  it("is fine with a probe that reads, by its class or by its arguments, and a tool that undoes", () => {
    assert.equal(problem(probing({ arguments: { key: "{effect.id}" } })), null);
    const url = "https://world.test/notes?key={effect.id}";
    assert.equal(problem(probing({ tool: "http_request", arguments: { method: "get", url } })), null);
    assert.equal(problem([{ tool: "write", compensate: { tool: "http_request" }, target: "{to}" }]), null);
    const state = { tool: "http_request", arguments: { method: "GET", url: "https://world.test/{to}" }, path: "title" };
    assert.equal(problem([{ tool: "write", compensate: { tool: "http_request" }, state }]), null);
  });

  const wrong: [title: string, effects: unknown[], says: RegExp][] = [
    [
      "about a tool that it does not have",
      [{ tool: "wirte", key: "k" }],
      /effects\[wirte\]: this agent has no such tool/,
    ],
    [
      "with a probe by a tool that it does not have",
      probing({ tool: "fnid" }),
      /probe\.tool: this agent has no tool fnid/,
    ],
    [
      "with an undo by a tool that it does not have",
      [{ tool: "write", compensate: { tool: "x" } }],
      /compensate\.tool/,
    ],
    [
      "with a state read by a tool that it does not have",
      [{ tool: "write", compensate: { tool: "write" }, state: { tool: "x" } }],
      /state\.tool: this agent has no tool x/,
    ],
    [
      "with a state read by a tool that writes",
      [{ tool: "write", compensate: { tool: "write" }, state: { tool: "write" } }],
      /state\.tool: write may change something, and a look must not/,
    ],
    [
      "with a state that no undo would look at",
      [{ tool: "write", state: { tool: "find" } }],
      /state: it is looked at for an undo only: declare compensate, too/,
    ],
    ["with a probe that writes", probing({ tool: "write" }), /write may change something, and a probe must not/],
    [
      "with a probe that is a write by its arguments",
      probing({ tool: "http_request", arguments: { method: "POST", url: "https://world.test/" } }),
      /http_request may change something/,
    ],
    [
      "with a probe that looks for a text of every answer",
      probing({ found: "number" }),
      /probe\.found: name the write/,
    ],
  ];
  for (const [title, effects, says] of wrong) {
    it(`is refused by words ${title}`, () => assert.match(problem(effects) ?? "", says));
  }

  it("may make a probe of a tool that it says only reads", () => {
    assert.equal(problem([...probing({ tool: "http_request" }), { tool: "http_request", effect: "tool.query" }]), null);
  });

  it("was stored as bare names by older versions, which did nothing: they say nothing", () => {
    const { effects } = readAgentSpec({ tools: { effects: [{ tool: "a", probe: "b", compensate: "c" }] } });
    assert.deepEqual(effects, [{ tool: "a" }] satisfies EffectDeclaration[]);
  });
});
