// The four shops of the witness, what is asked of them, and what the scripted model says.
import type { ModelScript, ScriptBook } from "@pawl/fakes";

/**
 * North and south are the same kind of shop: it honours Idempotency-Key. East honours none, but writes it down and lets
 * its orders be looked at. West honours none, and nobody told its clerk where to look.
 */
export const SHOPS = {
  north: "/keyed/north/orders",
  south: "/keyed/south/orders",
  east: "/plain/east/orders",
  west: "/plain/west/orders",
} as const;
export type Shop = keyof typeof SHOPS;

/** Honours keys like north, and takes orders back. Its clerk is talked to while he works. */
export const INN = "/keyed/inn/orders";

export const orderText = (order: string): string => `Please order one pot of Assam, order number ${order}.`;

function script(world: string, shop: Shop, order: string): ModelScript {
  const body = { order, tea: shop === "west" ? "Ceylon" : "Assam", pots: 1 };
  const last =
    shop === "west"
      ? "I cannot tell whether the west shop took the order: its answer never came. Ask there before you order again."
      : "Your pot of Assam is ordered.";
  return {
    match: `order number ${order}.`,
    steps: [
      {
        text: "I place the order.",
        calls: [{ name: "http_request", arguments: { method: "POST", url: `${world}${SHOPS[shop]}`, body } }],
      },
      { text: last },
    ],
  };
}

/** Whoever asks what a message means to the work under way: this text is in every such question, and comes first. */
const relation: ModelScript = {
  match: "The further message is:",
  steps: [{ text: '{"relation":"refines"}', reword: false }],
};

/** At the inn. The newest message is found first: what was said later stands above what was said before. */
function innScripts(world: string): Record<string, ModelScript> {
  const order = (body: object) => [
    { name: "http_request", arguments: { method: "POST", url: `${world}${INN}`, body: { ...body } } },
  ];
  return {
    "inn-2-late": {
      match: "Rather not after all",
      steps: [
        { text: "I take the order back.", calls: [{ name: "undo", arguments: { effect: "{{effect}}" } }] },
        { text: "Your order inn-2 is taken back; nothing of it stays." },
      ],
    },
    "inn-1-three": {
      match: "three pots after all",
      steps: [
        { text: "I place the order.", calls: order({ order: "inn-1", tea: "Darjeeling", pots: 3 }) },
        { text: "Three pots of Darjeeling are ordered." },
      ],
    },
    "inn-2": {
      match: "order number inn-2.",
      steps: [
        { text: "I place the order.", calls: order({ order: "inn-2", tea: "Assam", pots: 1 }) },
        { text: "Your pot of Assam is ordered.", hold: true },
      ],
    },
    "inn-1": { match: "order number inn-1.", steps: [{ text: "Let me think.", hold: true }] },
  };
}

/** Every order that may be asked: numbers 1 to `count` at north and south, one at east and west. */
export function scriptBook(world: string, count: number): ScriptBook {
  const orders: [Shop, string][] = [
    ["east", "east-1"],
    ["west", "west-1"],
  ];
  for (let number = 1; number <= count; number += 1) {
    orders.push(["north", `north-${number}`], ["south", `south-${number}`]);
  }
  const asked = Object.fromEntries(orders.map(([shop, order]) => [order, script(world, shop, order)]));
  return { scripts: { relation, ...innScripts(world), ...asked } };
}
