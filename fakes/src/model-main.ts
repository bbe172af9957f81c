/**
 * A scripted OpenAI-compatible endpoint, as strict as strict providers are.
 *
 * node fakes/src/model-main.ts --port 0 --log FILE [--script FILE] [--key KEY] [--context-tokens N]
 *
 * Service: POST /v1/chat/completions, GET /v1/models. Control: PUT /script, POST /release, GET /log[?atLeast=N],
 * GET /rejected, GET /healthz, GET /.
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { parseJson, readBody, sendJson } from "./http.ts";
import { demoAnswer, sayingOnly } from "./model-demo.ts";
import { type Rendered, renderJson, renderStream } from "./model-render.ts";
import { answerOf, type Choice, choose, type ModelAnswer, type ModelFault, scriptBook } from "./model-script.ts";
import { type CheckedRequest, checkRequest, countTokens, invalid, type Refusal } from "./model-strict.ts";
import { RequestLog } from "./request-log.ts";
import { fakeArguments, serveCommon, serveFake } from "./serve.ts";

/** A model of this name says what follows, whatever it is asked: a small model that has made up its mind. */
const SAYS = "says:";
const NOTE = "a scripted stand-in for a model: it follows a script and never thinks";

const options = fakeArguments(["script", "key", "context-tokens"]);
const contextTokens = options.own["context-tokens"] === undefined ? undefined : Number(options.own["context-tokens"]);
const log = new RequestLog(options.log, { fake: "model", scripted: true, note: NOTE });
const rejected: Refusal[] = [];
const samples = new Map<string, number>();
const held = new Set<() => void>();
let book = scriptBook.parse(
  options.own["script"] === undefined ? { scripts: {} } : JSON.parse(readFileSync(options.own["script"], "utf8")),
);

function refuse(response: ServerResponse, refusal: Refusal): void {
  rejected.push(refusal);
  const { status, ...error } = refusal;
  sendJson(response, status, { error });
}

function authorized(request: IncomingMessage): boolean {
  return options.own["key"] === undefined || request.headers.authorization === `Bearer ${options.own["key"]}`;
}

/** How often this step of this conversation was sampled before. The only state an answer depends on. */
function nextSample(messages: CheckedRequest["messages"], choice: Choice): number {
  const conversation = JSON.stringify([choice.script, choice.step, messages.slice(0, choice.start + 1)]);
  const key = createHash("sha256").update(conversation).digest("hex");
  const sample = samples.get(key) ?? 0;
  samples.set(key, sample + 1);
  return sample;
}

async function complete(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const text = await readBody(request);
  if (text === undefined) return void response.destroy();
  if (!authorized(request)) {
    const message = "Incorrect API key provided. You can find your API key in the settings of your provider.";
    return refuse(response, {
      status: 401,
      message,
      type: "invalid_request_error",
      param: null,
      code: "invalid_api_key",
    });
  }
  const checked = checkRequest(parseJson(text), contextTokens);
  if (!checked.ok) return refuse(response, checked.refusal);
  const { model } = checked.request;
  if (model.startsWith(SAYS))
    return deliver(
      response,
      checked.request,
      sayingOnly(model.slice(SAYS.length)),
      log.append({ path: "/v1/chat/completions", model }).seq,
    );
  const choice = choose(book, checked.request.messages);
  if (choice.script !== undefined && book.scripts[choice.script] === undefined) {
    return refuse(response, invalid(`The scripted model has no script named '${choice.script}'.`, "messages"));
  }
  const sample = nextSample(checked.request.messages, choice);
  const answer = pickAnswer(checked.request, choice, sample);
  const { seq } = log.append({
    path: "/v1/chat/completions",
    model: checked.request.model,
    script: choice.script ?? "(demo)",
    step: choice.step,
    sample,
    stream: checked.request.stream === true,
    answer: answer.fault === undefined ? "response" : `fault:${answer.fault.kind}`,
    request: checked.request,
  });
  await deliver(response, checked.request, answer, seq);
}

function pickAnswer(request: CheckedRequest, choice: Choice, sample: number): ModelAnswer {
  const { script } = choice;
  if (script === undefined) return demoAnswer(request, choice);
  const answer = answerOf(book, { ...choice, script }, sample);
  if (answer !== undefined) return answer;
  // Said in the answer, so that a run that asks once more than its script expects ends visibly instead of looping.
  return { ...demoAnswer(request, choice), text: `The script ${script} has no step ${choice.step}.`, calls: undefined };
}

async function deliver(
  response: ServerResponse,
  request: CheckedRequest,
  answer: ModelAnswer,
  seq: number,
): Promise<void> {
  if (answer.hold) {
    await new Promise<void>((resolve) => {
      held.add(resolve);
      response.once("close", () => held.delete(resolve) && resolve());
    });
    if (response.destroyed) return;
  }
  const context = {
    id: `${seq}`,
    model: request.model,
    promptTokens: countTokens(request),
    includeUsage: request.stream_options?.include_usage === true,
  };
  const streamed = request.stream === true && answer.streaming === "asked";
  const rendered = streamed ? renderStream(answer, context) : renderJson(answer, context);
  if (answer.fault === undefined) return send(response, 200, rendered);
  misbehave(response, answer.fault, rendered, streamed);
}

function send(response: ServerResponse, status: number, { contentType, body }: Rendered): void {
  response.writeHead(status, { "content-type": contentType });
  response.end(body);
}

function misbehave(response: ServerResponse, fault: ModelFault, rendered: Rendered, streamed: boolean): void {
  const part = (at: number): Buffer => Buffer.from(rendered.body).subarray(0, at);
  switch (fault.kind) {
    case "status":
      return sendJson(
        response,
        fault.status,
        fault.body ?? {
          error: { message: `scripted status ${fault.status}`, type: "scripted", param: null, code: null },
        },
        fault.headers,
      );
    case "html":
      return send(response, 200, { contentType: "text/html", body: "<!doctype html><title>Welcome</title><p>Sign in" });
    case "error-200":
      return sendJson(response, 200, { error: fault.error });
    case "error-event":
      return streamed ? send(response, 200, rendered) : sendJson(response, 200, { error: fault.error });
    case "empty-choices":
      return send(response, 200, rendered);
    case "reset":
      return void response.socket?.resetAndDestroy();
    case "cut":
      // A declared length makes the loss detectable for plain JSON, as it is with real servers.
      response.writeHead(200, {
        "content-type": rendered.contentType,
        ...(streamed ? {} : { "content-length": String(Buffer.byteLength(rendered.body)) }),
      });
      response.flushHeaders();
      return void response.write(part(fault.at), () => response.socket?.resetAndDestroy());
    case "eof":
      response.writeHead(200, { "content-type": rendered.contentType });
      return void response.end(part(fault.at));
    case "stall":
      if (fault.at === undefined) return;
      response.writeHead(200, { "content-type": rendered.contentType });
      response.flushHeaders();
      if (fault.at > 0) response.write(part(fault.at));
      return;
  }
}

async function handle(request: IncomingMessage, response: ServerResponse, url: URL): Promise<void> {
  const route = `${request.method} ${url.pathname}`;
  if (route === "POST /v1/chat/completions") return await complete(request, response);
  if (await serveCommon(log, request, response, url)) return;
  if (route === "GET /v1/models") {
    const data = [{ id: "scripted", object: "model", created: 1_700_000_000, owned_by: "pawl-fakes" }];
    return sendJson(response, 200, { object: "list", data });
  }
  if (route === "GET /rejected") return sendJson(response, 200, rejected);
  if (route === "GET /") return sendJson(response, 200, { fake: "model", scripted: true, note: NOTE });
  if (route === "POST /release") {
    const released = held.size;
    for (const release of held) release();
    held.clear();
    return sendJson(response, 200, { released });
  }
  if (route === "PUT /script") {
    const parsed = scriptBook.safeParse(parseJson((await readBody(request)) ?? ""));
    if (!parsed.success) return sendJson(response, 400, { error: { message: parsed.error.message } });
    book = parsed.data;
    samples.clear();
    return sendJson(response, 200, { scripts: Object.keys(book.scripts) });
  }
  const message = `Unknown request URL: ${route}.`;
  refuse(response, { status: 404, message, type: "invalid_request_error", param: null, code: "unknown_url" });
}

await serveFake({ fake: "model", arguments: options, handler: handle });
