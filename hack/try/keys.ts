// The keys of a person who plays: Enter goes on, a runs the rest, q quits.
import { once } from "node:events";

const DIM = "\x1b[2m";
const OFF = "\x1b[0m";

export class Keys {
  #all = false;

  readonly next = async (prompt: string): Promise<void> => {
    if (this.#all) return;
    const { stdin, stdout } = process;
    stdout.write(`\n${DIM}Enter: ${prompt}   a: all the rest   q: quit${OFF} `);
    stdin.setRawMode(true);
    stdin.resume();
    try {
      for (;;) {
        const [bytes] = (await once(stdin, "data")) as [Buffer];
        const key = bytes.toString();
        // In raw mode the terminal does not turn Ctrl-C into a signal.
        if (key === "q" || key === "\u0003" || key === "\u0004") process.kill(process.pid, "SIGINT");
        if (key === "a") this.#all = true;
        if (key === "a" || key === "\r" || key === "\n" || key === " ") break;
      }
    } finally {
      stdin.setRawMode(false);
      stdin.pause();
      stdout.write("\r\x1b[2K");
    }
  };
}
