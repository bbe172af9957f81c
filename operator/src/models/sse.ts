/** Server-sent events from text that arrives in arbitrary pieces. Only `data` counts in this dialect. Pure. */

export class EventSplitter {
  #rest = "";
  #data: string[] = [];

  /** The data of every event that is complete now. */
  push(text: string): string[] {
    // Without a line end there is nothing to split; this keeps one very long line linear.
    if (!/[\r\n]/.test(text) && !this.#rest.endsWith("\r")) {
      this.#rest += text;
      return [];
    }
    // A trailing CR may be half of a CRLF: it waits for the next piece.
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? "";
    return lines.flatMap((line) => this.#line(line));
  }

  /** What the stream ended with: servers that forget the last blank line still meant it. */
  end(): string[] {
    const last = this.#rest;
    this.#rest = "";
    return [...this.#line(last), ...this.#line("")];
  }

  #line(line: string): string[] {
    if (line.trim() === "") {
      const data = this.#data;
      this.#data = [];
      return data.length === 0 ? [] : [data.join("\n")];
    }
    if (line.startsWith("data:")) this.#data.push(line.slice(5).replace(/^ /, ""));
    // Bare JSON inside a stream is how some servers report that they failed.
    else if (line.startsWith("{")) this.#data.push(line);
    return [];
  }
}
