/** Which hosts a Secret offers itself to: the annotation `pawl.dev/hosts`, a list of host[:port]. Pure. */

export const HOSTS_ANNOTATION = "pawl.dev/hosts";

/** host, *.host or [v6], each with an optional port; in lower case. */
const ENTRY =
  /^(\*\.[a-z0-9]([-a-z0-9.]*[a-z0-9])?\.[a-z0-9][-a-z0-9]*|[a-z0-9]([-a-z0-9._]*[a-z0-9])?|\[[0-9a-f:.]+\])(:[0-9]{1,5})?$/;

/** The entries of an annotation, in lower case, and those that are no host[:port] (a URL, a bare `*`). */
export function parseHosts(annotation: string): { hosts: readonly string[]; mistakes: readonly string[] } {
  const entries = annotation
    .split(",")
    .map((entry) => entry.trim().toLowerCase())
    .filter((entry) => entry !== "");
  return {
    hosts: entries.filter((entry) => ENTRY.test(entry)),
    mistakes: entries.filter((entry) => !ENTRY.test(entry)),
  };
}

/**
 * Does one of `hosts` name `host` (host[:port], as in `URL.host`)? Exactly, port included: what is offered to a host's
 * default port is not offered to its others. `*.example.com` names every host below example.com, not itself.
 */
export function offers(hosts: readonly string[], host: string): boolean {
  const asked = host.toLowerCase().replace(/\.(?=$|:)/, "");
  return hosts.some((entry) => (entry.startsWith("*.") ? isBelow(asked, entry.slice(1)) : entry === asked));
}

/** `tail` begins with a dot and may end with a port. */
const isBelow = (host: string, tail: string): boolean =>
  host.endsWith(tail) && host.length > tail.length && !host.startsWith(".");
