import assert from "node:assert/strict";
import type { AgentStatus } from "@pawl/crds";
import { accept, agentStatusOf, askingStatusOf } from "#controllers/agent/decide.ts";
import { type Holding, holderOf, holdOf } from "#controllers/agent/hold.ts";
import { installationId } from "#controllers/identity.ts";
import { agentObject, CONFIG, INSTALL, NOW } from "./support.ts";

const OTHER = { ...INSTALL, bornAt: new Date("2026-03-01T11:45:00Z") };
const ours = installationId(INSTALL);
const settled = (install = INSTALL): AgentStatus =>
  agentStatusOf(agentObject(), accept(agentObject(), CONFIG), null, install, NOW);
/** `asker` has put his question over the status of `holder`. */
const asked = (asker = INSTALL, holder = OTHER): AgentStatus =>
  askingStatusOf({ ...agentObject(), status: settled(holder) }, asker, NOW);

const TAKEOVER_MS = 30_000;
type Row = readonly [what: string, holding: Partial<Holding>, does: string];
const TABLE: readonly Row[] = [
  ["is served when nobody does", { status: undefined }, "serve"],
  ["is served when it is ours", { status: settled() }, "serve"],
  ["is asked for when it is another's", { status: settled(OTHER) }, "ask"],
  ["is asked for even when it was ours once", { status: settled(OTHER), known: true }, "ask"],
  ["waits while our question stands", { status: asked(), askedForMs: 29_999 }, "wait"],
  ["waits anew when the question is of a process before this one", { status: asked(), askedForMs: null }, "wait"],
  ["is ours when nobody has answered", { status: asked(), askedForMs: 30_000 }, "serve"],
  ["is given up when the other has answered", { status: settled(OTHER), askedForMs: 5 }, "give up"],
  ["is left alone after an answer", { status: settled(OTHER), refused: true }, "leave"],
  ["is taken back when another asks and it is ours", { status: asked(OTHER, INSTALL), known: true }, "serve"],
  ["is left to the other who asks when we do not know it", { status: asked(OTHER), known: false }, "leave"],
  ["is left to the other who asks after we did", { status: asked(OTHER), known: true, askedForMs: 5 }, "leave"],
];

describe("an Agent that two installs see", () => {
  for (const [what, holding, does] of TABLE) {
    it(what, () => {
      const whole = { status: undefined, ours, known: false, askedForMs: null, refused: false, ...holding };
      assert.equal(holdOf(whole, TAKEOVER_MS).do, does);
    });
  }

  it("is nobody's to read as ours while a question stands", () => {
    assert.equal(holderOf(settled(), ours), "ours");
    assert.equal(holderOf(asked(), ours), "other");
    assert.equal(holderOf(settled(OTHER), ours), "other");
    assert.equal(holderOf(undefined, ours), "nobody");
  });

  it("is not claimed where its namespace is not served", () => {
    const object = agentObject({}, { namespace: "elsewhere" });
    const status = agentStatusOf(object, accept(object, CONFIG), null, INSTALL, NOW);
    assert.equal(status.installation, undefined);
  });

  it("tells installs apart by their ledgers", () => {
    assert.notEqual(installationId(INSTALL), installationId(OTHER));
    assert.notEqual(installationId(INSTALL), installationId({ ...INSTALL, epoch: 2 }));
    assert.equal(installationId(INSTALL), installationId({ ...INSTALL }));
  });
});
