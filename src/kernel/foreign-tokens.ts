// `iptables -S` as logical lines of words. Its text is quoted as for a shell: a word with anything unusual in it stands
// in double quotes, and a quote or backslash in it after a backslash. A comment may hold a line feed, printed raw (seen
// with 1.8.9), so a line of text is not always a rule: a comment could otherwise play any rule.

export interface PrintedLine {
  /** As printed, line feeds included. */
  readonly text: string;
  readonly words: readonly string[];
}

/** Throws a SyntaxError when a quote is not closed or a backslash stands at the end: the text was cut. */
export function printedLines(text: string): readonly PrintedLine[] {
  const lines: PrintedLine[] = [];
  let words: string[] = [];
  let word: string | undefined;
  let quoted = false;
  let start = 0;
  const endWord = (): void => {
    if (word !== undefined) words.push(word);
    word = undefined;
  };
  for (let i = 0; i <= text.length; i++) {
    const char = text[i] ?? '\n';
    if (i === text.length && quoted) throw new SyntaxError(`a quote is not closed: ${text.slice(start)}`);
    if (char === '\\') {
      if (i + 1 >= text.length) throw new SyntaxError(`it ends in a backslash: ${text.slice(start)}`);
      word = (word ?? '') + (text[++i] as string);
    } else if (char === '"') {
      quoted = !quoted;
      word ??= '';
    } else if (quoted || (char !== ' ' && char !== '\n')) word = (word ?? '') + char;
    else {
      endWord();
      if (char === ' ') continue;
      if (words.length > 0) lines.push({ text: text.slice(start, i).trimEnd(), words });
      words = [];
      start = i + 1;
    }
  }
  return lines;
}
