/**
 * Which addresses a tool may connect to. Everything that is not plainly the public internet is refused: loopback,
 * private and link-local networks (cloud metadata among them), carrier NAT, multicast, documentation and transition
 * ranges. What an install needs beyond that it allows by name or network. Pure.
 */
import { BlockList, isIP, isIPv4 } from "node:net";

const REFUSED_V4 = [
  "0.0.0.0/8", // this network
  "10.0.0.0/8",
  "100.64.0.0/10", // carrier NAT; one cloud's metadata
  "127.0.0.0/8",
  "168.63.129.16/32", // Azure's platform address, public by number only
  "169.254.0.0/16", // link-local; most clouds' metadata
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.0.2.0/24",
  "192.88.99.0/24",
  "192.168.0.0/16",
  "198.18.0.0/15",
  "198.51.100.0/24",
  "203.0.113.0/24",
  "224.0.0.0/4", // multicast
  "240.0.0.0/4", // reserved, broadcast
];
/** The only global unicast range of IPv6; unique-local, link-local, multicast and loopback lie outside of it. */
const PUBLIC_V6 = ["2000::/3"];
const REFUSED_V6 = [
  "2001::/23", // protocol assignments, Teredo among them
  "2001:db8::/32",
  "2002::/16", // 6to4 carries any IPv4 address
  "3fff::/20",
];
/** NAT64 carries an IPv4 address in its last 32 bits: that one decides. */
const NAT64 = listOf(["64:ff9b::/96"]);

const refusedV4 = listOf(REFUSED_V4);
const publicV6 = listOf(PUBLIC_V6);
const refusedV6 = listOf(REFUSED_V6);

/** Throws for text that is not CIDR. */
function listOf(networks: readonly string[]): BlockList {
  const list = new BlockList();
  for (const network of networks) {
    const [address = "", prefix = ""] = network.split("/");
    const family = isIP(address);
    if (family === 0 || !/^\d+$/.test(prefix)) throw new Error(`not a network: ${network}`);
    list.addSubnet(address, Number(prefix), family === 4 ? "ipv4" : "ipv6");
  }
  return list;
}

/** An IPv4 address in IPv6 clothes (`::ffff:a.b.c.d`, NAT64) as IPv4; zone indices are dropped. */
export function plainAddress(address: string): string {
  const bare = (address.split("%")[0] ?? "").toLowerCase();
  if (isIPv4(bare) || isIP(bare) === 0) return bare;
  const groups = expand(bare);
  const mapped = groups.slice(0, 5).every((group) => group === 0) && groups[5] === 0xffff;
  if (!mapped && !NAT64.check(bare, "ipv6")) return bare;
  const [high = 0, low = 0] = groups.slice(6);
  return [high >> 8, high & 255, low >> 8, low & 255].join(".");
}

/** The eight groups of an IPv6 address. */
function expand(address: string): number[] {
  // The URL parser writes any valid address in hexadecimal groups, dotted tails included.
  const text = new URL(`http://[${address}]`).hostname.slice(1, -1);
  const [head = "", tail] = text.split("::");
  const parse = (part: string): number[] =>
    part === "" ? [] : part.split(":").map((group) => Number.parseInt(group, 16));
  const before = parse(head);
  const after = tail === undefined ? [] : parse(tail);
  return [...before, ...Array.from({ length: 8 - before.length - after.length }, () => 0), ...after];
}

export function isPublicAddress(address: string): boolean {
  const plain = plainAddress(address);
  if (isIPv4(plain)) return !refusedV4.check(plain, "ipv4");
  return isIP(plain) === 6 && publicV6.check(plain, "ipv6") && !refusedV6.check(plain, "ipv6");
}

export type Allowance = {
  host(host: string): boolean;
  address(address: string): boolean;
};

/** `allow`: networks in CIDR, single addresses, or host names (whole, not patterns). Throws for anything else. */
export function allowance(allow: readonly string[]): Allowance {
  const networks: string[] = [];
  const hosts = new Set<string>();
  for (const entry of allow) {
    if (entry.includes("/")) networks.push(entry);
    else if (isIP(entry) !== 0) networks.push(`${entry}/${isIP(entry) === 4 ? 32 : 128}`);
    else if (/^[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?\.?$/i.test(entry)) hosts.add(plainHost(entry));
    else throw new Error(`not a host name or network: ${entry}`);
  }
  const list = listOf(networks);
  return {
    host: (host) => hosts.has(plainHost(host)),
    address: (address) => {
      const plain = plainAddress(address);
      return isIP(plain) !== 0 && list.check(plain, isIPv4(plain) ? "ipv4" : "ipv6");
    },
  };
}

/** Lower case, without the dot that ends an absolute name and without the brackets of IPv6. */
export function plainHost(host: string): string {
  return host
    .toLowerCase()
    .replace(/\.$/, "")
    .replace(/^\[(.*)\]$/, "$1");
}
