/**
 * The one way a tool opens a connection: resolve the name, check every address, connect to a checked one. The name is
 * never resolved a second time, so a server that answers differently the next time (DNS rebinding) gains nothing.
 */
import { lookup as systemLookup } from "node:dns/promises";
import { connect as connectTcp, isIP, type Socket } from "node:net";
import { connect as connectTls, rootCertificates } from "node:tls";
import type { Clock } from "#engine/ports.ts";
import { type Allowance, isPublicAddress, plainHost } from "./addresses.ts";

/** Names resolve in milliseconds; a resolver that needs more is not coming back in time. */
export const RESOLVE_MS = 3_000;
/** Over all addresses of a name, TLS included; below the ten seconds after which a dispatched request must not leave. */
export const CONNECT_MS = 5_000;
/** Addresses tried per name. */
export const MAX_ADDRESSES = 4;

export type Lookup = (host: string) => Promise<readonly string[]>;

export type DialerOptions = {
  readonly clock: Clock;
  readonly allowance: Allowance;
  /** Addresses of a name; by default the system's resolver. */
  readonly lookup?: Lookup;
  /** Extra authorities (PEM) for TLS, beside the well-known ones. */
  readonly ca?: string;
};

export type Dialled =
  | { readonly ok: true; readonly socket: Socket; readonly address: string }
  /** Nothing of the request left. */
  | { readonly ok: false; readonly why: string };

export type Dialer = { dial(url: URL, signal: AbortSignal): Promise<Dialled> };

const defaultLookup: Lookup = async (host) =>
  (await systemLookup(host, { all: true, order: "verbatim" })).map((entry) => entry.address);

export function createDialer(options: DialerOptions): Dialer {
  const { clock, allowance } = options;
  const lookup = options.lookup ?? defaultLookup;

  async function resolve(host: string, signal: AbortSignal): Promise<readonly string[] | string> {
    if (isIP(host) !== 0) return [host];
    const answer = lookup(host).catch((error: unknown) => `The name ${host} does not resolve (${codeOf(error)}).`);
    return await within(clock, RESOLVE_MS, signal, answer, `The name ${host} did not resolve in time.`);
  }

  return {
    async dial(url, signal) {
      const host = plainHost(url.hostname);
      const found = await resolve(host, signal);
      if (typeof found === "string") return { ok: false, why: found };
      const permitted = found.filter(
        (address) => allowance.host(host) || allowance.address(address) || isPublicAddress(address),
      );
      if (permitted.length === 0) {
        const why = `${host} is not a public address, and this install does not allow tools to reach it.`;
        return { ok: false, why };
      }
      const deadline = clock.monotonic() + CONNECT_MS;
      let last: Dialled = { ok: false, why: `${host} could not be reached.` };
      for (const address of permitted.slice(0, MAX_ADDRESSES)) {
        const left = deadline - clock.monotonic();
        if (left <= 0 || signal.aborted) break;
        last = await connectTo(url, host, address, left, signal);
        if (last.ok) return last;
      }
      return last;
    },
  };

  async function connectTo(url: URL, host: string, address: string, ms: number, signal: AbortSignal): Promise<Dialled> {
    const secure = url.protocol === "https:";
    const port = url.port === "" ? (secure ? 443 : 80) : Number(url.port);
    const socket = secure
      ? connectTls({
          host: address,
          port,
          // A server name must be a name; without one the certificate is checked against the address.
          ...(isIP(host) === 0 ? { servername: host } : {}),
          ...(options.ca === undefined ? {} : { ca: [...rootCertificates, options.ca] }),
          ALPNProtocols: ["http/1.1"],
        })
      : connectTcp({ host: address, port });
    const connected = new Promise<string | undefined>((settle) => {
      socket.once(secure ? "secureConnect" : "connect", () => settle(undefined));
      socket.once("error", (error) => settle(`No connection to ${host} (${codeOf(error)}).`));
      socket.once("close", () => settle(`No connection to ${host}.`));
    });
    const why = await within(clock, ms, signal, connected, `No connection to ${host} in time.`);
    if (why === undefined) return { ok: true, socket, address };
    // Its later errors have nobody to tell.
    socket.on("error", () => undefined).destroy();
    return { ok: false, why };
  }
}

/** `work`, or `late` when it takes longer or the signal fires. */
async function within<T>(
  clock: Clock,
  ms: number,
  signal: AbortSignal,
  work: Promise<T>,
  late: string,
): Promise<T | string> {
  const done = new AbortController();
  const timer = clock.sleep(ms, AbortSignal.any([signal, done.signal])).then(() => late);
  try {
    return await Promise.race([work, timer]);
  } finally {
    done.abort();
  }
}

export function codeOf(error: unknown): string {
  const code = error instanceof Error ? (error as { code?: unknown }).code : undefined;
  return typeof code === "string" ? code : "no details";
}
