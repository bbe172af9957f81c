// A Run's status as the demo shows it.
import type { RunStatus } from "@pawl/crds";
import type { KubeObject } from "./kubectl.ts";

export const statusOf = (object: KubeObject): RunStatus => object.status ?? {};

export const conditionOf = (object: KubeObject, type: string) =>
  statusOf(object).conditions?.find((one) => one.type === type);

export const isTrue = (object: KubeObject, type: string): boolean => conditionOf(object, type)?.status === "True";

const WIDTHS = [20, 13, 12, 6, 6];
const line = (cells: readonly string[]): string =>
  cells
    .map((cell, column) => cell.padEnd(WIDTHS[column] ?? 0))
    .join(" ")
    .trimEnd();

/** The columns of `kubectl get runs`, fewer of them, and what the run is doing. */
export const HEADER = line(["NAME", "PHASE", "RESTARTABLE", "STEPS", "TOOK", "NOW"]);

export function row(object: KubeObject): string {
  const status = statusOf(object);
  return line([
    object.metadata.name,
    status.phase ?? "",
    status.boundary?.restartable ?? "",
    String(status.usage?.steps ?? ""),
    status.took ?? "",
    status.activity ?? status.reason ?? "",
  ]);
}

/** As `kubectl describe` shows them, in columns. */
export function conditionTable(object: KubeObject): string {
  const rows = (statusOf(object).conditions ?? []).map((one) => [one.type, one.status, one.reason, one.message]);
  return table([["CONDITION", "STATUS", "REASON", "MESSAGE"], ...rows]);
}

export function table(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((cells) => cells[column]?.length ?? 0)));
  return rows
    .map((cells) =>
      cells
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}
