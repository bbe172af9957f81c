/** An Agent whose tools are an MCP server's: applied before the server is there, and with a worker that dies in a write. */
import assert from "node:assert/strict";
import { fakeManifests, PORT, urlOf } from "../../hack/demo/fakes.ts";
import { killRole } from "../../hack/demo/kill.ts";
import { conditionOf, statusOf } from "../../hack/demo/run-status.ts";
import { agentNamed, AGENTS, type Pawl, runNamed, SYSTEM } from "../support/pawl.ts";

const DESK = agentNamed("desk", {
  tools: {
    mcpServers: [{ name: "desk", url: `${urlOf("mcp", AGENTS)}/mcp`, tools: ["*_ticket"] }],
    effects: [
      {
        tool: "desk_create_ticket",
        target: "ticket {title}",
        key: "key",
        probe: { tool: "desk_find_ticket", arguments: { key: "{effect.id}" }, absenceIsConclusive: true },
        compensate: { tool: "desk_close_ticket", arguments: { id: "{result.id}" } },
      },
      { tool: "desk_find_ticket", effect: "tool.query" },
    ],
  },
});

type Call = { tool: string; arguments: Record<string, unknown> };

export function mcpJourneys(pawl: () => Pawl): void {
  const server = { name: "mcp", namespace: AGENTS, port: PORT };
  const calls = async (atLeast = 0) =>
    (await pawl().kubectl.service("GET", server, `/log?atLeast=${atLeast}`)) as Call[];

  describe("an Agent with an MCP server", () => {
    it("says that the server is not there, and becomes Ready when it comes, untouched (C68)", async () => {
      await pawl().kubectl.apply(DESK);
      await pawl().run("wait", "--for=condition=ResolvedRefs=False", "--timeout=60s", "agents.pawl.dev/desk");
      const object = await pawl().kubectl.get("agents.pawl.dev", "desk", AGENTS);
      assert.ok(object);
      assert.equal(conditionOf(object, "ResolvedRefs")?.reason, "McpServerUnreachable");
      await pawl().kubectl.apply(...fakeManifests("mcp", { namespace: AGENTS, image: pawl().fakesImage }));
      await pawl().run("wait", "--for=condition=Ready", "--timeout=120s", "agents.pawl.dev/desk");
    });

    it("keeps one ticket when its worker dies between the write and its answer: it is looked for and found", async () => {
      await pawl().kubectl.service("PUT", server, "/control", { tool: "create_ticket", mode: "hold", times: 1 });
      await pawl().kubectl.apply(runNamed("ticket", "script:ticket", { agentRef: { name: "desk" } }));
      await calls(1);
      await killRole(pawl().kubectl, SYSTEM, "worker");
      const done = await pawl().until("ticket", "Succeeded", undefined, 120);
      assert.deepEqual(
        statusOf(done).effects?.last?.map(({ name, target, state }) => [name, target, state]),
        [["desk_create_ticket", "ticket The door squeaks", "Confirmed"]],
      );
      const log = await calls();
      assert.deepEqual(
        log.map(({ tool }) => tool),
        ["create_ticket", "find_ticket"],
      );
      assert.equal(log[0]?.arguments["key"], log[1]?.arguments["key"], "looked for by the key that it was sent with");
      assert.match(await pawl().pawl("why", "ticket"), /POINT OF NO RETURN/);
    });
  });
}
