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

/** Every order that may be asked: numbers 1 to `count` at north and south, one at east and west. */
export function scriptBook(world: string, count: number): ScriptBook {
  const orders: [Shop, string][] = [
    ["east", "east-1"],
    ["west", "west-1"],
  ];
  for (let number = 1; number <= count; number += 1) {
    orders.push(["north", `north-${number}`], ["south", `south-${number}`]);
  }
  return { scripts: Object.fromEntries(orders.map(([shop, order]) => [order, script(world, shop, order)])) };
}
