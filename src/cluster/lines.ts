// Lines of text that comes in pieces. Pure.
import { StringDecoder } from 'node:string_decoder';

export interface LineReader {
  /** The lines that the piece completes, without empty ones. Throws when a line is longer than allowed. */
  push(piece: Buffer): readonly string[];
  /** What came after the last line end, if that is anything. */
  end(): readonly string[];
}

/** Pieces may be cut anywhere, also inside a character. What is kept is at most one line of `maxLength` UTF-16 units. */
export function createLineReader(maxLength: number): LineReader {
  const decoder = new StringDecoder('utf8');
  // Joined only when the line is whole: a line of many pieces is not copied for each of them.
  let begun: string[] = [];
  let length = 0;
  const take = (text: string): readonly string[] => {
    const lines = text.split('\n');
    const rest = lines.pop() ?? '';
    if (lines.length > 0) {
      lines[0] = [...begun, lines[0]].join('');
      begun = [];
      length = 0;
    }
    begun.push(rest);
    length += rest.length;
    if (length > maxLength) throw new Error(`a line is longer than ${maxLength} characters`);
    return lines.filter(line => line.trim() !== '');
  };
  return {
    push: piece => take(decoder.write(piece)),
    end: () => take(`${decoder.end()}\n`),
  };
}
