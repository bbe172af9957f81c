/** What the model fake answers when no script is asked for: useful to look at, and open about being scripted. */
import type { Choice, ModelAnswer } from "./model-script.ts";
import type { CheckedRequest } from "./model-strict.ts";

const plain = { slots: "index", streaming: "asked", hold: false, reword: true, usage: true } as const;
const EXPRESSION = /\d+(?:\.\d+)?(?:\s*[-+*/]\s*\d+(?:\.\d+)?)+/;
/** Enough of the question to recognise it. */
const QUOTED = 200;

export const sayingOnly = (text: string): ModelAnswer => ({ ...plain, text });

export function demoAnswer(request: CheckedRequest, choice: Choice): ModelAnswer {
  const asked = request.messages[choice.start]?.content ?? "";
  const expression = EXPRESSION.exec(asked)?.[0];
  const offered = request.tools?.some((entry) => entry.function.name === "calculate") === true;
  if (choice.step === 0 && expression !== undefined && offered) {
    return { ...plain, calls: [{ name: "calculate", arguments: { expression } }] };
  }
  const result = request.messages.findLast((entry) => entry.role === "tool")?.content;
  if (choice.step > 0 && expression !== undefined && result !== undefined) {
    return {
      ...plain,
      text: `${expression} is ${result}. (A scripted model worked this out with the calculate tool.)`,
    };
  }
  const quoted = asked.length > QUOTED ? `${asked.slice(0, QUOTED)}…` : asked;
  return {
    ...plain,
    text:
      `You asked: “${quoted}”. This answer comes from a scripted stand-in, not from a real model: ` +
      "it shows that the run was taken up, thought about and answered exactly once.",
  };
}
