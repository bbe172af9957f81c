// What the local cluster has started and changed, written down before it is relied on, so that a crash loses nothing.
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { isRunning, type RecordedProcess } from "../../lib/processes.ts";
import { layout } from "./layout.ts";

export type ClusterRecord = {
  /** Milliseconds since 1970. */
  startedAt: number;
  /** True once everything answered; a start that was cut short never gets there. */
  complete: boolean;
  /** Changes with the programs and settings: a cluster of other versions is replaced. */
  recipe: string;
  processes: RecordedProcess[];
  /** Kernel settings by path, as they were before. */
  sysctls: Record<string, string>;
};

export function readRecord(): ClusterRecord | undefined {
  try {
    return JSON.parse(readFileSync(layout().record, "utf8")) as ClusterRecord;
  } catch {
    return undefined;
  }
}

export function writeRecord(record: ClusterRecord): void {
  const path = layout().record;
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(`${path}.draft`, JSON.stringify(record, null, 2));
  renameSync(`${path}.draft`, path);
}

export function deadProcesses(record: ClusterRecord): string[] {
  return record.processes.filter((one) => !isRunning(one)).map((one) => one.name);
}
