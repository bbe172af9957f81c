/** Every limit of a model call, with its reason. */

/**
 * Until the first byte of the answer's body. Endpoints that do not stream send nothing before the whole answer is
 * ready, and reasoning models think before their first token; two minutes covers both, and is less than the five
 * minutes after which Node's fetch gives up with a less telling error.
 */
export const FIRST_BYTE_MS = 120_000;

/** Between two chunks: a stream that is silent for a minute has died (servers send comments to keep it open). */
export const BETWEEN_CHUNKS_MS = 60_000;

/** One attempt as a whole, when the Agent sets no `timeout`: half of the default deadline of a request. */
export const TOTAL_MS = 300_000;

/** An answer of this size is no answer of a model: 8 MiB is over a million tokens with all their envelopes. */
export const MAX_RESPONSE_BYTES = 8 * 1024 * 1024;

/** What is read of an error's body: enough for every provider's message, not enough to hurt. */
export const MAX_ERROR_BYTES = 16 * 1024;

/** What is quoted of a provider's message in ours, in characters: it has to fit a condition that people read. */
export const MAX_QUOTE = 300;
