/**
 * Arithmetic by recursive descent: no eval, no dependency. `^` binds to the right and tighter than a sign before it
 * (-2^2 is -4), as in mathematics. Pure.
 */

/** Parentheses inside one another: bounds the recursion. */
export const MAX_DEPTH = 50;
/** Digits that a double holds for certain; more would show the noise of binary fractions (0.1 + 0.2). */
const DIGITS = 15;

export type Evaluation =
  | { readonly ok: true; readonly text: string }
  | { readonly ok: false; readonly message: string };

class Mistake extends Error {}

const NUMBER = /(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?/y;

export function evaluate(expression: string): Evaluation {
  try {
    const value = new Parser(expression).whole();
    if (!Number.isFinite(value))
      return { ok: false, message: "The result is not a finite number (division by zero?)." };
    return { ok: true, text: show(value) };
  } catch (error) {
    if (error instanceof Mistake) return { ok: false, message: error.message };
    throw error;
  }
}

function show(value: number): string {
  if (Number.isInteger(value)) {
    // Beyond 2^53 neighbouring integers are one number: the answer must not look exact.
    return Number.isSafeInteger(value) ? String(value) : `about ${value.toPrecision(DIGITS)}`;
  }
  return String(Number(value.toPrecision(DIGITS)));
}

class Parser {
  readonly #text: string;
  #at = 0;
  #depth = 0;

  constructor(text: string) {
    this.#text = text;
  }

  whole(): number {
    const value = this.#sum();
    if (this.#peek() !== "") this.#fail();
    return value;
  }

  #sum(): number {
    let value = this.#product();
    for (;;) {
      if (this.#take("+")) value += this.#product();
      else if (this.#take("-")) value -= this.#product();
      else return value;
    }
  }

  #product(): number {
    let value = this.#signed();
    for (;;) {
      if (this.#take("*")) value *= this.#signed();
      else if (this.#take("/")) value /= this.#signed();
      else if (this.#take("%")) value %= this.#signed();
      else return value;
    }
  }

  #signed(): number {
    let sign = 1;
    for (;;) {
      if (this.#take("-")) sign = -sign;
      else if (!this.#take("+")) return sign * this.#power();
    }
  }

  #power(): number {
    const base = this.#atom();
    if (!this.#take("^")) return base;
    this.#descend();
    const value = base ** this.#signed();
    this.#depth -= 1;
    return value;
  }

  #atom(): number {
    if (this.#take("(")) {
      this.#descend();
      const value = this.#sum();
      if (!this.#take(")")) this.#fail();
      this.#depth -= 1;
      return value;
    }
    this.#peek();
    NUMBER.lastIndex = this.#at;
    const match = NUMBER.exec(this.#text);
    if (match === null) return this.#fail();
    this.#at += match[0].length;
    return Number(match[0]);
  }

  #descend(): void {
    this.#depth += 1;
    if (this.#depth > MAX_DEPTH)
      throw new Mistake(`More than ${MAX_DEPTH} levels inside one another are not supported.`);
  }

  /** The next character that is not white space; "" at the end. */
  #peek(): string {
    while (/\s/.test(this.#text[this.#at] ?? "")) this.#at += 1;
    return this.#text[this.#at] ?? "";
  }

  #take(symbol: string): boolean {
    if (this.#peek() !== symbol) return false;
    this.#at += 1;
    return true;
  }

  #fail(): never {
    const found = this.#peek();
    const what =
      found === "" ? "The expression ends too early" : `Not understood at position ${this.#at + 1}: “${found}”`;
    throw new Mistake(`${what}. Write numbers with + - * / % ^ and parentheses only.`);
  }
}
