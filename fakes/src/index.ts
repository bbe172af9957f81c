/** Strict stand-ins for services on the internet, one process each. */
export { type Fake, type FakeKind, type FakeOptions, startFake } from "./launch.ts";
export type { ModelAnswer, ModelFault, ModelScript, ScriptBook } from "./model-script.ts";
export type { LogEntry } from "./request-log.ts";
export type { WorldControl, WorldMode } from "./world-modes.ts";
