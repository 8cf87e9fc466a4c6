// The benchmark runs from start to end and says what it is to say. What the numbers are is not judged: a test shares
// the machine with others.
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { bundle } from '../../scripts/bundle.mjs';
import { PART_NAMES, type Row } from '../bench/result.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'natoutgoing-test-'));
  await writeFile(join(folder, 'package.json'), '{"type":"module"}');
  // As in dist/: the benchmark looks for the command beside itself.
  await bundle('src/main.ts', join(folder, 'natoutgoing.js'));
  await bundle('test/bench/main.ts', join(folder, 'bench.js'));
});
afterAll(() => rm(folder, { recursive: true }));

const bench = (...args: readonly string[]): Promise<{ readonly stdout: string }> =>
  promisify(execFile)(process.execPath, [join(folder, 'bench.js'), ...args]);

const SIZES = ['4', '64', '1,000', '10,000', '100,000'].map(size => `${size} CIDRs`);
const RULES = ['1 rule', '10 rules', '50 rules', '200 rules'];
const SHAPES = ['of other sources', 'to other destinations', 'to other destinations, 50 a policy'];

/** What each part has for each backend: ours, and what it is held against. */
const EXPECTED: Readonly<Record<(typeof PART_NAMES)[number], readonly string[]>> = {
  exemptions: ['exempt flow', 'other flow'].flatMap(flow => [
    ...SIZES.slice(0, 3).map(size => `${flow}, ${size} / a rule for each`),
    ...[...SIZES.slice(1), '100,000 /24'].map(size => `${flow}, ${size} / ours, 4 CIDRs`),
  ]),
  policies: [
    "(Felix's rule in its chains) / Felix's rule alone",
    '(tracking of connections) / an empty chain without',
    ...SHAPES.flatMap(shape => [
      ...RULES.map(rules => `${rules} ${shape} / Felix's rule`),
      `200 rules ${shape}, without tracking / ours, 1 rule`,
      `200 rules ${shape}, without tracking / Felix's rule`,
    ]),
  ],
  'one-more': ['one CIDR more in 100,000, applied / ipset add', 'planned and rendered before / '],
  'first-apply': [
    '100,000 CIDRs, applied at once / ipset restore',
    'the whole command, from JSON / ipset restore',
  ],
  check: ['both families, beside 25,000 service rules / iptables-save -t nat'],
  plan: [
    '500 policies, 100 pools, 5,000 nodes / ',
    'a pool toggled / all of it',
    "a node's labels changed / all of it",
    'a policy edited / all of it',
  ],
};

const spreads = ({ value, other, ratio }: Row): readonly number[] =>
  [value, other?.value, ratio].flatMap(spread =>
    spread === undefined ? [] : [spread.median, spread.low, spread.high],
  );

test('the short form gives every row, with numbers, as a table and as JSON', {
  timeout: 300_000,
}, async () => {
  const output = join(folder, 'bench.json');
  const { stdout } = await bench('--quick', '--output', output);
  const { rows } = JSON.parse(await readFile(output, 'utf8')) as { readonly rows: readonly Row[] };
  const names = rows.map(row => `${row.part} ${row.backend}: ${row.ours} / ${row.other?.name ?? ''}`);
  const expected = PART_NAMES.flatMap(part =>
    (part === 'plan' ? ['-'] : ['nft', 'legacy']).flatMap(backend =>
      EXPECTED[part].map(row => `${part} ${backend}: ${row}`),
    ),
  );
  expect(names.toSorted()).toEqual(expected.toSorted());
  for (const row of rows) {
    expect(spreads(row).every(Number.isFinite), `${row.part} ${row.backend}: ${row.ours}`).toBe(true);
    expect(row.value.low).toBeLessThanOrEqual(row.value.high);
  }
  for (const part of PART_NAMES) expect(stdout).toContain(`\n${part} `);
});

test('an unknown part is refused with the names of those that there are', async () => {
  await expect(bench('--only', 'speed')).rejects.toMatchObject({
    code: 2,
    stderr: `error: --only: speed is none of ${PART_NAMES.join(', ')}\n`,
  });
});
