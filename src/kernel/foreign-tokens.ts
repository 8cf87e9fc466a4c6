// `iptables -S` as logical lines of words. A word with anything unusual in it is printed in double quotes, and a quote
// or backslash in it after a backslash. A comment may hold a line feed, printed raw (seen with 1.8.9), so a line of
// text is not always a rule: read by lines, a comment could play any rule.

export interface PrintedLine {
  /** As printed, line feeds included. */
  readonly text: string;
  readonly words: readonly string[];
}

/** Throws a SyntaxError when a quote is not closed or the text ends in a backslash: it was cut. */
export function printedLines(text: string): readonly PrintedLine[] {
  const lines: PrintedLine[] = [];
  for (let start = 0; start < text.length; ) {
    const feed = text.indexOf('\n', start);
    const plain = text.slice(start, feed < 0 ? text.length : feed);
    // Most of a table's lines have nothing to unwrap; there may be tens of thousands of them.
    const read = /["\\]/.test(plain)
      ? quotedLine(text, start)
      : { words: plain.split(' ').filter(word => word !== ''), end: start + plain.length };
    if (read.words.length > 0) lines.push({ text: text.slice(start, read.end).trimEnd(), words: read.words });
    start = read.end + 1;
  }
  return lines;
}

/** The words from `start` to the line feed that no quote holds; `end` is its place. */
function quotedLine(
  text: string,
  start: number,
): { readonly words: readonly string[]; readonly end: number } {
  const words: string[] = [];
  let word: string | undefined;
  let quoted = false;
  for (let i = start; ; i++) {
    const char = text[i];
    if (char === undefined && quoted) throw new SyntaxError(`a quote is not closed: ${text.slice(start)}`);
    if (!quoted && (char === ' ' || char === '\n' || char === undefined)) {
      if (word !== undefined) words.push(word);
      word = undefined;
      if (char !== ' ') return { words, end: i };
    } else if (char === '"') {
      quoted = !quoted;
      word ??= '';
    } else if (char === '\\') {
      const escaped = text[++i];
      if (escaped === undefined) throw new SyntaxError(`it ends in a backslash: ${text.slice(start)}`);
      word = (word ?? '') + escaped;
    } else word = (word ?? '') + (char ?? '');
  }
}
