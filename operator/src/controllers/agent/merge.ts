/** An Agent's spec with everything it leaves open filled in: its own word, else the install's, else the built-in one. */
import { AGENT_DEFAULTS, type AgentSpec, parseDuration } from "@pawl/crds";
import type { ControllerConfig } from "../config.ts";

type Budgets = NonNullable<AgentSpec["budgets"]>;

type Given<T> = { [K in keyof T]?: Exclude<T[K], undefined> };

/** Only what is there, so that an absent field never hides a default. */
function given<T extends object>(value: T | undefined): Given<T> {
  return Object.fromEntries(Object.entries(value ?? {}).filter(([, field]) => field !== undefined)) as Given<T>;
}

/** The same as a list, for budgets: their values are counts and durations. */
const entries = (budgets: Budgets | undefined): [string, string | number][] =>
  Object.entries<string | number>(given(budgets));

const amount = (value: string | number): number => (typeof value === "number" ? value : parseDuration(value));

/** Fields of `asked` that are above the install's ceilings, as paths with both values. */
export function overCeiling(asked: Budgets | undefined, ceilings: Budgets | undefined): string[] {
  return entries(ceilings).flatMap(([name, ceiling]) => {
    const wish = asked?.[name as keyof Budgets];
    return wish !== undefined && amount(wish) > amount(ceiling)
      ? [`spec.budgets.${name} is ${wish}, at most ${ceiling} here`]
      : [];
  });
}

function mergedBudgets(spec: AgentSpec, config: ControllerConfig): Budgets {
  const merged = Object.fromEntries([
    ...entries(AGENT_DEFAULTS.budgets),
    ...entries(config.defaults.budgets),
    ...entries(spec.budgets),
  ]);
  for (const [name, ceiling] of entries(config.ceilings)) {
    const own = merged[name];
    if (own === undefined || amount(own) > amount(ceiling)) merged[name] = ceiling;
  }
  return merged;
}

/** `suspend` is not part of it: it is a switch, not a new generation. */
export function mergedSpec(spec: AgentSpec, config: ControllerConfig): AgentSpec {
  const { suspend: _, ...own } = spec;
  const { decision: _decision, ...defaults } = config.defaults.models ?? {};
  const models = { ...given(defaults), ...given(spec.models) };
  return {
    ...own,
    ...(Object.keys(models).length === 0 ? {} : { models }),
    interrupt: { ...AGENT_DEFAULTS.interrupt, ...given(config.defaults.interrupt), ...given(spec.interrupt) },
    budgets: mergedBudgets(spec, config),
    concurrency: { ...AGENT_DEFAULTS.concurrency, ...given(spec.concurrency) },
    runs: { ...AGENT_DEFAULTS.runs, ...given(spec.runs) },
    answerWithin: spec.answerWithin ?? AGENT_DEFAULTS.answerWithin,
  };
}
