/**
 * The mailbox against a model of it: random sequences of what people say, take back and say twice, of answers that come
 * late, of two workers that lose their leases and of time that passes, through two ingests on a real ledger. Pairs of
 * operations race; then the ledger has to be what one order of them makes of it. After every operation every invariant
 * holds and every message is exactly where the model has it.
 */
import assert from "node:assert/strict";
import { isDeepStrictEqual } from "node:util";
import { v7 as uuidv7 } from "uuid";
import { Database } from "#ledger/database.ts";
import { decideEvent } from "#ledger/decide.ts";
import { claimRun } from "#ledger/leases.ts";
import { ingest } from "#ledger/mailbox.ts";
import { type CallRow, commitResults } from "#ledger/steps.ts";
import { CODE } from "#rules/limits.ts";
import { type Policy, policyOf, type Relation } from "#rules/interrupt.ts";
import { checkAtOnce } from "../support/at-once.ts";
import * as model from "../support/mailbox-model.ts";
import { end, sql, stop } from "../support/positions.ts";
import { aCall, aMessage, anAgent, cross, respond } from "../support/world.ts";
import { type Kind, type MailSequence, type MailStep, WORKERS } from "./mail-sequence.ts";
import { found, type Shown, shown } from "./mail-shown.ts";
import type { Tally } from "./soak.ts";

const RELATIONS = ["refines", "refines", "refines", "cancels", "independent", "unsure"] as const satisfies Relation[];
const TIMES = ["window", "hold", "deadline"] as const;
const AUTHORS = ["alice", "alice", "bob"] as const;
/** Sequences after which the ledger is emptied. */
const EMPTIED = 20;
/** More than a window that nobody closes; operations are what closes it. */
const QUIET_MS = 3_600_000;

/**
 * Time stands still: a hold ends by an operation, not by the seconds that a busy machine takes for one. From its first
 * moment on, because the other half of a race may meet it before anybody could look.
 */
const STAND_STILL = `
  create function hold_on() returns trigger language plpgsql as $$ begin
    if new.hold_seq > 0 and new.hold_until > pawl_now() then new.hold_until := pawl_now() + interval '1 hour'; end if;
    return new;
  end $$;
  create trigger hold_on before insert or update on runs for each row execute function hold_on()`;

type State = { readonly conversations: model.Conversation[]; readonly workers: model.Worker[] };
type Planned = {
  readonly kind: Kind;
  /** On the ledger. */
  perform(): Promise<string>;
  /** On the model; what it answers there. */
  apply(state: State): string;
};

function pick<T>(from: readonly T[], index: number): T | undefined {
  return from[index % Math.max(1, from.length)];
}

export class Mailbox {
  readonly #db: Database;
  /** What a controller and two workers have: connections of their own. */
  readonly #ingests: readonly Database[];
  readonly #places: readonly Database[];
  readonly #tally: Tally;
  #policy: Policy = policyOf(null);
  #agent = { id: "", generation: 1 };
  #state: State = { conversations: [], workers: [] };
  /** Of the runs of each conversation, in the order of their beginning. */
  #ids: string[][] = [];
  /** The open call of a run, by its id. */
  #calls = new Map<string, CallRow>();
  /** Whether its crossing was refused because of newer input. */
  #stale = new Set<string>();
  #said = 0;
  #played = 0;
  #still: Promise<unknown> | undefined;

  private constructor(url: string, tally: Tally) {
    const open = () => new Database({ url, max: 2 });
    this.#db = open();
    this.#ingests = [open(), open()];
    this.#places = Array.from({ length: WORKERS }, open);
    this.#tally = tally;
  }

  static open(url: string, tally: Tally): Mailbox {
    return new Mailbox(url, tally);
  }

  async close(): Promise<void> {
    await Promise.all([this.#db, ...this.#ingests, ...this.#places].map((db) => db.close()));
  }

  /** What a sequence that broke leaves behind is nothing that a shorter one, or the same again, may meet. */
  async run(sequence: MailSequence): Promise<void> {
    try {
      await (this.#still ??= sql(this.#db, STAND_STILL));
      await this.#sequence(sequence);
    } catch (error) {
      this.#played = 0;
      throw error;
    }
  }

  async #sequence(sequence: MailSequence): Promise<void> {
    // Emptying it costs more than a sequence does.
    if (this.#played % EMPTIED === 0) {
      await sql(this.#db, "truncate agents, actors, conversations, runs, message_events cascade");
    }
    this.#played += 1;
    const { steps, quiet, ...rest } = sequence;
    this.#policy = { ...policyOf(null), ...rest, quietMs: quiet ? QUIET_MS : 0, maxWaitMs: QUIET_MS };
    this.#agent = await anAgent(this.#db);
    this.#state = {
      conversations: [model.aConversation(), model.aConversation()],
      workers: Array.from({ length: WORKERS }, () => ({ at: null, token: 0, shown: null })),
    };
    this.#ids = [[], []];
    this.#calls.clear();
    this.#stale.clear();
    for (const one of steps) {
      await this.#play(one);
      assert.deepEqual(await checkAtOnce(this.#db), []);
    }
    await this.#drain();
    await this.#judge();
  }

  /** What to do instead where there is nothing to do it to, so that sequences go somewhere; now and then it is tried all the same. */
  #applicable(one: MailStep): MailStep {
    const place = this.#conversation(one.conversation);
    const turn = model.liveTurn(place);
    const stubborn = one.pick % 12 === 5;
    if (stubborn || one.kind === "lapse" || one.kind === "time") return one;
    if (turn === undefined) return { ...one, kind: "deliver" };
    const undecided = place.messages.filter(({ state }) => state === "undecided").length;
    if (one.kind !== "race" && undecided > one.pick % 3) return { ...one, kind: "classify" };
    const atWork = turn.holder !== null && !turn.lapsed && !turn.replied;
    if (atWork && one.kind !== "race" && one.pick % 3 === 0) return { ...one, kind: "deliver" };
    if (one.kind === "classify" && undecided === 0) return { ...one, kind: "deliver" };
    if (["deliver", "duplicate", "classify", "takeBack"].includes(one.kind)) return one;
    if (turn.holder === null || turn.lapsed) {
      if (turn.due || turn.lapsed) return { ...one, kind: "claim" };
      return one.pick % 2 === 0 ? { ...one, kind: "time", pick: TIMES.indexOf("window") } : { ...one, kind: "deliver" };
    }
    const holder = { ...one, worker: turn.holder };
    if (one.kind === "claim") return { ...holder, kind: "say" };
    if (turn.call === null)
      return one.kind === "finish" && turn.replied ? holder : one.kind === "race" ? holder : { ...holder, kind: "say" };
    const refused = this.#stale.has(this.#ids[one.conversation]?.[place.turns.indexOf(turn)] ?? "");
    if (one.kind === "race") return holder;
    if (turn.call.crossed || refused)
      return { ...holder, kind: turn.replied && one.kind === "finish" ? "finish" : "close" };
    return { ...holder, kind: "cross" };
  }

  async #play(drawn: MailStep): Promise<void> {
    const one = this.#applicable(drawn);
    if (one.kind === "claim") return this.#claim(one.worker);
    if (one.kind === "lapse") return this.#lapse(one.conversation);
    if (one.kind === "time") return this.#timePasses(one.conversation, pick(TIMES, one.pick) ?? "window");
    const kinds = one.kind === "race" ? one.with : [one.kind];
    const planned = kinds.flatMap((kind, index) => this.#plan(kind, { ...one, pick: one.pick + index * 7 }) ?? []);
    // Two operations of one worker do not race: it does one after the other.
    const [first, second] = planned;
    if (first === undefined) return;
    const racing = second !== undefined && (first.kind !== second.kind || first.kind === "deliver");
    await this.#together(racing ? [first, second] : [first]);
  }

  /** All at once; then some order of them has to explain every answer and every row. */
  async #together(planned: readonly Planned[]): Promise<void> {
    const answers = await Promise.all(planned.map((one) => one.perform()));
    const rows = await this.#found();
    const orders =
      planned.length > 1
        ? [
            [0, 1],
            [1, 0],
          ]
        : [[0]];
    const explained = orders.map((order) => {
      const state = structuredClone(this.#state);
      const told = planned.map(() => "");
      for (const index of order) told[index] = planned[index]?.apply(state) ?? "";
      return { state, told };
    });
    const well = explained.find(
      ({ state, told }) => isDeepStrictEqual(told, answers) && isDeepStrictEqual(shown(state.conversations), rows),
    );
    if (well === undefined) {
      const [only] = explained;
      const { conversations } = only?.state ?? this.#state;
      assert.deepEqual({ answers, rows }, { answers: only?.told, rows: shown(conversations) });
    }
    this.#state = well?.state ?? this.#state;
    const names = planned.map(({ kind }, index) => `${kind} ${answers[index]?.split(" ")[0]}`);
    if (planned.length > 1) this.#tally.add("a race");
    for (const name of names) this.#tally.add(name);
  }

  #plan(kind: Kind, one: MailStep): Planned | null {
    switch (kind) {
      case "deliver":
        return this.#deliver(one);
      case "duplicate":
        return this.#duplicate(one);
      case "classify":
        return this.#classify(one);
      case "takeBack":
        return this.#takeBack(one);
      default:
        return this.#work(kind, one);
    }
  }

  #deliver({ conversation, pick: chance }: MailStep, name = `m${(this.#said += 1)}`): Planned {
    const from: model.Delivery = {
      name,
      author: pick(AUTHORS, chance) ?? "alice",
      grants: chance % 11 === 0 ? "others" : "",
      stops: chance % 13 === 0,
      askable: chance % 7 > 0,
    };
    return this.#delivery(conversation, from, chance);
  }

  #delivery(conversation: number, from: model.Delivery, chance: number): Planned {
    return {
      kind: "deliver",
      perform: async () => {
        const { name, author, ...rest } = from;
        const message = aMessage(this.#agent.id, {
          ...rest,
          conversationKey: `c${conversation}`,
          actor: { connector: "kubernetes", extId: author },
          extId: name,
          text: name,
          policy: this.#policy,
        });
        const answer = await ingest(pick(this.#ingests, chance) ?? this.#db, message);
        return answer.kind === "queued" ? `queued ${answer.reason}` : answer.kind;
      },
      apply: ({ conversations }) =>
        model.deliver(conversations[conversation] ?? model.aConversation(), from, this.#policy),
    };
  }

  #duplicate(one: MailStep): Planned | null {
    const known = pick(this.#conversation(one.conversation).messages, one.pick);
    if (known === undefined) return null;
    const from = { name: known.name, author: known.author, grants: known.grants, stops: false, askable: true };
    return { ...this.#delivery(one.conversation, from, one.pick), kind: "duplicate" };
  }

  /** Somebody has an answer about a message: in time, or long after its turn has moved on. */
  #classify({ conversation, pick: chance }: MailStep): Planned | null {
    const { messages } = this.#conversation(conversation);
    const undecided = messages.filter(({ state }) => state === "undecided");
    const about = pick(undecided.length > 0 && chance % 8 > 0 ? undecided : messages, chance);
    if (about === undefined) return null;
    const relation = pick(RELATIONS, chance >> 3) ?? "refines";
    return {
      kind: "classify",
      perform: async () => {
        const [row] = await sql<{ id: string; conversation_id: string }>(
          this.#db,
          "select id, conversation_id from message_events where ext_id = $1",
          [about.name],
        );
        const answer = await decideEvent(this.#db, {
          conversationId: row?.conversation_id ?? "",
          eventId: row?.id ?? "",
          relation,
          source: "model",
          policy: this.#policy,
        });
        return "reason" in answer && answer.kind !== "already" ? `${answer.kind} ${answer.reason}` : answer.kind;
      },
      apply: ({ conversations }) =>
        model.decideAbout(conversations[conversation] ?? model.aConversation(), about.name, relation, this.#policy),
    };
  }

  #takeBack({ conversation, pick: chance }: MailStep): Planned | null {
    const message = pick(this.#conversation(conversation).messages, chance);
    if (message === undefined) return null;
    return {
      kind: "takeBack",
      perform: async () => {
        const [row] = await sql<{ id: string }>(this.#db, "select id from message_events where ext_id = $1", [
          message.name,
        ]);
        return stop(this.#db, row?.id ?? "");
      },
      apply: ({ conversations }) =>
        model.takeBack(conversations[conversation] ?? model.aConversation(), message.name, this.#policy),
    };
  }

  /** What a worker does with the run that it has, or believes to have. */
  #work(kind: Kind, { worker: index, pick: chance }: MailStep): Planned | null {
    const worker = this.#state.workers[index];
    if (worker === undefined || worker.at === null) return null;
    const { conversation, turn } = worker.at;
    const runId = this.#ids[conversation]?.[turn];
    const now = this.#conversation(conversation).turns[turn];
    if (runId === undefined || now === undefined) return null;
    const held = { runId, token: worker.token };
    const db = this.#places[index] ?? this.#db;
    // A worker that lost its run does not know it: it goes on from what it knew.
    const call = this.#calls.get(runId);
    const refusing = (state: State, otherwise: (place: model.Conversation, one: model.Turn) => string): string => {
      const place = state.conversations[conversation];
      const one = place?.turns[turn];
      const who = state.workers[index];
      if (place === undefined || one === undefined || who === undefined) return "lost";
      return model.refusal(who, index, one) ?? otherwise(place, one);
    };
    if (kind === "ask") {
      worker.shown = model.newest(this.#conversation(conversation), turn);
      return null;
    }
    if (kind === "say") {
      if (call !== undefined) return null;
      const seen = worker.shown ?? model.newest(this.#conversation(conversation), turn);
      worker.shown = seen;
      const reply = now.replied ? false : chance % 3 > 0;
      const row = aCall({ target: uuidv7(), ...(reply ? { class: "reply", kind: "reply", target: null } : {}) });
      return {
        kind,
        perform: async () => {
          const answer = await respond(db, held, [row], { ordinal: now.ordinal, seenSeq: seen });
          if (answer.kind === "committed") this.#calls.set(runId, row);
          return answer.kind;
        },
        apply: (state) =>
          refusing(state, (place, one) => {
            model.say(place, one, { reply, seen });
            return "committed";
          }),
      };
    }
    if (kind === "cross") {
      const known = now.call;
      if (call === undefined || known === null || known.crossed) return null;
      return {
        kind,
        perform: async () => {
          const { result } = await cross(db, held, call, { seenSeq: known.seen, receipt: { row: true } });
          if (result.kind === "stale_input") this.#stale.add(runId);
          return result.kind;
        },
        apply: (state) =>
          refusing(state, (_place, one) => {
            const verdict = model.crossVerdict(one, known);
            if (verdict !== "crossed" || one.call === null) return verdict;
            one.call.crossed = true;
            one.committed = true;
            one.replied ||= known.reply;
            return verdict;
          }),
      };
    }
    if (kind === "close") {
      const known = now.call;
      if (call === undefined || known === null) return null;
      const stale = known.reply && !known.crossed && this.#stale.has(runId);
      const outcome = known.crossed ? "real" : known.reply ? "withheld" : "skipped";
      return {
        kind,
        perform: async () => {
          const results = [{ id: call.id, outcome, result: "observed" }] as const;
          const bound = stale ? this.#policy.maxSupersessions : null;
          const answer = await commitResults(db, { ...held, nonce: uuidv7() }, results, bound);
          if (answer.kind === "committed") {
            this.#calls.delete(runId);
            this.#stale.delete(runId);
            worker.shown = null;
          }
          return answer.kind;
        },
        apply: (state) =>
          refusing(state, (_place, one) => {
            model.close(one, stale, this.#policy);
            return "committed";
          }),
      };
    }
    const seenSeq = worker.shown ?? 0;
    const status = now.replied ? "succeeded" : "failed";
    return {
      kind: "finish",
      perform: async () => (await end(db, held, { status, seenSeq })).kind,
      apply: (state) =>
        refusing(state, (place, one) => {
          model.endTurn(place, one, { status, seen: seenSeq }, this.#policy);
          return "finished";
        }),
    };
  }

  async #claim(index: number): Promise<void> {
    const claim = await claimRun(this.#places[index] ?? this.#db, `worker-${index}`, QUIET_MS, CODE);
    const live = this.#state.conversations.flatMap((place) => model.liveTurn(place) ?? []);
    const lapsed = live.filter(({ holder, lapsed: over }) => holder !== null && over);
    const due = live.filter((turn) => turn.holder === null && turn.due);
    if (claim === null) {
      assert.deepEqual([lapsed.length, due.length], [0, 0], "what is due is claimed");
      return;
    }
    const conversation = this.#ids.findIndex((ids) => ids.includes(claim.runId));
    const turn = this.#ids[conversation]?.indexOf(claim.runId) ?? -1;
    const taken = this.#state.conversations[conversation]?.turns[turn];
    assert.ok(taken !== undefined && (lapsed.length > 0 ? lapsed : due).includes(taken), "only what is due is claimed");
    assert.equal(claim.token, taken.token + 1);
    this.#tally.add(claim.takeover ? "claim takeover" : "claim due");
    Object.assign(taken, { holder: index, token: claim.token, lapsed: false, due: false, status: "running" });
    Object.assign(this.#state.workers[index] ?? {}, { at: { conversation, turn }, token: claim.token, shown: null });
  }

  async #lapse(conversation: number): Promise<void> {
    const turn = model.liveTurn(this.#conversation(conversation));
    if (turn === undefined || turn.holder === null) return;
    const id = this.#ids[conversation]?.[this.#conversation(conversation).turns.indexOf(turn)];
    await sql(this.#db, "update runs set lease_until = pawl_now() - interval '1 second' where id = $1", [id]);
    turn.lapsed = true;
    this.#tally.add("a lease lapsed");
  }

  async #timePasses(conversation: number, what: (typeof TIMES)[number]): Promise<void> {
    const turn = model.liveTurn(this.#conversation(conversation));
    if (turn === undefined) return;
    const id = this.#ids[conversation]?.[this.#conversation(conversation).turns.indexOf(turn)];
    if (what === "window" && turn.status === "queued") {
      await sql(this.#db, "update runs set due_at = pawl_now(), window_until = pawl_now() where id = $1", [id]);
      turn.due = true;
    }
    if (what === "hold" && turn.hold > 0) {
      await sql(this.#db, "update runs set hold_until = pawl_now() - interval '1 second' where id = $1", [id]);
      turn.holdOver = true;
    }
    if (what === "deadline") {
      await sql(this.#db, "update runs set deadline_at = pawl_now() - interval '1 second' where id = $1", [id]);
      turn.late = true;
    }
  }

  async #found(): Promise<Shown> {
    const { ids, shown } = await found(this.#db, this.#agent.id, this.#state.conversations.length);
    this.#ids = ids;
    return shown;
  }

  /** Patient people and a patient worker: whatever is asked is answered, and everything that is alive ends. */
  async #drain(): Promise<void> {
    for (let turns = 0; ; turns += 1) {
      const index = this.#state.conversations.findIndex((place) => model.liveTurn(place) !== undefined);
      if (index < 0) return;
      assert.ok(turns < 200, "turns end");
      const place = this.#conversation(index);
      const turn = model.liveTurn(place);
      if (turn === undefined) continue;
      const calm = { conversation: index === 0 ? 0 : 1, worker: 0, pick: 1 } as const;
      if (turn.holder === null) await this.#timePasses(index, "window");
      else if (!turn.lapsed) await this.#lapse(index);
      await this.#claim(0);
      for (const kind of ["close", "say", "cross", "close", "finish"] as const) {
        const planned = this.#plan(kind, { ...calm, kind, with: ["finish", "finish"] });
        if (planned !== null) await this.#together([planned]);
      }
    }
  }

  /** What everything has come to, by the ledger's rows alone. */
  async #judge(): Promise<void> {
    assert.deepEqual(await this.#found(), shown(this.#state.conversations));
    assert.deepEqual(await checkAtOnce(this.#db), []);
    const lost = await sql(
      this.#db,
      "select ext_id, state from message_events where state not in ('accounted', 'applied', 'withdrawn') or (state = 'accounted') <> (run_id is not null)",
    );
    assert.deepEqual(lost, [], "every message is where it stays");
    const said = this.#state.conversations.reduce((sum, { messages }) => sum + messages.length, 0);
    const [rows] = await sql<{ n: number }>(
      this.#db,
      `select count(*)::int as n from message_events e join conversations c on c.id = e.conversation_id
       where e.kind = 'message' and c.agent_id = $1`,
      [this.#agent.id],
    );
    assert.equal(rows?.n, said, "every message is there, once");
    const twice = await sql(
      this.#db,
      "select request_id from commitment_effects where kind = 'reply' group by request_id having count(*) > 1",
    );
    assert.deepEqual(twice, [], "one answer a request");
    const interrupts = await sql<{ event_id: string }>(
      this.#db,
      "select event_id from interrupts group by event_id having count(*) > 1",
    );
    assert.deepEqual(interrupts, [], "every decision is written down once");
  }

  #conversation(index: number): model.Conversation {
    const place = this.#state.conversations[index];
    assert.ok(place !== undefined);
    return place;
  }
}

/** What a soak of any length has to have met. */
export const MAIL_PLACES = [
  "a race",
  "a lease lapsed",
  "claim due",
  "claim takeover",
  "deliver new_run",
  "deliver folded",
  "deliver queued",
  "deliver undecided",
  "deliver cancelled",
  "classify amended",
  "classify preempted",
  "classify queued",
  "classify already",
  "classify not_yet",
  "classify cancelled",
  "cross crossed",
  "cross stale_input",
  "cross hold",
  "finish finished",
  "takeBack withdrawn",
] as const;
