// The other side of the comparison: an agent loop as common frameworks run it. It saves a checkpoint after each step and,
// when it is started again, goes on from the last one. It is as good as that gets: no step is forgotten, no finished
// step is repeated. What it cannot know is whether the step that was under way when it died has changed the world.
// (A key that is saved before the request leaves would help at a receiver that honours keys, if somebody remembers to.)
//
// node hack/try/plain-loop.ts --model URL --checkpoint FILE --ask TEXT [--die-at PLACE]
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";

type Call = { id: string; function: { name: string; arguments: string } };
type Message = { role: string; content: string | null; tool_calls?: Call[]; tool_call_id?: string };

const text = { type: "string", default: "" } as const;
const { values } = parseArgs({ options: { model: text, checkpoint: text, ask: text, "die-at": text } });

/** Where it can be killed, as Pawl's failpoints do it. */
function place(name: string): void {
  if (values["die-at"] === name) process.kill(process.pid, "SIGKILL");
}

const parameters = { type: "object", properties: { method: { type: "string" }, url: { type: "string" }, body: {} } };
const tools = [{ type: "function", function: { name: "http_request", description: "Sends a request.", parameters } }];

async function askModel(messages: Message[]): Promise<Message> {
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify({ model: "scripted", messages, tools });
  const response = await fetch(`${values.model}/v1/chat/completions`, { method: "POST", headers, body });
  if (!response.ok) throw new Error(`the model answered ${response.status}: ${await response.text()}`);
  return ((await response.json()) as { choices: [{ message: Message }] }).choices[0].message;
}

async function runTool(call: Call): Promise<Message> {
  const { method, url, body } = JSON.parse(call.function.arguments) as { method: string; url: string; body: unknown };
  const headers = { "content-type": "application/json" };
  const response = await fetch(url, { method, headers, body: JSON.stringify(body) });
  return { role: "tool", tool_call_id: call.id, content: `HTTP ${response.status}\n${await response.text()}` };
}

const messages: Message[] = existsSync(values.checkpoint)
  ? (JSON.parse(readFileSync(values.checkpoint, "utf8")) as Message[])
  : [{ role: "user", content: values.ask }];

function checkpoint(...added: Message[]): void {
  messages.push(...added);
  writeFileSync(`${values.checkpoint}.new`, JSON.stringify(messages));
  renameSync(`${values.checkpoint}.new`, values.checkpoint);
  place("checkpoint:saved");
}

for (let last = messages.at(-1); last?.role !== "assistant" || last.tool_calls !== undefined; last = messages.at(-1)) {
  if (last?.role === "assistant") {
    place("before:tool");
    const results = await Promise.all((last.tool_calls ?? []).map(runTool));
    place("after:tool");
    checkpoint(...results);
  } else {
    place("before:model");
    const answer = await askModel(messages);
    place("after:model");
    checkpoint(answer);
  }
}
console.log(messages.at(-1)?.content);
