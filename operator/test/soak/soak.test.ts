/** A minute of `npm run soak`: random sequences against the engine, with another seed each time. */
import fc from "fast-check";
import assert from "node:assert/strict";
import { sharedPostgres } from "../support/postgres.ts";
import { PLACES, sequence, Soak, Tally } from "./soak.ts";

const SEQUENCES = 80;
/** Past the time no new sequence is begun; how many there were is said. */
const MINUTE_MS = 60_000;
const SEED = Date.now() % 2 ** 31;

describe("the engine, with two workers that die, late answers and people", function () {
  this.timeout(180_000);

  it(`keeps every invariant, loses nothing and does nothing twice (seed ${SEED})`, async () => {
    const tally = new Tally();
    const soak = Soak.open(await (await sharedPostgres()).create(), tally);
    try {
      const result = await fc.check(
        fc.asyncProperty(sequence, (steps) => soak.run(steps)),
        { seed: SEED, numRuns: SEQUENCES, interruptAfterTimeLimit: MINUTE_MS },
      );
      const told = `${result.numRuns} sequences: ${JSON.stringify(result.counterexample)}\n${(result.errorInstance as Error | null)?.stack}`;
      assert.equal(result.counterexample, null, told);
      assert.ok(result.numRuns >= 10, `${result.numRuns} sequences in a minute prove nothing`);
      const missed = PLACES.filter((place) => !tally.counts.has(place));
      // Of a few sequences one place may be missed by chance; most may not.
      assert.ok(missed.length <= 3, `never came to: ${missed.join(", ")}`);
    } finally {
      await soak.close();
    }
  });
});
