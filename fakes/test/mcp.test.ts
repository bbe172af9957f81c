/** The MCP fake holds clients to the protocol: what a lax server would let pass is refused and remembered. */
import assert from "node:assert/strict";
import { type Fake, startFake } from "../src/index.ts";

const INITIALIZE = {
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "t", version: "1" } },
};
const HEADERS = { accept: "application/json, text/event-stream", "content-type": "application/json" };

describe("the MCP fake", () => {
  let fake: Fake;
  beforeEach(async () => {
    fake = await startFake("mcp");
  });
  afterEach(async () => await fake.stop());

  const post = (body: unknown, headers: Record<string, string> = {}) =>
    fetch(`${fake.url}/mcp`, { method: "POST", headers: { ...HEADERS, ...headers }, body: JSON.stringify(body) });
  async function session(): Promise<Record<string, string>> {
    const response = await post(INITIALIZE);
    assert.equal(response.status, 200);
    const headers = {
      "mcp-session-id": response.headers.get("mcp-session-id") ?? "",
      "mcp-protocol-version": "2025-06-18",
    };
    assert.equal((await post({ jsonrpc: "2.0", method: "notifications/initialized" }, headers)).status, 202);
    return headers;
  }
  const call = (id: number, name: string, args: object) => ({
    jsonrpc: "2.0",
    id,
    method: "tools/call",
    params: { name, arguments: args },
  });

  it("refuses what is not said as the protocol says it, and keeps it", async () => {
    const list = { jsonrpc: "2.0", id: 7, method: "tools/list" };
    const open = await session();
    const { "mcp-session-id": id = "" } = open;
    const early = await post(INITIALIZE);
    const uninitialized = { ...open, "mcp-session-id": early.headers.get("mcp-session-id") ?? "" };
    const attempts: [status: number, response: Promise<Response>][] = [
      [406, post(list, { ...open, accept: "application/json" })],
      [415, post(list, { ...open, "content-type": "text/plain" })],
      [400, post(list)],
      [400, post(list, { "mcp-session-id": id })],
      [400, post([list], open)],
      [400, post(list, uninitialized)],
      [400, post({ ...INITIALIZE, params: {} })],
    ];
    for (const [status, response] of attempts) assert.equal((await response).status, status);
    assert.equal((await post(list, open)).status, 200);
    assert.equal((await post(list, open)).status, 400, "the id was used before");
    assert.equal(((await fake.control("GET", "/rejected")) as unknown[]).length, attempts.length + 1);
  });

  it("knows no session after a restart, which is nobody's fault", async () => {
    const open = await session();
    await fake.control("POST", "/restart");
    assert.equal((await post({ jsonrpc: "2.0", id: 2, method: "tools/list" }, open)).status, 404);
    assert.deepEqual(await fake.control("GET", "/rejected"), []);
  });

  it("logs what it carries out, whether it answers or not, and nothing else", async () => {
    const open = await session();
    for (const mode of ["cut", "drop"] as const) {
      await fake.control("PUT", "/control", { mode, tool: "add_note", times: 1 });
      await assert.rejects(post(call(mode === "cut" ? 2 : 3, "add_note", { text: mode }), open));
    }
    const refused = await post(call(4, "nothing", {}), open);
    assert.equal(((await refused.json()) as { error: { code: number } }).error.code, -32_602);
    const log = await fake.log();
    assert.deepEqual(
      log.map((entry) => entry["arguments"]),
      [{ text: "cut" }],
    );
  });

  it("creates one ticket for one key, finds it by that, and does not repeat the question when there is none", async () => {
    const open = await session();
    const ask = async (id: number, name: string, args: object) => {
      const response = await post(call(id, name, args), open);
      return ((await response.json()) as { result: { structuredContent: object } }).result.structuredContent;
    };
    const first = await ask(2, "create_ticket", { title: "a", key: "k" });
    assert.deepEqual(await ask(3, "create_ticket", { title: "b", key: "k" }), first);
    assert.deepEqual(await ask(4, "find_ticket", { key: "k" }), { found: true, ...first });
    assert.ok(!JSON.stringify(await ask(5, "find_ticket", { key: "absent" })).includes("absent"));
  });
});
