/** Bounds of what is believed of an MCP server, each with its reason. */

/** The newest first: what initialize asks for. Answers of any of them are understood. */
export const PROTOCOL_VERSIONS = ["2025-11-25", "2025-06-18", "2025-03-26"] as const;

/** Tools taken of one server: more than a model can choose among, less than would fill its context. */
export const MAX_TOOLS = 128;
/** Pages of a listing: a server that never ends its list ends it here. */
export const MAX_PAGES = 32;
/** Characters of a tool's own name; the protocol advises 128. */
export const MAX_TOOL_NAME = 128;
/** Characters of a description: what is longer is a manual, not a description. */
export const MAX_DESCRIPTION = 2_048;
/** Bytes of one input schema: it goes into every request. */
export const MAX_SCHEMA = 16 * 1024;
/** Bytes of one answer of a server that are read. */
export const MAX_ANSWER = 4 * 1024 * 1024;
/** From the first byte to the closed connection. Listing and opening a session do no work for anybody. */
export const LIST_MS = 10_000;
export const CALL_MS = 60_000;
/** A session is closed as a courtesy. */
export const CLOSE_MS = 1_000;
