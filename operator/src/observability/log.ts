/** JSON logs with fixed keys. What could carry a secret never becomes a field: see the redaction paths. */
import { pino } from "pino";

export type Log = {
  info(fields: Readonly<Record<string, unknown>>, message: string): void;
  warn(fields: Readonly<Record<string, unknown>>, message: string): void;
  error(fields: Readonly<Record<string, unknown>>, message: string): void;
};

/** `redact` sees every finished line: nothing gets past it, whichever field it stands in. */
export function createLog(
  level: string,
  instance: string,
  redact: (line: string) => string = (line) => line,
  destination: { write(line: string): void } = pino.destination(1),
): Log {
  const options = {
    level,
    base: { instance },
    redact: {
      paths: ["apiKey", "*.apiKey", "password", "*.password", "authorization", "*.authorization"],
      censor: "[redacted]",
    },
    formatters: { level: (label: string) => ({ level: label }) },
    hooks: { streamWrite: redact },
    timestamp: () => `,"time":"${new Date().toISOString()}"`,
  };
  return pino(options, destination);
}

/** A ledger URL for people: without its password. */
export function withoutPassword(url: string): string {
  if (!URL.canParse(url)) return "(not a URL)";
  const parsed = new URL(url);
  if (parsed.password !== "") parsed.password = "…";
  return parsed.toString();
}
