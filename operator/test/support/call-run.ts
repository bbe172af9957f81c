/** A run for tools that are tried without one. */
import type { CallRun } from "#engine/ports.ts";

export const CALL_RUN: CallRun = {
  runId: "01980000-0000-7000-8000-000000000001",
  agentId: "01980000-0000-7000-8000-000000000002",
  conversationId: "01980000-0000-7000-8000-000000000003",
  namespace: "demo",
};
