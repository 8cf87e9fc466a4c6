// The real Helm, with folders of its own, and the project's chart.
import { fileURLToPath } from 'node:url';
import { systemExec } from '../../src/kernel/exec.ts';
import { component } from './components.ts';
import { type KubeObject, objectsIn } from './objects.ts';
import { openTemporaryFolder } from './temporary-folder.ts';

export const CHART = fileURLToPath(new URL('../../charts/natoutgoing', import.meta.url));

/** What Helm is told that a cluster serves when it has none to ask. */
export const ADMISSION_POLICY = 'admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy';

export interface HelmResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Helm {
  /** How it ended, whatever its exit code. */
  try(...args: readonly string[]): Promise<HelmResult>;
  /** Its output; rejects with what it says when its exit code is not 0. */
  run(...args: readonly string[]): Promise<string>;
  /** The objects that the chart renders to in namespace natoutgoing. */
  template(...args: readonly string[]): Promise<readonly KubeObject[]>;
  close(): Promise<void>;
}

/** `kubeconfig`: of the cluster that it speaks to; absent: none. */
export async function openHelm(signal: AbortSignal, kubeconfig?: string): Promise<Helm> {
  const tools = { exec: systemExec, env: process.env, log: (line: string) => console.error(line) };
  const path = await component('helm', tools, signal);
  const { path: folder, remove } = await openTemporaryFolder('natoutgoing-helm-');
  const env = [
    `HOME=${folder}`,
    ...['CONFIG', 'CACHE', 'DATA'].map(name => `HELM_${name}_HOME=${folder}/${name.toLowerCase()}`),
    `KUBECONFIG=${kubeconfig ?? `${folder}/none`}`,
  ];
  const attempt: Helm['try'] = (...args) =>
    systemExec.run({ tool: 'env', args: ['-i', ...env, path, ...args], timeoutMs: 300_000 }, signal);
  const run: Helm['run'] = async (...args) => {
    const result = await attempt(...args);
    if (result.code !== 0) throw new Error(`helm ${args.join(' ')}: ${result.stderr.trim()}`);
    return result.stdout;
  };
  return {
    try: attempt,
    run,
    template: async (...args) =>
      objectsIn(
        await run('template', 'natoutgoing', CHART, '-n', 'natoutgoing', '-a', ADMISSION_POLICY, ...args),
        'helm template',
      ),
    close: remove,
  };
}
