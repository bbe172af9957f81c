/** JSON logs with fixed keys. What could carry a secret never becomes a field: see the redaction paths. */
import { pino } from "pino";

export type Log = {
  info(fields: Readonly<Record<string, unknown>>, message: string): void;
  warn(fields: Readonly<Record<string, unknown>>, message: string): void;
  error(fields: Readonly<Record<string, unknown>>, message: string): void;
};

export function createLog(level: string, instance: string): Log {
  return pino({
    level,
    base: { instance },
    redact: {
      paths: ["apiKey", "*.apiKey", "password", "*.password", "authorization", "*.authorization"],
      censor: "[redacted]",
    },
    formatters: { level: (label) => ({ level: label }) },
    timestamp: () => `,"time":"${new Date().toISOString()}"`,
  });
}

/** A ledger URL for people: without its password. */
export function withoutPassword(url: string): string {
  if (!URL.canParse(url)) return "(not a URL)";
  const parsed = new URL(url);
  if (parsed.password !== "") parsed.password = "…";
  return parsed.toString();
}
