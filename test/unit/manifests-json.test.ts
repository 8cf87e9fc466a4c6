import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { formatCidr } from '../../src/cidr/cidr.ts';
import { jsonFaultOffset } from '../../src/cli/json-fault.ts';
import { documentsOf } from '../../src/cli/manifest-documents.ts';
import { loadManifests } from '../../src/cli/manifests.ts';

describe('a fault of JSON', () => {
  it.each([
    ['{"a": 1,}', 8],
    ['[1, 2,]', 6],
    ['[1 2]', 3],
    ['{"a" 1}', 5],
    ['{a: 1}', 1],
    ['[01]', 2],
    ['["a\tb"]', 1],
    ['{"a": [1}', 8],
    ['[]]', 2],
    ['1, 2', 1],
    ['{"a": tru}', 6],
    ['[1', 2],
    ['', 0],
  ])('of %j is at %i', (text, offset) => {
    expect(() => JSON.parse(text) as unknown).toThrow(SyntaxError);
    expect(jsonFaultOffset(text)).toBe(offset);
  });

  it('is nowhere in what JSON.stringify prints, and somewhere in what lacks its end', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.nat(4), (value, spaces) => {
        const text = JSON.stringify({ value }, null, spaces);
        expect(jsonFaultOffset(text)).toBe(text.length);
        expect(jsonFaultOffset(`${text}}`)).toBe(text.length);
      }),
    );
  });
});

it.each(['a.yaml', 'a.json'])(
  'brackets without end do not overflow the stack: %s',
  file => {
    const { objects, problems } = documentsOf(file, '['.repeat(100_000));
    expect(objects).toEqual([]);
    expect(problems.length).toBeGreaterThanOrEqual(1);
    expect(problems.length).toBeLessThanOrEqual(3);
    for (const line of problems) expect(line).toMatch(/^a\.(yaml|json):1:\d+: not (YAML|JSON): /);
  },
  30_000,
);

it('100,000 nets are read from JSON in well under a second', async () => {
  const nets = Array.from({ length: 100_000 }, (_, i) => `10.${i >>> 16}.${(i >>> 8) & 255}.${i & 255}/32`);
  const set = {
    apiVersion: 'projectcalico.org/v3',
    kind: 'GlobalNetworkSet',
    metadata: { name: 'a' },
    spec: { nets },
  };
  const folder = await mkdtemp(join(tmpdir(), 'natoutgoing-manifests-'));
  try {
    await writeFile(join(folder, 'a.json'), JSON.stringify(set));
    let fastest = Number.POSITIVE_INFINITY;
    // Other programs share the machine: processor time, and the least of three, says what the code costs.
    for (let run = 0; run < 3; run++) {
      const start = process.cpuUsage();
      const { snapshot } = await loadManifests([folder], () => Promise.reject(new Error('not asked for')));
      const { user, system } = process.cpuUsage(start);
      fastest = Math.min(fastest, (user + system) / 1000);
      expect(snapshot.networkSets[0]?.nets.map(formatCidr)).toEqual(nets);
    }
    // 0.2 to 0.5 s; the YAML parser needs about 2 s for the same.
    expect(fastest).toBeLessThan(1000);
  } finally {
    await rm(folder, { recursive: true });
  }
}, 30_000);
