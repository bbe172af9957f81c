/** Limits of the loop, each with its reason. Agents and the install may lower the budgets among them. */

/** A lease outlives two missed renewals, and a dead worker is noticed within ten seconds. */
export const LEASE_MS = 10_000;
export const RENEW_MS = 3_000;
/** The first byte of an effect leaves within this after its row, or never: longer pauses are somebody else's turn. */
export const SEND_MS = 10_000;
/** Between the end of a call's own time limit and `settle_at`: the sender closes its connection in it. */
export const SETTLE_SLACK_MS = 1_000;
/** How often a worker looks for due runs when no notification comes. */
export const POLL_MS = 500;
/** A wait for something a person must provide (a Secret): short enough to feel immediate, long enough to be no loop. */
export const WAIT_FOR_PERSON_MS = 5_000;
/** A person who is asked today answers by tomorrow; after that a call is not what he thinks it is any more. */
export const APPROVAL_EXPIRES_MS = 24 * 60 * 60 * 1_000;
/** As long as for an approval: who was asked in the evening answers in the morning. */
export const ANSWER_WITHIN_MS = 24 * 60 * 60 * 1_000;
/** Longer than any Run is kept. */
export const MAX_WAIT_FOR_PERSON_MS = 366 * 24 * 60 * 60 * 1_000;
/** Responses without any usable content in a row, after which the run fails visibly instead of asking for ever. */
export const MAX_UNUSABLE_RESPONSES = 3;
/** Calls that one response may ask for; the rest is rejected with a sentence. */
export const MAX_CALLS_PER_RESPONSE = 64;
/** Characters kept of a response's text: above every model's output limit, below what a row should carry. */
export const MAX_RESPONSE_TEXT = 256 * 1024;
/** Characters of one call's arguments: the largest body that a tool takes, escaped. Longer ones are rejected. */
export const MAX_ARGUMENTS = 512 * 1024;
/** What is kept of arguments that were rejected: enough to see what was meant. */
export const MAX_REJECTED_ARGUMENTS = 2_000;
/** Levels of nesting in arguments: PostgreSQL and the stack of JSON.stringify have an end, too. */
export const MAX_ARGUMENT_DEPTH = 64;
/** Characters of one call's result, whatever its tool hands back. */
export const MAX_RESULT = 64 * 1024;
/** Names and ids that providers make up. */
export const MAX_NAME = 128;
/** Bytes of an effect's target: it stands in unique indexes, whose rows end at 2.7 kB. */
export const MAX_TARGET_BYTES = 1024;
/** Effects that a closing message names one by one. */
export const MAX_NAMED_EFFECTS = 20;
/** Budgets where neither Agent nor install says anything. */
export const DEFAULT_ITERATIONS = 50;
export const DEFAULT_MODEL_CALLS = 60;
export const DEFAULT_TOOL_CALLS = 200;
export const DEFAULT_WALL_CLOCK_MS = 3_600_000;
/** Runs of one agent at work at once, where neither Agent nor install says anything. */
export const DEFAULT_MAX_RUNS = 10;
/** How long the closing call may take once the rest is used up: a person waits for it. */
export const CLOSING_MS = 30_000;
/** The most that a closing message needs; what is left of a limit must pay for it. */
export const CLOSING_OUTPUT_TOKENS = 1_000;
/** Assumed where the endpoint's context is not named: what the smallest current models take. */
export const DEFAULT_CONTEXT_TOKENS = 128_000;
/** Characters per token, rounded down so that an estimate errs towards leaving out. */
export const CHARS_PER_TOKEN = 3;
/** Share of the context that earlier turns may fill. */
export const HISTORY_SHARE = 1 / 3;
/** Effects wait this long at most for somebody to say what a newer message means: about what a small model takes. */
export const MAX_HOLD_MS = 1_500;
/** Turns in a row that programs opened, after which only a person opens the next: two agents would thank each other for ever. */
export const MAX_BOT_TURNS = 6;
/**
 * Run formats (`runs.min_code`). 2: a call may have to wait for an approval. 3: it took in messages while it was at work,
 * or goes on from the steps of other runs; code of before would ask the model without them.
 */
export const STEERED_CODE = 3;
/** The newest that this code writes and reads. */
export const CODE = STEERED_CODE;
