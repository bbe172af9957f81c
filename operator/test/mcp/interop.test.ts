/** The client and the fake, each against the reference implementation of the protocol: two readings of it must agree. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { startFake } from "@pawl/fakes";
import { z } from "zod";
import { mcpServers } from "#mcp/servers.ts";
import { systemClock } from "#src/clock.ts";
import { allowance } from "#tools/addresses.ts";
import { createDialer } from "#tools/dialer.ts";
import { CALL_RUN } from "../support/call-run.ts";

describe("the reference implementation of MCP", function () {
  this.timeout(20_000);

  it("as a server is understood by our client: listed, called, refused, closed", async () => {
    const said: string[] = [];
    const server = new McpServer({ name: "reference", version: "1" });
    server.registerTool("say", { description: "Says.", inputSchema: { what: z.string() } }, ({ what }) => {
      said.push(what);
      return { content: [{ type: "text", text: `said ${what}` }] };
    });
    let closed = 0;
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      onsessionclosed: () => {
        closed += 1;
      },
    });
    await server.connect(transport);
    const http = createServer((request, response) => void transport.handleRequest(request, response));
    http.listen(0, "127.0.0.1");
    await once(http, "listening");
    const { port } = http.address() as AddressInfo;
    const sessions = mcpServers({
      clock: systemClock,
      dialer: createDialer({ clock: systemClock, allowance: allowance(["127.0.0.1"]) }),
      credentials: { get: () => Promise.resolve({ kind: "missing", message: "none" }) },
    }).open("demo");
    const spec = { name: "ref", url: `http://127.0.0.1:${port}/mcp`, headers: [], tools: ["*"], trustHints: false };
    const signal = new AbortController().signal;
    try {
      const listed = await sessions.list(spec, signal);
      assert.ok(listed.kind === "listed", JSON.stringify(listed));
      const [found] = listed.tools;
      assert.ok(found !== undefined);
      const tool = sessions.tool(spec, found, "ref_say", {});
      const context = { run: CALL_RUN, signal, timeLimitMs: 5_000, effectId: randomUUID() };
      const outcome = await tool.execute({ what: "hello" }, context);
      assert.deepEqual([outcome.kind, outcome.observation, said], ["confirmed", "said hello", ["hello"]]);
      const gone = await sessions.tool(spec, { ...found, name: "gone" }, "ref_gone", {}).execute({}, context);
      assert.notEqual(gone.kind, "confirmed");
    } finally {
      await sessions.close();
      assert.equal(closed, 1);
      await server.close();
      http.close();
    }
  });

  it("as a client is at home with our fake, in JSON and in streams", async () => {
    await using fake = await startFake("mcp");
    await fake.control("PUT", "/control", { describe: "odd_schema", as: null });
    for (const answers of ["json", "stream"]) {
      await fake.control("PUT", "/control", { answers });
      const client = new Client({ name: "reference", version: "1" });
      await client.connect(new StreamableHTTPClientTransport(new URL(`${fake.url}/mcp`)));
      const { tools } = await client.listTools();
      assert.ok(tools.some(({ name }) => name === "create_ticket"));
      const result = await client.callTool({ name: "create_ticket", arguments: { title: answers } });
      assert.equal((result.structuredContent as { title: string }).title, answers);
      await client.close();
    }
    assert.deepEqual(await fake.control("GET", "/rejected"), []);
  });
});
