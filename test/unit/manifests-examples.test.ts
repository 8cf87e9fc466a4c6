import { readdir } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { loadManifests } from '../../src/cli/manifests.ts';

const noStdin = (): Promise<string> => Promise.reject(new Error('standard input was read'));
const files = (await readdir('examples')).sort();

it('there are examples enough', () => {
  expect(files.length).toBeGreaterThanOrEqual(8);
});

it.each(files)('examples/%s loads without a fault or a warning', async file => {
  const { problems, verdicts } = await loadManifests([`examples/${file}`], noStdin);
  expect(problems).toEqual([]);
  expect(verdicts.length).toBeGreaterThan(0);
  for (const verdict of verdicts) expect(verdict).toMatchObject({ verdict: 'ok', faults: [], warnings: [] });
});

it('all examples load together', async () => {
  const { problems, verdicts, snapshot } = await loadManifests(['examples'], noStdin);
  expect(problems).toEqual([]);
  expect(verdicts.filter(({ verdict }) => verdict !== 'ok')).toEqual([]);
  expect(snapshot.policies.length).toBeGreaterThanOrEqual(8);
  expect(snapshot.pools.map(({ name }) => name)).toContain('payments-v4');
  expect(snapshot.nodes.map(({ name }) => name)).toEqual(['node-a', 'node-b']);
});
