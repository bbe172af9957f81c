/** What others wrote goes to a person's terminal: without the characters that would steer it. */
export const plain = (text: string): string =>
  // oxlint-disable-next-line no-control-regex
  text.replaceAll(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, "\ufffd");

/** The same in one line, so that nobody's text can look like a row of a table. */
export const inline = (text: string): string => plain(text).replaceAll(/[\t\n\u2028\u2029]/g, "\ufffd");
