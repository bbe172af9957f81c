/**
 * The connection to PostgreSQL: the only file that knows the driver. It adds to a plain pool what a ledger needs:
 * - a failpoint before and after every statement and every COMMIT;
 * - a COMMIT whose tag is ROLLBACK is a failure (the server says it politely);
 * - 40001 and 40P01 run the same body again; so does a lost connection, because every writing statement carries a
 *   nonce and answers `already` when its first run was committed after all;
 * - errors classified once, by SQLSTATE.
 */
import pg from "pg";
import { failpoint } from "#src/failpoints.ts";
import { PawlError } from "#rules/errors.ts";
import { storable } from "#rules/text.ts";
import type { Shape, Statement, Values } from "./statement.ts";

/** Attempts of one body before its caller is told. A lost connection needs one; a restarting primary needs seconds. */
export const MAX_ATTEMPTS = 8;
/** Wait before attempt n is n² × this: 8 attempts span about 7 s, less than a lease. */
export const RETRY_STEP_MS = 50;
/** A statement that runs longer than this is a bug or a lock that nobody gives back. */
export const STATEMENT_TIMEOUT_MS = 10_000;
/** A worker that is paused inside a transaction holds its run's row; the server ends that before a lease lapses. */
export const IDLE_TRANSACTION_MS = 5_000;
/** Longer than any guarded statement ever waits for another one. */
export const LOCK_TIMEOUT_MS = 5_000;
/** `sender` may say nothing for this long before the kernel asks the peer whether it still lives. */
export const CONNECT_TIMEOUT_MS = 5_000;
/** Answers the client waits for at most; over it the connection is dropped (never handed to the next borrower). */
export const REPLY_TIMEOUT_MS = 15_000;

pg.types.setTypeParser(20, Number); // int8: counters and sequences stay far below 2^53

/** Runs statements; a `Ledger` and an open transaction are both one. */
export interface Runner {
  rows<P extends Shape, C extends Shape>(statement: Statement<P, C>, params: Values<P>): Promise<Values<C>[]>;
  one<P extends Shape, C extends Shape>(statement: Statement<P, C>, params: Values<P>): Promise<Values<C>>;
}

export class Lost extends Error {}

/** What a transaction's body threw by itself: no trouble of the connection, so nothing to classify or to run again. */
class Thrown extends Error {}

function classify(error: unknown): PawlError {
  if (error instanceof PawlError) return error;
  const code = (error as { code?: unknown }).code;
  const state = typeof code === "string" ? code : "";
  const message = error instanceof Error ? error.message : String(error);
  const make = (kind: "transient" | "invariant" | "terminal", reason: string) =>
    new PawlError(kind, reason, `ledger: ${message}`, { cause: error });
  if (state === "40001" || state === "40P01") return make("transient", "LedgerConflict");
  // 25006: a standby answers, the primary is being replaced.
  if (/^(08|57P|53)/.test(state) || ["55000", "55P03", "57014", "25006"].includes(state)) {
    return make("transient", "LedgerUnavailable");
  }
  if (/^(28|3D|42501)/.test(state)) return make("terminal", "LedgerRefused");
  if (/^\d/.test(state)) return make("invariant", "LedgerConstraint");
  return make("transient", "LedgerUnavailable");
}

/** True when running the same body again may help and is safe. */
function again(error: PawlError): boolean {
  return error.kind === "transient";
}

export type DatabaseOptions = {
  readonly url: string;
  readonly max?: number;
  /** Shows in pg_stat_activity. */
  readonly name?: string;
  /** Runs on every new connection; tests set `pawl.skew` here. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Instead of REPLY_TIMEOUT_MS, for tests of a silent server. */
  readonly replyTimeoutMs?: number;
};

export class Database implements Runner {
  readonly pool: pg.Pool;
  readonly url: string;
  /** Statements sent and commits made, for tests that count round trips. */
  readonly counted = { statements: 0, commits: 0 };
  readonly #replyTimeoutMs: number;
  #closed = false;

  constructor(options: DatabaseOptions) {
    this.url = options.url;
    this.#replyTimeoutMs = options.replyTimeoutMs ?? REPLY_TIMEOUT_MS;
    this.pool = new pg.Pool({
      connectionString: options.url,
      max: options.max ?? 8,
      application_name: options.name ?? "pawl",
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      idleTimeoutMillis: 30_000,
      statement_timeout: STATEMENT_TIMEOUT_MS,
      lock_timeout: LOCK_TIMEOUT_MS,
      idle_in_transaction_session_timeout: IDLE_TRANSACTION_MS,
      keepAlive: true,
      options: Object.entries(options.settings ?? {})
        .map(([key, value]) => `-c ${key}=${value.replaceAll(" ", "\\ ")}`)
        .join(" "),
    });
    // An idle connection that dies is replaced at the next use; without a listener it would end the process.
    this.pool.on("error", () => {});
  }

  async rows<P extends Shape, C extends Shape>(statement: Statement<P, C>, params: Values<P>): Promise<Values<C>[]> {
    return this.#retry(() => this.#withClient((client) => this.#send(client, statement, params)));
  }

  async one<P extends Shape, C extends Shape>(statement: Statement<P, C>, params: Values<P>): Promise<Values<C>> {
    return only(statement, await this.rows(statement, params));
  }

  /** BEGIN, body, COMMIT. The body runs again on a conflict or a lost connection: it must only run statements. */
  async transaction<T>(body: (tx: Runner) => Promise<T>): Promise<T> {
    return this.#retry(() =>
      this.#withClient(async (client) => {
        let failed: unknown;
        const rows: Runner["rows"] = async (statement, params) => {
          try {
            return await this.#send(client, statement, params, true);
          } catch (error) {
            failed = error;
            throw error;
          }
        };
        const tx: Runner = { rows, one: async (statement, params) => only(statement, await rows(statement, params)) };
        await client.query("begin");
        let result: T;
        try {
          result = await body(tx);
        } catch (error) {
          await client.query("rollback").catch(() => {});
          throw error === failed || error instanceof PawlError ? error : new Thrown("", { cause: error });
        }
        failpoint("before:commit");
        const tag = await client.query("commit");
        if (tag.command !== "COMMIT") {
          throw new PawlError("transient", "LedgerConflict", "ledger: the transaction was rolled back at its commit");
        }
        this.counted.commits += 1;
        if (failpoint("after:commit")) throw new Lost("the reply of COMMIT was lost (failpoint)");
        return result;
      }),
    );
  }

  /** One try, no retry: for start-up checks that must say at once what is wrong. */
  async ping(): Promise<void> {
    try {
      await this.#withClient((client) => client.query("select 1"));
    } catch (error) {
      throw classify(error);
    }
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.pool.end();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #send<P extends Shape, C extends Shape>(
    client: pg.PoolClient,
    statement: Statement<P, C>,
    params: Values<P>,
    inTransaction = false,
  ): Promise<Values<C>[]> {
    failpoint(`before:${statement.name}`);
    const values = statement.order.map((key) => encode(statement.params[key], params[key]));
    const result = await client.query({ name: statement.name, text: statement.compiled, values });
    this.counted.statements += 1;
    if (!inTransaction) this.counted.commits += 1;
    if (failpoint(`after:${statement.name}`)) throw new Lost("the reply was lost (failpoint)");
    return result.rows as Values<C>[];
  }

  async #withClient<T>(body: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    const client = await this.pool.connect();
    let broken: Error | undefined;
    const onError = (error: Error) => {
      broken = error;
    };
    client.on("error", onError);
    // The server's own timeouts end a slow statement. This one is for a peer that says nothing at all.
    let timer: NodeJS.Timeout | undefined;
    const silence = new Promise<never>((_resolve, reject) => {
      timer = setTimeout(() => reject(new Lost("no answer from PostgreSQL")), this.#replyTimeoutMs);
    });
    try {
      return await Promise.race([body(client), silence]);
    } catch (error) {
      // A connection in doubt is never handed to the next borrower: it may hold an open transaction.
      if (!(error instanceof PawlError)) broken ??= error as Error;
      throw error;
    } finally {
      clearTimeout(timer);
      client.removeListener("error", onError);
      client.release(broken ?? false);
    }
  }

  async #retry<T>(body: () => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await body();
      } catch (error) {
        if (error instanceof Thrown) throw error.cause;
        const classified = classify(error);
        if (this.#closed || attempt >= MAX_ATTEMPTS || !again(classified)) throw classified;
        await new Promise((resolve) => setTimeout(resolve, attempt * attempt * RETRY_STEP_MS));
      }
    }
  }
}

/** NUL and half characters, which PostgreSQL refuses in text and jsonb, must not keep a row from being written. */
function encode(type: string | undefined, value: unknown): unknown {
  if (typeof value === "string" && type?.startsWith("jsonb") !== true) return storable(value);
  if (value === null || type?.startsWith("jsonb") !== true) return value;
  const text = JSON.stringify(value);
  return /\\u(0000|d[89a-f])/.test(text) ? JSON.stringify(storableJson(value)) : text;
}

function storableJson(value: unknown): unknown {
  if (typeof value === "string") return storable(value);
  if (Array.isArray(value)) return value.map(storableJson);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [storable(key), storableJson(inner)]));
}

function only<C extends Shape>(statement: { name: string }, rows: Values<C>[]): Values<C> {
  const [row] = rows;
  if (row === undefined || rows.length !== 1) {
    throw new PawlError("invariant", "LedgerRows", `statement ${statement.name} returned ${rows.length} rows, not one`);
  }
  return row;
}
