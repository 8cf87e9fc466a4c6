// What the examples become, word for word (UPDATE_GOLDEN=1 writes the files anew), and that the real tools take it.
import { readdirSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { FAMILIES } from '../../src/cidr/address.ts';
import { loadManifests } from '../../src/cli/manifests.ts';
import { planNode } from '../../src/planner/plan-snapshot.ts';
import { renderFamily } from '../../src/render/render.ts';
import type { FamilyTables } from '../../src/render/tables.ts';
import { ipsetText, iptablesText } from '../../src/render/text.ts';
import { type Namespace, openNamespace } from './namespace.ts';

const BASE = ['examples/pools.yaml', 'examples/nodes.yaml'];
const EXAMPLES = readdirSync('examples').filter(name => !BASE.includes(`examples/${name}`));

async function render(files: readonly string[]): Promise<readonly FamilyTables[]> {
  const manifests = await loadManifests(files, () => Promise.resolve(''));
  const node = manifests.snapshot.nodes[0]?.name ?? '';
  const { plan, values } = planNode(manifests.snapshot, node);
  return FAMILIES.map(family => renderFamily(plan, values, family));
}

const asText = (all: readonly FamilyTables[]): string =>
  all.map(tables => `# IPv${tables.family}\n${ipsetText(tables)}\n${iptablesText(tables)}`).join('\n');

let namespace: Namespace;
beforeAll(async () => {
  namespace = await openNamespace();
});
afterAll(() => namespace.close());

describe.each([...EXAMPLES, 'all'])('%s', name => {
  const files = name === 'all' ? ['examples'] : [...BASE, `examples/${name}`];

  it('renders as before', async () => {
    const golden = `test/golden/${name.replace('.yaml', '')}.txt`;
    const text = asText(await render(files));
    if (process.env['UPDATE_GOLDEN'] === '1') await writeFile(golden, text);
    expect(text).toBe(await readFile(golden, 'utf8'));
  });

  it.each(['nft', 'legacy'])('is taken by the real tools, backend %s', async backend => {
    for (const tables of await render(files)) {
      const restore = `ip${tables.family === 4 ? '' : '6'}tables-${backend}-restore`;
      const sets = await namespace.exec.run({
        tool: 'ipset',
        args: ['restore'],
        stdin: ipsetText(tables),
        timeoutMs: 9000,
      });
      expect(sets).toMatchObject({ code: 0, stderr: '' });
      const args = ['--noflush', '--test', '-w', '5'];
      const rules = await namespace.exec.run({
        tool: restore,
        args,
        stdin: iptablesText(tables),
        timeoutMs: 9000,
      });
      expect(rules).toMatchObject({ code: 0, stdout: '' });
      for (const set of tables.sets) await namespace.sh(`ipset destroy ${set.name}`);
    }
  });
});
