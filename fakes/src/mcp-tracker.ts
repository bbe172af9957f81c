/** What the MCP fake serves: a little tracker, and tools whose names and schemas are as awkward as real ones. */
export type Ticket = {
  readonly id: number;
  readonly title: string;
  readonly key: string | null;
  state: "open" | "closed";
};

export type ListedTool = {
  readonly name: string;
  description: string;
  inputSchema: unknown;
  readonly annotations?: Readonly<Record<string, boolean>>;
};

/** What a tool answers with: JSON, shown as text and as structured content alike. */
export type ToolAnswer = { readonly isError: boolean; readonly value: Readonly<Record<string, unknown>> };

const object = (properties: Record<string, unknown>, required: readonly string[]) => ({
  type: "object",
  properties,
  required,
  additionalProperties: false,
});
const text = { type: "string" };
const titled = object({ title: text }, ["title"]);

export const LONG_NAME = "a_tool_name_that_is_exactly_eighty_characters_long_as_some_generators_make_them_";

export const trackerTools = (): ListedTool[] => [
  {
    name: "create_ticket",
    description: "Creates a ticket.",
    inputSchema: object({ title: text, key: { ...text, description: "Idempotency key" } }, ["title"]),
  },
  {
    name: "find_ticket",
    description: "Finds the ticket that was created with a key.",
    inputSchema: object({ key: text }, ["key"]),
    annotations: { readOnlyHint: true },
  },
  {
    name: "close_ticket",
    description: "Closes a ticket.",
    inputSchema: object({ id: { type: "integer" } }, ["id"]),
    annotations: { destructiveHint: true },
  },
  {
    name: "read_ticket",
    description: "Reads a ticket.",
    inputSchema: object({ id: { type: "integer" } }, ["id"]),
    annotations: { readOnlyHint: true },
  },
  { name: "add_note", description: "Adds a note, every time.", inputSchema: object({ text }, ["text"]) },
  { name: "calendar.create", description: "Creates an entry.", inputSchema: titled },
  { name: "calendar/create", description: "Creates another entry.", inputSchema: titled },
  { name: LONG_NAME, description: "Has a long name.", inputSchema: titled },
  { name: "odd_schema", description: "Takes a list.", inputSchema: { type: "array", items: text } },
];

export class Tracker {
  readonly tickets: Ticket[] = [];
  readonly notes: string[] = [];

  /** Carries out a call; its arguments were checked by nobody. */
  run(tool: string, args: Readonly<Record<string, unknown>>): ToolAnswer {
    switch (tool) {
      case "create_ticket":
        return this.#create(args["title"], args["key"]);
      case "find_ticket":
        return { isError: false, value: this.#shown(this.tickets.find((ticket) => ticket.key === args["key"])) };
      case "read_ticket":
        return { isError: false, value: this.#shown(this.tickets.find((ticket) => ticket.id === args["id"])) };
      case "close_ticket":
        return this.#close(args["id"]);
      case "add_note":
        this.notes.push(String(args["text"]));
        return { isError: false, value: { notes: this.notes.length } };
      default:
        return { isError: false, value: { did: tool, title: args["title"] ?? null } };
    }
  }

  #create(title: unknown, key: unknown): ToolAnswer {
    if (typeof title !== "string") return { isError: true, value: { error: "title must be a text" } };
    const known = typeof key === "string" ? this.tickets.find((ticket) => ticket.key === key) : undefined;
    if (known !== undefined) return { isError: false, value: known };
    const ticket: Ticket = {
      id: this.tickets.length + 1,
      title,
      key: typeof key === "string" ? key : null,
      state: "open",
    };
    this.tickets.push(ticket);
    return { isError: false, value: ticket };
  }

  #close(id: unknown): ToolAnswer {
    const ticket = this.tickets.find((one) => one.id === id);
    if (ticket === undefined) return { isError: true, value: { error: "there is no such ticket" } };
    ticket.state = "closed";
    return { isError: false, value: ticket };
  }

  /** A miss does not repeat the question: a probe must not find its own words. */
  #shown(ticket: Ticket | undefined): Readonly<Record<string, unknown>> {
    return ticket === undefined ? { found: false } : { found: true, ...ticket };
  }
}
