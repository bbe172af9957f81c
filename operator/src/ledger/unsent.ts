/**
 * Effects that were given up before their first byte. Their calls may cross anew, and then only the newest effect of a
 * call is what became of it. Parts of statements, about a row `e` of `commitment_effects`.
 */
const OF_ITS_CALL = "from commitment_effects o where o.run_id = e.run_id and o.call_id = e.call_id";

/** How often its call was given up so; 0 for an effect that was not. */
export const TIMES_UNSENT = `(case when e.unsent then (select count(*) ${OF_ITS_CALL} and o.unsent)::int else 0 end)`;

/** Its call has crossed again since. */
export const CROSSED_ANEW = `(e.unsent and exists (select ${OF_ITS_CALL} and o.dispatched_at > e.dispatched_at))`;
