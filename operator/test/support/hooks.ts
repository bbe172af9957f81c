/** Root hooks of every mocha process: services that tests started are stopped once, at the end. */
import { stopSharedPostgres } from "./postgres.ts";

export const mochaHooks = {
  async afterAll(this: Mocha.Context): Promise<void> {
    this.timeout(60_000);
    await stopSharedPostgres();
  },
};
