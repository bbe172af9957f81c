import assert from "node:assert/strict";
import type { KubeObject } from "#kube/resources.ts";
import { Arrivals } from "#controllers/run/order.ts";

type Made = { at?: string; version?: string; conversation?: string; agent?: string; status?: object; cancel?: object };

const run = (name: string, made: Made = {}): KubeObject => ({
  apiVersion: "pawl.dev/v1alpha1",
  kind: "Run",
  metadata: {
    name,
    namespace: "demo",
    uid: `uid-${name}`,
    creationTimestamp: made.at ?? "2026-03-01T12:00:00Z",
    resourceVersion: made.version ?? "100",
  },
  spec: {
    agentRef: { name: made.agent ?? "hello" },
    conversation: made.conversation ?? "tea",
    input: { text: "?", actor: "alice" },
    ...(made.cancel === undefined ? {} : { cancel: made.cancel }),
  },
  ...(made.status === undefined ? {} : { status: made.status }),
});

const ahead = (others: KubeObject[], object: KubeObject): string | undefined => {
  const arrivals = new Arrivals();
  for (const one of [...others, object]) arrivals.note(one);
  return arrivals.ahead([...others, object], object)?.metadata.name;
};

describe("a Run of a conversation", () => {
  const second = run("two", { at: "2026-03-01T12:00:01Z", version: "50" });

  it("waits for the one that was made before it", () => {
    assert.equal(ahead([run("one")], second), "one");
    assert.equal(ahead([second], run("one")), undefined);
  });

  it("knows within one second who was there first", () => {
    const late = run("a-late", { version: "9" });
    const early = run("z-early", { version: "8" });
    assert.equal(ahead([early], late), "z-early");
    assert.equal(ahead([late], early), undefined);
    assert.equal(ahead([run("ten", { version: "10" })], late), undefined, "versions are numbers");
  });

  it("keeps its place when a status is written to it", () => {
    const arrivals = new Arrivals();
    const early = run("early", { version: "8" });
    const late = run("late", { version: "9" });
    arrivals.note(early);
    arrivals.note(late);
    const written = run("early", { version: "20", status: { phase: "Queued", reason: "AgentNotFound" } });
    arrivals.note(written);
    assert.equal(arrivals.ahead([written, late], late)?.metadata.name, "early");
    assert.equal(arrivals.ahead([written, late], written), undefined);
  });

  it("waits for none that is a message, is finished, is cancelled, or is of another conversation or agent", () => {
    const finished = { conditions: [{ type: "Finished", status: "True" }] };
    for (const other of [
      run("one", { status: { ledger: { epoch: 1, seq: 1 } } }),
      run("one", { status: finished }),
      run("one", { cancel: { actor: "alice" } }),
      run("one", { conversation: "coffee" }),
      run("one", { agent: "clerk" }),
    ]) {
      assert.equal(ahead([other], second), undefined);
    }
  });

  it("without a conversation waits for nobody", () => {
    const alone = run("alone", { at: "2026-03-01T12:00:09Z" });
    delete (alone["spec"] as { conversation?: string }).conversation;
    assert.equal(ahead([run("one")], alone), undefined);
  });

  it("that went makes way", () => {
    const arrivals = new Arrivals();
    const one = run("one");
    arrivals.note(one);
    arrivals.forget(one);
    assert.equal(arrivals.ahead([second], second), undefined);
  });
});
