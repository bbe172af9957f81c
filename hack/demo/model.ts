// Which model the first Run asks, and what the scripted one says.
import type { ScriptBook } from "@pawl/fakes";
import type { RealModel } from "../lib/environment.ts";
import { urlOf } from "./fakes.ts";
import { DEMO, SYSTEM } from "./places.ts";

export const KEY_SECRET = "pawl-demo-model-key";
export const ORDERS = "/keyed/orders";
export const SCRIPTED = { baseURL: `${urlOf("model", DEMO)}/v1`, model: "scripted" };

/** The text that makes the scripted model place one order. Anything else gets its built-in answer. */
export const ORDER_TEXT = "Please order one pot of Assam.";

export const book: ScriptBook = {
  scripts: {
    order: {
      match: ORDER_TEXT,
      steps: [
        {
          text: "I place the order.",
          calls: [
            {
              name: "http_request",
              arguments: { method: "POST", url: `${urlOf("world", DEMO)}${ORDERS}`, body: { tea: "Assam", pots: 1 } },
            },
          ],
        },
        { text: "Your pot of Assam is ordered, once. (A scripted model says so; the world's log shows it.)" },
      ],
    },
  },
};

/** The chart's values that name the model, and the Secret with its key. */
export function modelValues(real: RealModel | undefined): { values: object; secrets: object[] } {
  if (real === undefined) return { values: { defaults: { models: { primary: SCRIPTED } } }, secrets: [] };
  const { baseURL, model, apiKey } = real;
  const values = { defaults: { models: { primary: { baseURL, model } } } };
  if (apiKey === undefined) return { values, secrets: [] };
  const metadata = { name: KEY_SECRET, namespace: SYSTEM };
  return {
    values: { ...values, defaultModel: { existingSecret: { name: KEY_SECRET, key: "apiKey" } } },
    secrets: [{ apiVersion: "v1", kind: "Secret", metadata, stringData: { apiKey } }],
  };
}
