/** Agents whose model needs a key: whatever is applied first, and only towards hosts that the Secret names. */
import assert from "node:assert/strict";
import { conditionOf } from "../../hack/demo/run-status.ts";
import { agentNamed, AGENTS, MODEL, MODEL_HOST, type Pawl, runNamed } from "../support/pawl.ts";

const secret = (name: string, hosts?: string): object => ({
  apiVersion: "v1",
  kind: "Secret",
  metadata: {
    name,
    namespace: AGENTS,
    ...(hosts === undefined ? {} : { annotations: { "pawl.dev/hosts": hosts } }),
  },
  stringData: { apiKey: "a-key-of-a-test" },
});

const agent = (name: string): object =>
  agentNamed(name, { models: { primary: { ...MODEL, apiKeySecretRef: { name, key: "apiKey" } } } });

export function secretJourneys(pawl: () => Pawl): void {
  const unresolved = async (name: string) => {
    await pawl().run("wait", "--for=condition=ResolvedRefs=False", "--timeout=60s", `agents.pawl.dev/${name}`);
    const object = await pawl().kubectl.get("agents.pawl.dev", name, AGENTS);
    assert.ok(object);
    return conditionOf(object, "ResolvedRefs");
  };

  describe("an Agent with a Secret", () => {
    it("says which one is missing, and becomes Ready when it appears", async () => {
      await pawl().kubectl.apply(agent("missing"));
      const said = await unresolved("missing");
      assert.equal(said?.reason, "SecretMissing");
      assert.match(said.message, /missing does not exist: create it with a key "apiKey"/);
      await pawl().kubectl.apply(secret("missing", MODEL_HOST));
      await pawl().run("wait", "--for=condition=Ready", "--timeout=60s", "agents.pawl.dev/missing");
    });

    it("is refused one that does not offer itself to the model's host, and says how to offer it", async () => {
      await pawl().kubectl.apply(secret("unoffered", "models.example"), agent("unoffered"));
      const said = await unresolved("unoffered");
      assert.equal(said?.reason, "SecretRefused");
      assert.ok(said.message.includes(`offers itself to models.example, not to ${MODEL_HOST}`), said.message);
      const hint = /kubectl (annotate .*)$/.exec(said.message)?.[1]?.split(" ") ?? [];
      await pawl().kubectl.run(hint);
      await pawl().run("wait", "--for=condition=Ready", "--timeout=60s", "agents.pawl.dev/unoffered");
    });

    it("answers whatever the order of Run, Agent and Secret", async () => {
      const make = {
        run: (name: string) => runNamed(name, "Hello", { agentRef: { name } }),
        agent,
        secret: (name: string) => secret(name, MODEL_HOST),
      };
      const orders = [
        ["run", "agent", "secret"],
        ["run", "secret", "agent"],
        ["agent", "run", "secret"],
        ["secret", "run", "agent"],
      ] as const;
      for (const order of orders) for (const kind of order) await pawl().kubectl.apply(make[kind](order.join("-")));
      for (const order of orders) await pawl().until(order.join("-"), "Succeeded");
    });
  });
}
