// Data flows one way: which folder may import from which, and what pure code may not import at all.
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, normalize } from 'node:path';
import { describe, expect, it } from 'vitest';

const PURE = ['cidr', 'api', 'planner', 'migrate', 'render'];

/** What each folder may import from, beside itself. */
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  cidr: [],
  api: ['cidr'],
  planner: ['cidr', 'api'],
  migrate: ['cidr', 'api', 'planner'],
  render: ['cidr', 'api', 'planner'],
  kernel: ['cidr', 'api', 'planner', 'render'],
  telemetry: [],
  cluster: ['kernel'],
  operator: ['cidr', 'api', 'planner', 'kernel', 'cluster', 'telemetry'],
  applier: ['cidr', 'api', 'planner', 'render', 'kernel', 'cluster', 'telemetry'],
  demo: ['cidr', 'kernel'],
  cli: [
    'cidr',
    'api',
    'migrate',
    'planner',
    'render',
    'kernel',
    'cluster',
    'operator',
    'applier',
    'telemetry',
    'demo',
  ],
};

/** Who talks to the API takes no more of the kernel's folder than time, log and errors. */
const NO_KERNEL = ['cluster', 'operator'];
const NEUTRAL = ['src/kernel/clock.ts', 'src/kernel/log.ts', 'src/kernel/errors.ts'];

/** The Kubernetes client's models cost 60 MB, which is not paid on every node. */
const CLIENT_USERS = ['src/cluster/kubeconfig.ts', 'src/operator/operator.ts'];

/** Of Node's own modules pure code may use only this one, for hashes. */
const PURE_MODULES = ['node:crypto', 'ipaddr.js'];

const files = readdirSync('src', { recursive: true, encoding: 'utf8' })
  .filter(file => file.endsWith('.ts') && file.includes('/') && !file.includes('/generated/'))
  .map(file => `src/${file}`);

const importsOf = (file: string): readonly string[] =>
  [...readFileSync(file, 'utf8').matchAll(/^(?:import|export)[^;]*? from '([^']+)'/gms)].map(
    match => match[1] ?? '',
  );

describe('imports', () => {
  it('are found', () => {
    expect(files.length).toBeGreaterThan(60);
    expect(files.flatMap(importsOf).length).toBeGreaterThan(200);
  });

  it.each(files)('%s', file => {
    const folder = file.split('/')[1] ?? '';
    for (const target of importsOf(file)) {
      if (target.startsWith('.')) {
        const path = normalize(`${dirname(file)}/${target}`);
        if (path === 'package.json') continue;
        const to = path.split('/')[1] ?? '';
        if (to === 'kernel' && NO_KERNEL.includes(folder)) expect(NEUTRAL).toContain(path);
        // Only `await import()` leads there, where somebody asked for a kubeconfig.
        expect(path).not.toBe('src/cluster/kubeconfig.ts');
        expect([folder, ...(ALLOWED[folder] ?? [])]).toContain(to);
      } else {
        if (PURE.includes(folder)) expect(PURE_MODULES).toContain(target);
        if (target.startsWith('@kubernetes/')) expect(CLIENT_USERS).toContain(file);
      }
    }
  });
});
