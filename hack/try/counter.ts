// The kill counter: what the scenario did and what each side says of itself, as it goes. The witness is not asked.
import type { Count } from "./witness.ts";
import type { Shop } from "./shops.ts";

/** Of the writes asked for, as this side tells it: took place, nobody knows, provably did not (never sent in time). */
export type Tally = { kills: number; asked: number; confirmed: number; unknown: number; failed: number };

export const SIDES: Readonly<Record<Shop, string>> = {
  north: "Pawl, the shop honours keys",
  south: "plain loop, same kind of shop",
  east: "Pawl, the shop can be looked at",
  west: "Pawl, neither",
};

export class Counter {
  readonly of: Readonly<Record<Shop, Tally>> = {
    north: zero(),
    south: zero(),
    east: zero(),
    west: zero(),
  };

  get kills(): number {
    return Object.values(this.of).reduce((sum, { kills }) => sum + kills, 0);
  }

  /** One line; Pawl's shops together. */
  line(): string {
    const { south, ...pawls } = this.of;
    const sum = (of: keyof Tally) => Object.values(pawls).reduce((total, tally) => total + tally[of], 0);
    const [told, failed] = [sum("unknown"), sum("failed")];
    const pawl = `Pawl: ${sum("asked")} asked, ${sum("confirmed")} done`;
    const open = told === 0 ? "" : `, ${told} not known`;
    const not = failed === 0 ? "" : `, ${failed} not done`;
    return `kills ${this.kills} │ ${pawl}${open}${not} │ plain loop: ${south.asked} asked, ${south.confirmed} done`;
  }
}

function zero(): Tally {
  return { kills: 0, asked: 0, confirmed: 0, unknown: 0, failed: 0 };
}

export type Row = { readonly shop: Shop; readonly tally: Tally; readonly seen: Count };

/** Side by side: what each side says, and what the witness wrote down. */
export function comparison(rows: readonly Row[]): string[][] {
  return [
    ["", "KILLS", "ASKED", "SAYS: DONE", "SAYS: NOT KNOWN", "WITNESS: REQUESTS", "WRITES", "DOUBLED"],
    ...rows.map(({ shop, tally, seen }) => [
      `${shop}: ${SIDES[shop]}`,
      ...[tally.kills, tally.asked, tally.confirmed, tally.unknown, seen.requests, seen.writes, seen.doubled].map(
        String,
      ),
    ]),
  ];
}

/** Where Pawl's word and the witness's log differ, as sentences; the plain loop promises nothing. */
export function contradictions(rows: readonly Row[]): string[] {
  return rows
    .filter(({ shop }) => shop !== "south")
    .flatMap(({ shop, tally: { asked, confirmed, unknown, failed }, seen }) => {
      const lost = asked - confirmed - unknown - failed;
      return [
        ...(seen.doubled > 0 ? [`${shop}: ${seen.doubled} writes too many`] : []),
        ...(confirmed > seen.writes ? [`${shop}: ${confirmed} said to be done, ${seen.writes} happened`] : []),
        ...(lost > 0 ? [`${shop}: ${lost} orders are lost`] : []),
        ...(seen.writes > confirmed + unknown
          ? [`${shop}: ${seen.writes} happened, ${confirmed + unknown} are accounted for`]
          : []),
      ];
    });
}
