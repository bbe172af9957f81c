/** Strict stand-ins for services on the internet, one process each. */
export { type Fault, FaultProxy, type FaultProxyOptions, type Seen, startFaultProxy } from "./fault-proxy.ts";
export { type Fake, type FakeKind, type FakeOptions, startFake } from "./launch.ts";
export type { ModelAnswer, ModelFault, ModelScript, ScriptBook } from "./model-script.ts";
export type { McpControl, McpMode } from "./mcp-modes.ts";
export { LONG_NAME } from "./mcp-tracker.ts";
export type { LogEntry } from "./request-log.ts";
export type { WorldControl, WorldMode } from "./world-modes.ts";
