/** One system that people talk to, in a process of its own. node bench/talk/worker.ts SYSTEM URL, spoken to over the channel of `fork`. */
import type { Answer } from "../system.ts";
import type { Mode, Outcome, Talk, TalkSystem } from "./system.ts";

const say = (answer: Answer<Outcome>): void => {
  process.send?.(answer);
};

async function load(name: string): Promise<TalkSystem> {
  const [system, way = ""] = name.split(" ");
  if (system === "pawl") return (await import("./pawl.ts")).pawl(way as Mode);
  return (await import("./chat.ts")).chatSdk(way);
}

const [, , name, url] = process.argv;
if (name === undefined || url === undefined) throw new Error("usage: worker.ts SYSTEM URL");
try {
  const system = await load(name);
  await system.open(url);
  process.on("message", (talk: Talk) => {
    void system.talk(talk).then(
      (measured) => say({ kind: "measured", measured }),
      (error: Error) => say({ kind: "unavailable", why: error.stack ?? error.message }),
    );
  });
  process.on("disconnect", () => process.exit());
  say({ kind: "ready" });
} catch (error) {
  say({ kind: "unavailable", why: (error as Error).message });
  process.disconnect();
}
