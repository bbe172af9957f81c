/**
 * The Chat SDK on its PostgreSQL state, as its documentation wires it: one handler that answers, told of what its
 * strategy skipped. The platform is an adapter of ours that keeps nothing and posts nowhere.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { deliver, QUIET_MS, type Said, THINK_MS } from "./schedule.ts";
import type { Outcome, TalkSystem } from "./system.ts";

type Message = { readonly id: string };
type Thread = { post(text: string): Promise<unknown> };
type Handler = (thread: Thread, message: Message, context?: { readonly skipped: readonly Message[] }) => Promise<void>;
type Chat = {
  initialize(): Promise<void>;
  onNewMessage(pattern: RegExp, handler: Handler): void;
  handleIncomingMessage(adapter: unknown, threadId: string, message: Message): Promise<void>;
  shutdown(): Promise<void>;
};
type ChatPackage = {
  Chat: new (options: object) => Chat;
  Message: new (data: object) => Message;
  parseMarkdown(text: string): unknown;
};
type StatePackage = { createPostgresState(options: { url: string; logger: object }): unknown };

/** Not installed where types are checked. */
const CHAT: string = "chat";
const STATE: string = "@chat-adapter/state-pg";

const quiet = { debug() {}, info() {}, warn() {}, error() {}, child: () => quiet };

const adapter = {
  name: "bench",
  userName: "agent",
  initialize: () => Promise.resolve(),
  channelIdFromThreadId: (thread: string) => thread,
  encodeThreadId: (thread: string) => thread,
  decodeThreadId: (thread: string) => thread,
  fetchThread: (id: string) => Promise.resolve({ id, channelId: id, metadata: {} }),
  fetchMessages: () => Promise.resolve({ messages: [] }),
  startTyping: () => Promise.resolve(),
  renderFormatted: String,
  postMessage: (threadId: string, raw: unknown) => Promise.resolve({ id: `sent-${Math.random()}`, threadId, raw }),
};

const ofItsOwn = "bench: ";

export function chatSdk(strategy: string): TalkSystem {
  let bot: Chat;
  let sdk: ChatPackage;
  const answers: { readonly ids: readonly string[]; readonly at: number }[] = [];
  let asked = 0;

  const message = (one: Said): Message =>
    new sdk.Message({
      id: one.id,
      threadId: `${ofItsOwn}${one.conversation}`,
      text: one.text,
      formatted: sdk.parseMarkdown(one.text),
      raw: {},
      author: { userId: one.actor, userName: one.actor, fullName: one.actor, isBot: false, isMe: false },
      metadata: { dateSent: new Date(), edited: false },
      attachments: [],
    });

  return {
    async open(url) {
      sdk = (await import(CHAT)) as ChatPackage;
      const state = (await import(STATE)) as StatePackage;
      // Its defaults, but for the quiet time, which is everybody's.
      const waits = strategy === "burst" || strategy === "debounce" ? { debounceMs: QUIET_MS } : {};
      bot = new sdk.Chat({
        userName: adapter.userName,
        adapters: { bench: adapter },
        state: state.createPostgresState({ url, logger: quiet }),
        concurrency: { strategy, ...waits },
        logger: quiet,
      });
      bot.onNewMessage(/[^]*/, async (thread, newest, context) => {
        asked += 1;
        const ids = [...(context?.skipped ?? []), newest].map(({ id }) => id);
        await sleep(THINK_MS);
        await thread.post(`About ${ids.join(", ")}.`);
        answers.push({ ids, at: performance.now() });
      });
      await bot.initialize();
    },

    async talk({ said }): Promise<Outcome> {
      const saidAt = new Map<string, number>();
      const taken: Promise<void>[] = [];
      await deliver(said, (one) => {
        if (!saidAt.has(one.id)) saidAt.set(one.id, performance.now());
        // A webhook is answered at once; the handler runs on behind it. What it refuses is refused.
        taken.push(bot.handleIncomingMessage(adapter, `${ofItsOwn}${one.conversation}`, message(one)).catch(() => {}));
        return Promise.resolve();
      });
      await Promise.all(taken);
      const times = new Map<string, number[]>();
      for (const { ids, at } of answers) for (const id of ids) times.set(id, [...(times.get(id) ?? []), at]);
      return {
        turns: answers.length,
        asked,
        lost: said.map(({ id }) => id).filter((id) => !times.has(id)),
        doubled: [...times].filter(([, at]) => at.length > 1).map(([id]) => id),
        stopped: 0,
        waits: [...times].map(([id, [at = 0]]) => at - (saidAt.get(id) ?? 0)),
      };
    },

    close: () => bot.shutdown(),
  };
}
