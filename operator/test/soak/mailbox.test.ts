/** A minute of `npm run soak -- --of mailbox`: 200 sequences against the mailbox, with another seed each time. */
import assert from "node:assert/strict";
import fc from "fast-check";
import { sharedPostgres } from "../support/postgres.ts";
import { mailSequence } from "./mail-sequence.ts";
import { MAIL_PLACES, Mailbox } from "./mailbox.ts";
import { Tally } from "./soak.ts";

const SEQUENCES = 200;
/** Past the time no new sequence is begun; how many there were is said. */
const LIMIT_MS = 75_000;
const SEED = Date.now() % 2 ** 31;

describe("a mailbox with two ingests and two workers, whatever comes when", function () {
  this.timeout(240_000);

  it(`has every message in exactly one place, loses none and answers no request twice (seed ${SEED})`, async () => {
    const tally = new Tally();
    const mailbox = Mailbox.open(await (await sharedPostgres()).create(), tally);
    try {
      const result = await fc.check(
        fc.asyncProperty(mailSequence, (sequence) => mailbox.run(sequence)),
        { seed: SEED, numRuns: SEQUENCES, interruptAfterTimeLimit: LIMIT_MS },
      );
      const told = `${result.numRuns} sequences: ${JSON.stringify(result.counterexample)}\n${(result.errorInstance as Error | null)?.stack}`;
      assert.equal(result.counterexample, null, told);
      assert.ok(result.numRuns >= 15, `${result.numRuns} sequences prove little`);
      const missed = MAIL_PLACES.filter((place) => !tally.counts.has(place));
      // Of a few sequences some place may be missed by chance; most may not.
      assert.ok(
        missed.length <= 3,
        `never came to ${missed.join(", ")}; sequences that go nowhere prove nothing: ${JSON.stringify([...tally.counts])}`,
      );
    } finally {
      await mailbox.close();
    }
  });
});
