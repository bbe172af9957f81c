/** The system's clock. `performance.now` is monotonic and runs on while the process is stopped (SIGSTOP). */
import type { Clock } from "#engine/ports.ts";

/** setTimeout counts in a signed 32-bit number; above it fires at once, which would turn a long wait into a busy loop. */
const MAX_TIMER_MS = 2 ** 31 - 1;

export const systemClock: Clock = {
  monotonic: () => performance.now(),
  async sleep(ms, signal) {
    if (signal?.aborted === true || ms <= 0) return;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", done);
        resolve();
      };
      const timer = setTimeout(done, Math.min(ms, MAX_TIMER_MS));
      signal?.addEventListener("abort", done, { once: true });
    });
  },
};
