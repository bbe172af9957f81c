// What the demo shows: lines with the time since the start, and, on a terminal, one line at the bottom that changes.
const BOLD = "\x1b[1m";
const DIM = "\x1b[2m";
const OFF = "\x1b[0m";
const STAMP_WIDTH = 7;

export class Screen {
  readonly #started = performance.now();
  readonly #terminal = process.stdout.isTTY;
  #status = "";

  /** Seconds since the demo began. */
  get seconds(): number {
    return (performance.now() - this.#started) / 1_000;
  }

  #stamp(): string {
    const text = `${this.seconds.toFixed(1).padStart(STAMP_WIDTH - 1)}s`;
    return this.#terminal ? `${DIM}${text}${OFF}` : text;
  }

  #write(line: string): void {
    if (!this.#terminal) return void process.stdout.write(`${line}\n`);
    process.stdout.write(`\r\x1b[2K${line}\n${this.#status}`);
  }

  /** A line of progress. */
  readonly say = (line: string): void => this.#write(`${this.#stamp()}  ${line}`);

  /** A part of the demo begins. */
  title(text: string): void {
    this.#write(`\n${this.#terminal ? BOLD : ""}${text}${this.#terminal ? OFF : ""}`);
  }

  /** Lines without a time: tables, answers, commands. */
  show(text: string, indent = "         "): void {
    for (const line of text.replace(/\n$/, "").split("\n")) this.#write(line === "" ? "" : `${indent}${line}`);
  }

  /** The line that changes; without a terminal it is printed when `plain` says something new. */
  status(text: string, plain: string | null = null): void {
    if (this.#terminal) {
      // One line: a longer one would wrap, and only its last part could be taken back. 0: a terminal that does not say.
      const room = (process.stdout.columns || 100) - STAMP_WIDTH - 3;
      this.#status = `${this.#stamp()}  ${text.slice(0, room)}`;
      process.stdout.write(`\r\x1b[2K${this.#status}`);
    } else if (plain !== null && plain !== this.#status) {
      this.#status = plain;
      this.#write(`${this.#stamp()}  ${plain}`);
    }
  }

  /** The changing line goes. */
  settle(): void {
    if (this.#terminal && this.#status !== "") process.stdout.write("\r\x1b[2K");
    this.#status = "";
  }
}
