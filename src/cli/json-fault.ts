// Where JSON is broken. JSON.parse does not say it in every version of Node (20 leaves it out for short texts), and it
// is asked only once parsing has failed, so this may be slow.

/** One token, or a blank; strings and numbers as RFC 8259 has them. */
const TOKEN =
  /[ \t\r\n]+|[{}[\],:]|"(?:[ !#-[\]-\u{10ffff}]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/uy;

/** What may come next. */
type Expected = 'value' | 'value or ]' | 'key' | 'key or }' | 'colon' | 'comma or end';

const OPENERS: Readonly<Record<string, Expected>> = { '[': 'value or ]', '{': 'key or }' };

/** What may follow the token; undefined when the token must not stand here. `open` holds the brackets around it. */
function next(token: string, expected: Expected, open: string[]): Expected | undefined {
  const inObject = open[open.length - 1] === '{';
  if (token === ']' || token === '}') {
    const closes = token === '}' ? '{' : '[';
    const allowed = expected === 'comma or end' || expected.endsWith(`or ${token}`);
    return allowed && open.pop() === closes ? 'comma or end' : undefined;
  }
  if (expected === 'comma or end') {
    if (token !== ',' || open.length === 0) return undefined;
    return inObject ? 'key' : 'value';
  }
  if (expected === 'colon') return token === ':' ? 'value' : undefined;
  if (expected.startsWith('key')) return token.startsWith('"') ? 'colon' : undefined;
  if (token === ',' || token === ':') return undefined;
  const opener = OPENERS[token];
  if (opener === undefined) return 'comma or end';
  open.push(token);
  return opener;
}

/** The offset of the first character that cannot be part of the JSON; the text's length when it ends too soon. */
export function jsonFaultOffset(text: string): number {
  const open: string[] = [];
  let expected: Expected = 'value';
  let offset = 0;
  // A copy, since a sticky expression carries its position with it.
  const tokens = new RegExp(TOKEN);
  while (offset < text.length) {
    tokens.lastIndex = offset;
    const token = tokens.exec(text)?.[0];
    if (token === undefined) return offset;
    if (!/^[ \t\r\n]/.test(token)) {
      const follows = next(token, expected, open);
      if (follows === undefined) return offset;
      expected = follows;
    }
    offset += token.length;
  }
  return offset;
}
