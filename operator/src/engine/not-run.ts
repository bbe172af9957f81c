/** What the model reads of a call that was not run, or not to its end. */
export const NOT_RUN = {
  stopped: "Not run: a person asked to stop.",
  late: "Not run to its end: the time that this request may take is used up.",
  newer: "Not run: there is newer input. Read it first.",
  restarted: "Not run to its end: newer input restarted this turn.",
  ambiguous:
    "NOT run now: an earlier write to the same target has no known outcome. Go and look at what is there before anything else; do not assume either way.",
  undone: "(Not undone again: this is the recorded result of the undo before.)",
  gone: "Not run: this tool is no longer offered.",
} as const;
