// The pages that say what is shown by which test: docs/field-cases.md and docs/security.md. The tests are there.
import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { formatCidr } from '../../src/cidr/cidr.ts';
import { SCOPE_RANGES } from '../../src/planner/scopes.ts';

const CASES = 58;

const rows = [...readFileSync('docs/field-cases.md', 'utf8').matchAll(/^\| (F\d\d) +\|(.*)\|$/gm)].map(
  ([, id = '', cells = '']) => ({ id, cells: cells.split(' | ').map(cell => cell.trim()) }),
);

/** `FILE: WORDS; FILE: WORDS`: a test among them, and the words in each. */
function expectTestsIn(cell: string): void {
  const named = cell.split('; ').map(text => /^([^: ]+): (.+)$/.exec(text) ?? [text, '', '']);
  expect(named.filter(([, path = '']) => !existsSync(path) || !/^(test|examples)\//.test(path))).toEqual([]);
  const missing = named.filter(([, path = '', words = '']) => !readFileSync(path, 'utf8').includes(words));
  expect(missing.map(([text]) => text)).toEqual([]);
  expect(named.some(([, path = '']) => path.endsWith('.test.ts'))).toBe(true);
}

describe('the page of who can do what', () => {
  const lines = readFileSync('docs/security.md', 'utf8').matchAll(/^\| (?!---|who is hostile)(.*) \|$/gm);
  const claims = [...lines].map(([, text = '']) => {
    const cells = text.split(' | ').map(cell => cell.trim());
    return { who: cells[0] ?? '', cells };
  });

  it('speaks of enough people', () => {
    expect(claims.length).toBeGreaterThan(7);
  });

  it.each(claims)('$who: names tests that are there', ({ cells }) => {
    expect(cells).toHaveLength(4);
    expectTestsIn(cells[3] ?? '');
  });
});

describe('the page of field cases', () => {
  it('has every case once, in order', () => {
    const ids = Array.from({ length: CASES }, (_, i) => `F${String(i + 1).padStart(2, '0')}`);
    expect(rows.map(({ id }) => id)).toEqual(ids);
  });

  it.each(rows)('$id says what went wrong, what we do, and names tests that are there', ({ cells }) => {
    expect(cells).toHaveLength(3);
    expect(cells.filter(cell => cell.length < 10)).toEqual([]);
    const named = (cells[2] ?? '').split('; ').map(text => /^([^: ]+): (.+)$/.exec(text) ?? [text, '', '']);
    expect(named.filter(([, path = '']) => !existsSync(path) || !/^(test|examples)\//.test(path))).toEqual(
      [],
    );
    const missing = named.filter(([, path = '', words = '']) => !readFileSync(path, 'utf8').includes(words));
    expect(missing.map(([text]) => text)).toEqual([]);
    expect(named.some(([, path = '']) => path.endsWith('.test.ts'))).toBe(true);
  });

  it('reserved ranges are the eleven of ip-masq-agent, and the private ones of IPv6', () => {
    expect(SCOPE_RANGES.Reserved.map(formatCidr).toSorted()).toEqual(
      [
        '10.0.0.0/8',
        '100.64.0.0/10',
        '172.16.0.0/12',
        '192.0.0.0/24',
        '192.0.2.0/24',
        '192.88.99.0/24',
        '192.168.0.0/16',
        '198.18.0.0/15',
        '198.51.100.0/24',
        '203.0.113.0/24',
        '240.0.0.0/4',
        'fc00::/7',
      ].toSorted(),
    );
  });
});
