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

export const book: ScriptBook = {
  scripts: {
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
