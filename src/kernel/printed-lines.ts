// `iptables -S` as logical lines of words. A word with anything unusual in it is printed in double quotes, and a quote
// or backslash in it after a backslash. A comment may hold a line feed, printed raw (seen with 1.8.9), so a line of
// text is not always a rule: read by lines, a comment could play any rule.

export interface PrintedLine {
  /** As printed, line feeds included. */
  readonly text: string;
  readonly words: readonly string[];
}

/** Throws a SyntaxError when a quote is not closed or the text ends in a backslash: it was cut. */
export const printedLines = (text: string): readonly PrintedLine[] =>
  logicalLines(text).flatMap(line => {
    const words = wordsOf(line);
    return words.length === 0 ? [] : [{ text: line.trimEnd(), words }];
  });

/**
 * The lines, of which one that holds a quoted line feed is more than one line of text. Most of a table's lines have
 * nothing to unwrap, and there may be tens of thousands of them. Throws as printedLines does.
 */
export function logicalLines(text: string): readonly string[] {
  const lines: string[] = [];
  const endsInQuote = text.includes('\\') ? hasOpenQuote : hasOddQuotes;
  let open = '';
  for (const part of text.split('\n')) {
    const line = open === '' ? part : `${open}\n${part}`;
    const whole = !endsInQuote(line);
    open = whole ? '' : line;
    if (whole) lines.push(line);
  }
  if (open !== '') throw new SyntaxError(`a quote is not closed: ${open}`);
  return lines;
}

function hasOddQuotes(line: string): boolean {
  let odd = false;
  for (let at = line.indexOf('"'); at >= 0; at = line.indexOf('"', at + 1)) odd = !odd;
  return odd;
}

function hasOpenQuote(line: string): boolean {
  let quoted = false;
  for (let i = 0; i < line.length; i++) {
    if (line[i] === '\\') i++;
    else if (line[i] === '"') quoted = !quoted;
  }
  return quoted;
}

/** The words of one logical line, unwrapped. Throws as printedLines does. */
export function wordsOf(line: string): readonly string[] {
  const words: string[] = [];
  let word: string | undefined;
  let quoted = false;
  for (let i = 0; i < line.length; i++) {
    const char = line[i] as string;
    if (!quoted && char === ' ') {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else if (char === '"') {
      quoted = !quoted;
      word ??= '';
    } else if (char === '\\') {
      const escaped = line[++i];
      if (escaped === undefined) throw new SyntaxError(`it ends in a backslash: ${line}`);
      word = (word ?? '') + escaped;
    } else word = (word ?? '') + char;
  }
  if (quoted) throw new SyntaxError(`a quote is not closed: ${line}`);
  if (word !== undefined) words.push(word);
  return words;
}
