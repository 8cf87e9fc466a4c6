// The pages for users: what they name is there, and what there is they name.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { validateMasqPolicy } from '../../src/api/validate-policy.ts';

const PAGES = ['README.md', ...readdirSync('docs').map(name => `docs/${name}`)].filter(path =>
  path.endsWith('.md'),
);
const textOf = (path: string): string => readFileSync(path, 'utf8');

/** Files whose words in CamelCase are reasons of conditions and Events, but for the words of NO_REASONS. */
const SPEAKING = [
  ...['status', 'incidents', 'wanted-plan', 'program'].map(name => `src/applier/${name}.ts`),
  ...['policy-status', 'policy-facts', 'node-states', 'refusals'].map(name => `src/operator/${name}.ts`),
  ...['references', 'node-values', 'plan-snapshot'].map(name => `src/planner/${name}.ts`),
  'src/api/own-group.ts',
];
const NO_REASONS = new Set([
  'True',
  'False',
  'Unknown',
  'Normal',
  'Warning',
  'Failed',
  'Unavailable',
  'Apply',
  'Verify',
  'Plan',
  'Any',
  'ClusterPods',
  'DryRun',
  'FlushChanged',
  'Ready',
  'Degraded',
  'None',
  'IPPool',
  'GlobalNetworkSet',
  'FelixConfiguration',
  'MasqPolicy',
  'MasqNode',
  'MasqPlan',
  'Node',
]);

describe('the pages', () => {
  it('explain every reason that a condition or an Event can have, and no other', () => {
    const page = textOf('docs/troubleshooting.md');
    const explained = [...page.matchAll(/^\|[^|]*\| `([A-Z]\w+)` +\||^\| `([A-Z]\w+)` +\|/gm)].map(
      ([, inSecond, inFirst]) => inSecond ?? inFirst,
    );
    const spoken = SPEAKING.flatMap(path => [...textOf(path).matchAll(/'([A-Z][A-Za-z]+)'/g)]).map(
      ([, word]) => word as string,
    );
    const reasons = new Set(spoken.filter(word => !NO_REASONS.has(word)));
    expect(reasons.size).toBeGreaterThan(40);
    expect([...reasons].filter(reason => !page.includes(`\`${reason}\``))).toEqual([]);
    expect(explained.filter(reason => !reasons.has(reason ?? ''))).toEqual([]);
  });

  it.each(PAGES)('%s leads to files and headings that are there', path => {
    const links = [...textOf(path).matchAll(/\]\(([^)\s]+)\)/g)].map(([, link]) => link as string);
    const broken = links.filter(link => {
      if (/^https?:/.test(link)) return false;
      const [file = '', heading] = link.split('#');
      const target = file === '' ? path : join(dirname(path), file);
      if (!existsSync(target)) return true;
      return heading !== undefined && !headingsOf(textOf(target)).includes(heading);
    });
    expect(broken).toEqual([]);
  });

  it.each(PAGES)('%s shows policies that are valid', path => {
    const blocks = [...textOf(path).matchAll(/^ *```yaml\n(.*?)^ *```/gms)].map(
      ([, block]) => block as string,
    );
    for (const block of blocks) {
      for (const document of parseAllDocuments(block)) {
        const object = document.toJS() as { readonly kind?: string } | null;
        if (object?.kind !== 'MasqPolicy') continue;
        expect(validateMasqPolicy(object), block).toMatchObject({ ok: true });
      }
    }
  });
});

/** As the places that show Markdown name them. */
const headingsOf = (text: string): readonly string[] =>
  [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  );
