/** Globs over tool names as an Agent writes them: `*` stands for any run of characters, everything else for itself. */
export function matchesGlob(glob: string, name: string): boolean {
  const [first = "", ...rest] = glob.split("*");
  const last = rest.pop();
  if (last === undefined) return glob === name;
  if (!name.startsWith(first)) return false;
  let at = first.length;
  for (const part of rest) {
    const found = name.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return name.length >= at + last.length && name.endsWith(last);
}

export const matchesAny = (globs: readonly string[], name: string): boolean =>
  globs.some((glob) => matchesGlob(glob, name));
