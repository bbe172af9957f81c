/** What the scripted model says in the journeys. Everything without a marker gets its built-in answer. */
import type { ScriptBook } from "@pawl/fakes";
import { urlOf } from "../../hack/demo/fakes.ts";

const WORLD = urlOf("world", "pawl-e2e-agents");
const order = {
  name: "http_request",
  arguments: { method: "POST", url: `${WORLD}/keyed/{{path}}`, body: { tea: "Assam" } },
};

/** Longer than a status shows; its end tells whether all of it arrived. */
export const LONG_ANSWER = `${"One of many lines of a long answer.\n".repeat(120)}This is the end of it.`;

/** What a message means to the work under way: this text is in every such question, and in no message. */
const relation = { match: "The further message is:", steps: [{ text: '{"relation":"refines"}', reword: false }] };

/** Told apart by what is asked, since the question about a message repeats what was asked before. The newest comes first. */
const busy = {
  "busy-coffee": { match: "Coffee for the busy desk", steps: [{ text: "Coffee it is." }] },
  "busy-tea": { match: "Tea for the busy desk", steps: [{ text: "Never said.", hold: true }] },
  "busy-short": { match: "Keep the busy list short", steps: [{ text: "A short list." }] },
  "busy-list": { match: "Make a list for the busy desk", steps: [{ text: "A long list.", hold: true }] },
  "busy-juice": { match: "Juice for the busy desk", steps: [{ text: "Juice it is." }] },
  "busy-water": { match: "Water for the busy desk", steps: [{ text: "Water it is.", hold: true }] },
  "busy-soup": { match: "Soup for the busy desk", steps: [{ text: "Never said.", hold: true }] },
};

export const book: ScriptBook = {
  scripts: {
    relation,
    ...busy,
    // script:order path=NAME places one order in the world.
    order: { steps: [{ calls: [order] }, { text: "Ordered." }] },
    // One ticket in the tracker that is an MCP server.
    ticket: {
      steps: [
        { calls: [{ name: "desk_create_ticket", arguments: { title: "The door squeaks" } }], reword: false },
        { text: "The ticket is there." },
      ],
    },
    long: { steps: [{ text: LONG_ANSWER }] },
    held: { steps: [{ text: "Released.", hold: true }] },
    // The first request is never answered; whoever asks again is.
    survive: { steps: [[{ text: "Never heard.", hold: true }, { text: "Survived." }]] },
  },
};
