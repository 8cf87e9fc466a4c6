// What Helm says of a cluster that lacks something, or of values that ask for more.
import { describe, expect, it } from 'vitest';
import { startApiServer } from './api-server.ts';
import { CHART, openHelm } from './helm.ts';

/** Shows the notes without a cluster. */
const DRY = ['install', 'natoutgoing', CHART, '-n', 'natoutgoing', '--dry-run=client'];

describe('where something is missing', () => {
  it('it is installed without a ValidatingAdmissionPolicy, and the notes say so', async () => {
    const { signal } = new AbortController();
    const off = 'admissionregistration.k8s.io/v1/validatingadmissionpolicies=false';
    const bindingsOff = 'admissionregistration.k8s.io/v1/validatingadmissionpolicybindings=false';
    const flags = [
      `--runtime-config=${off},${bindingsOff}`,
      '--disable-admission-plugins=ValidatingAdmissionPolicy',
    ];
    const server = await startApiServer({ flags }, signal);
    const helm = await openHelm(signal, server.kubeconfig);
    try {
      const notes = await helm.run(
        'install',
        'natoutgoing',
        CHART,
        '-n',
        'natoutgoing',
        '--create-namespace',
      );
      expect(notes).toContain('MISSING: this cluster has no ValidatingAdmissionPolicy');
    } finally {
      await helm.close();
      await server.close();
    }
  });

  it('Kubernetes before 1.31 is refused with a sentence, not left half installed', async () => {
    const helm = await openHelm(new AbortController().signal);
    const { code, stderr } = await helm.try('template', CHART, '--kube-version', 'v1.29.0');
    await helm.close();
    expect(code).toBe(1);
    expect(stderr).toContain('requires kubeVersion: >=1.31.0-0');
  });

  it('the notes name the kinds of the Prometheus Operator that are asked for', async () => {
    const helm = await openHelm(new AbortController().signal);
    for (const [value, kind] of [
      ['serviceMonitor', 'ServiceMonitor'],
      ['podMonitor', 'PodMonitor'],
      ['prometheusRule', 'PrometheusRule'],
    ] as const) {
      const notes = await helm.run(...DRY, '--set', `monitoring.${value}.enabled=true,applier.listenOn=all`);
      expect(notes.match(/MISSING: monitoring.*/g)).toEqual([
        `MISSING: monitoring.${value} needs the kind ${kind} of the Prometheus Operator (monitoring.coreos.com/v1). Helm`,
      ]);
    }
    expect(await helm.run(...DRY, '--set', 'monitoring.dashboard.enabled=true')).not.toContain(
      'MISSING: monitoring',
    );
    await helm.close();
  });

  it('the notes say when Helm must wait longer than it does by itself', async () => {
    const helm = await openHelm(new AbortController().signal);
    const notes = (seconds: number): Promise<string> =>
      helm.run(...DRY, '--set', `removal.timeLimitSeconds=${seconds}`);
    expect(await notes(120)).not.toContain('--timeout');
    expect(await notes(121)).toContain('helm uninstall natoutgoing -n natoutgoing --timeout 302s');
    await helm.close();
  });
});
