/** A worker's ledger that it can lose for ever: in front of a statement, or behind a commit whose answer it never reads. */
import { PawlError } from "#rules/errors.ts";
import { Database, type Runner } from "#ledger/database.ts";
import type { Shape, Statement, Values } from "#ledger/statement.ts";

const gone = () => new PawlError("terminal", "Dead", "this worker is dead");

export class Mortal extends Database {
  /** Statements and transactions until it dies. */
  #left = Number.POSITIVE_INFINITY;
  #behind = false;
  dead = false;

  /** `behind`: what it sent last is still done. */
  doom(after: number, behind: boolean): void {
    this.#left = after;
    this.#behind = behind;
  }

  die(): void {
    this.dead = true;
  }

  revive(): void {
    this.dead = false;
    this.#left = Number.POSITIVE_INFINITY;
  }

  /** False: this one is the last, and its answer is lost with the worker. */
  #breathe(): boolean {
    if (this.dead) throw gone();
    this.#left -= 1;
    if (this.#left >= 0) return true;
    this.die();
    if (!this.#behind) throw gone();
    return false;
  }

  override async rows<P extends Shape, C extends Shape>(
    statement: Statement<P, C>,
    params: Values<P>,
  ): Promise<Values<C>[]> {
    const lives = this.#breathe();
    const rows = await super.rows(statement, params);
    if (!lives) throw gone();
    return rows;
  }

  override async transaction<T>(body: (tx: Runner) => Promise<T>): Promise<T> {
    const lives = this.#breathe();
    const result = await super.transaction(body);
    if (!lives) throw gone();
    return result;
  }
}
