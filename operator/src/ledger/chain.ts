/**
 * What belongs to a run: its own rows and those of the runs that it inherits (`runs.inherits`). Steps are inherited by
 * reference, never copied, and ordinals go on, so that rows of the whole chain sort as those of one run.
 */

/** That a row is of the run `:run` or of one that it inherits. */
export const ofRun = (column: string): string =>
  `${column} = any ((select z.inherits || z.id from runs z where z.id = :run)::uuid[])`;

/** The same for a run that stands in the query, by its alias. */
export const ofChain = (column: string, run: string): string => `${column} = any (${run}.inherits || ${run}.id)`;

/**
 * The messages of a chain, once each: as the newest run that took them in has them, with the role in which they came.
 * `first`: the condition on `t.run_id`; columns of `t` are the trigger's, `age` is the position in the chain.
 */
export const triggersOf = (chain: string): string => `
      select distinct on (t.event_id) t.event_id, t.run_id, t.delivered_ordinal,
             coalesce((select p.role from unnest(${chain}) with ordinality q (run_id, age) join run_triggers p on p.run_id = q.run_id
                       where p.event_id = t.event_id and p.role <> 'inherited' order by q.age limit 1), t.role) as role
      from unnest(${chain}) with ordinality n (run_id, age) join run_triggers t on t.run_id = n.run_id
      order by t.event_id, n.age desc`;
