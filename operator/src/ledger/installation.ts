/** Which cluster this ledger belongs to. */
import { PawlError } from "#rules/errors.ts";
import type { Runner } from "./database.ts";
import { statement } from "./statement.ts";

const claimInstallation = statement({
  name: "claim_installation",
  params: { kube_system_uid: "text", born_at: "timestamptz" },
  columns: { kube_system_uid: "text", born_at: "timestamptz", epoch: "int8" },
  text: `
    insert into installations (kube_system_uid, born_at) values (:kube_system_uid, date_trunc('second', :born_at))
    on conflict (one) do update set one = true
    returning kube_system_uid, born_at, epoch`,
});

const adoptInstallation = statement({
  name: "adopt_installation",
  params: { kube_system_uid: "text", born_at: "timestamptz" },
  columns: { kube_system_uid: "text", born_at: "timestamptz", epoch: "int8" },
  text: `
    insert into installations (kube_system_uid, born_at) values (:kube_system_uid, date_trunc('second', :born_at))
    on conflict (one) do update
      set kube_system_uid = excluded.kube_system_uid, born_at = excluded.born_at, epoch = installations.epoch +
          case when (installations.kube_system_uid, installations.born_at) = (excluded.kube_system_uid, excluded.born_at) then 0 else 1 end
    returning kube_system_uid, born_at, epoch`,
});

export type Installation = { kubeSystemUid: string; bornAt: Date; epoch: number };

const installation = (row: { kube_system_uid: string; born_at: Date; epoch: number }): Installation => ({
  kubeSystemUid: row.kube_system_uid,
  bornAt: row.born_at,
  epoch: row.epoch,
});

/** The first caller names the cluster; every later one must come from the same. `now` is the API server's clock. */
export async function claimLedger(db: Runner, kubeSystemUid: string, now: Date): Promise<Installation> {
  const found = installation(await db.one(claimInstallation, { kube_system_uid: kubeSystemUid, born_at: now }));
  if (found.kubeSystemUid !== kubeSystemUid) {
    throw new PawlError(
      "terminal",
      "ForeignLedger",
      `this ledger belongs to another cluster (kube-system UID ${found.kubeSystemUid}, this one is ${kubeSystemUid}); ` +
        "give this install a database of its own, or run `pawl adopt-ledger` if the old cluster is gone for good",
    );
  }
  return found;
}

/** The explicit way out after a cluster was replaced: Runs older than now are not messages any more. */
export async function adoptLedger(db: Runner, kubeSystemUid: string, now: Date): Promise<Installation> {
  return installation(await db.one(adoptInstallation, { kube_system_uid: kubeSystemUid, born_at: now }));
}
