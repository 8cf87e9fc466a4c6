// The release on real nodes: installed by Helm from our image, followed, changed, restarted, taken off.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CHART } from '../cluster/helm.ts';
import { readObjects } from '../cluster/objects.ts';
import { waitFor } from '../cluster/wait.ts';
import { commandBlocks, commandsOf, documentedArguments } from '../documents.ts';
import { block, policy, pool } from '../kernel/scene.ts';
import { IMAGE } from './images.ts';
import { type NodesLab, openNodesLab } from './lab.ts';
import { type Family, nodeAddress, nothingElse, sees, speakerAddresses, startSpeakers } from './probes.ts';

const ROOT = join(CHART, '../..');
const NODES = [1, 2] as const;
/** What docs/install.md tells people to run, with what stands there for their own. */
const documented = (verb: 'install' | 'test' | 'upgrade' | 'uninstall'): readonly string[] =>
  documentedArguments('docs/install.md', 'helm', verb).map(word =>
    word === 'charts/natoutgoing' ? CHART : word.replace('REPOSITORY', IMAGE.repository),
  );
const VALUES = [
  '--set',
  `image.repository=${IMAGE.repository},image.tag=${IMAGE.tag},image.pullPolicy=Never`,
  // On two nodes one after the other, so that a change takes less than a minute.
  '--set',
  'applier.maxUnavailable=1,removal.timeLimitSeconds=60',
] as const;
/** Says in each node which rules and sets there are, without counters. */
const RULES = ['iptables-nft-save', 'ip6tables-nft-save', 'iptables-legacy-save', 'ip6tables-legacy-save'];

describe('the release on two nodes', () => {
  let lab: NodesLab;
  let before: readonly string[];
  let pods: Readonly<Record<number, Readonly<Record<Family, string>>>>;

  beforeAll(async () => {
    lab = await openNodesLab(NODES.length, new AbortController().signal);
    const crds = await readObjects('test/fixtures/calico');
    await lab.apply(crds.filter(({ metadata }) => metadata.name.endsWith('.crd.projectcalico.org')));
    await lab.kubectl('wait', '--for=condition=Established', 'crd', '--all', '--timeout=60s');
    await lab.apply([pool('pods-4', '10.244.0.0/16'), pool('pods-6', 'fd00:10:244::/48')]);
    await startSpeakers(lab);
    pods = { 1: await speakerAddresses(lab, 1), 2: await speakerAddresses(lab, 2) };
    for (const n of NODES) for (const family of [4, 6] as const) await sees(lab, n, family, own(n, family));
    before = await rules();
  });
  afterAll(() => lab?.close());

  const own = (n: number, family: Family): string => pods[n]?.[family] ?? '';
  const rules = (nodes: readonly number[] = NODES): Promise<readonly string[]> =>
    Promise.all(
      nodes.map(async n => {
        const texts = [];
        for (const tool of [...RULES, 'ipset']) {
          const { code, stdout, stderr } = await lab.inNode(n, tool, ...(tool === 'ipset' ? ['save'] : []));
          expect(code, stderr).toBe(0);
          texts.push(stdout.replaceAll(/^#.*\n/gm, '').replaceAll(/\[\d+:\d+\]/g, ''));
        }
        return texts.join('\n');
      }),
    );
  /** Policy pods-4 is preserved to far, pool pods-6 is masqueraded. */
  const asThePolicySays = NODES.flatMap(n => [
    { n, family: 4 as const, source: () => own(n, 4) },
    { n, family: 6 as const, source: () => nodeAddress(n, 6) },
  ]);
  const meanwhile = (during: () => Promise<void>, nodes: readonly number[] = NODES): Promise<void> =>
    nothingElse(
      lab,
      asThePolicySays
        .filter(({ n }) => nodes.includes(n))
        .map(({ n, family, source }) => ({ n, family, source: source() })),
      during,
    );
  const rolled = (): Promise<string> =>
    lab.kubectl('-n', 'natoutgoing', 'rollout', 'status', 'daemonset/natoutgoing-applier', '--timeout=120s');

  it('helm install --wait returns, and pods of every node leave with its address', async () => {
    const said = await lab.helm('install', ...documented('install'), ...VALUES, '--timeout=180s');
    expect(said).toContain('STATUS: deployed');
    for (const n of NODES)
      for (const family of [4, 6] as const) await sees(lab, n, family, nodeAddress(n, family));
  });

  it('a policy and a toggle are followed by every node', async () => {
    await lab.apply([policy('keep', [{ to: [block('198.51.100.0/24')], action: 'Preserve' }])]);
    for (const n of NODES) await sees(lab, n, 4, own(n, 4));
    const toggle = (natOutgoing: boolean): Promise<string> =>
      lab.kubectl(
        'patch',
        'ippools.crd.projectcalico.org',
        'pods-6',
        '--type=merge',
        '-p',
        JSON.stringify({ spec: { natOutgoing } }),
      );
    await toggle(false);
    for (const n of NODES) await sees(lab, n, 6, own(n, 6));
    await toggle(true);
    for (const n of NODES) await sees(lab, n, 6, nodeAddress(n, 6));
    await waitFor(
      async () => ((await lab.kubectl('get', 'masqpolicy', 'keep')).includes('2/2') ? true : undefined),
      {
        what: 'the policy to be in force on 2/2 nodes',
        limitMs: 30_000,
        detail: () => lab.kubectl('get', 'masqpolicies,masqnodes'),
      },
    );
  });

  it('helm test passes', async () => {
    expect(await lab.helm('test', ...documented('test'), '--logs', '--timeout=60s')).toContain('all is well');
  });

  it('the commands of docs/first-policies.md do on a cluster what they are for', async () => {
    const commands = commandBlocks('docs/first-policies.md')
      .flatMap(({ script }) => commandsOf(script))
      .filter(([program]) => program === 'kubectl');
    expect(commands.length).toBeGreaterThan(6);
    const said: string[] = [];
    for (const [, ...args] of commands) {
      said.push(await lab.kubectl(...args.map(arg => (arg.startsWith('examples/') ? join(ROOT, arg) : arg))));
    }
    expect(said.join('\n')).toMatch(/condition met[^]*Enforce[^]*node-1[^]*deleted/);
  });

  it('appliers have two capabilities and a root that they cannot write to', async () => {
    for (const n of NODES) {
      const pid = await applierOf(n);
      const status = (await lab.inNode(n, 'cat', `/proc/${pid}/status`)).stdout;
      expect(/^CapEff:\s+0*(\w+)$/m.exec(status)?.[1]).toBe('3000');
      expect(/^CapBnd:\s+0*(\w+)$/m.exec(status)?.[1]).toBe('3000');
      expect(/^NoNewPrivs:\s+(\d)$/m.exec(status)?.[1]).toBe('1');
      const mounts = (await lab.inNode(n, 'cat', `/proc/${pid}/mountinfo`)).stdout;
      expect(/^\S+ \S+ \S+ \S+ \/ (\S+)/m.exec(mounts)?.[1]).toMatch(/^ro,/);
    }
  });

  const applierOf = async (n: number): Promise<string> => {
    const { stdout } = await lab.inNode(n, 'bash', '-c', 'grep -lz "^applier$" /proc/[0-9]*/cmdline');
    const pids = stdout
      .trim()
      .split('\n')
      .map(path => path.split('/')[2] ?? '');
    expect(pids).toHaveLength(1);
    return pids[0] ?? '';
  };

  it('helm upgrade rolls all pods, and no packet has a wrong address', async () => {
    await meanwhile(async () => {
      await lab.helm(
        'upgrade',
        ...documented('upgrade'),
        '--set-string',
        'applier.podAnnotations.round=2,operator.podAnnotations.round=2',
        '--timeout=180s',
      );
      await rolled();
    });
  });

  it('an applier that is killed comes back, and no packet has a wrong address', async () => {
    const pid = await applierOf(1);
    await meanwhile(async () => {
      await lab.inNode(1, 'kill', '-9', pid);
      await waitFor(
        async () => ((await lab.inNode(1, 'test', '-d', `/proc/${pid}`)).code === 0 ? undefined : true),
        {
          what: 'the applier to be gone',
          limitMs: 20_000,
        },
      );
      await rolled();
      expect(await applierOf(1)).not.toBe(pid);
      await sees(lab, 1, 4, own(1, 4));
    });
  });

  it('a node that starts anew has its last good plan in force while its applier reaches no API', async () => {
    // Nobody has this address: kubelet still gets its pods, the appliers get nothing.
    const nowhere = 'applier.apiServer=https://203.0.113.99:6443';
    await lab.helm('upgrade', 'natoutgoing', CHART, '-n', 'natoutgoing', ...VALUES, '--set', nowhere);
    await rolled();
    await lab.stopNode(2);
    await lab.startNode(2);
    await waitFor(
      async () => ((await lab.inNode(2, 'ipset', '-n', 'list')).stdout.includes('masq4-') ? true : undefined),
      { what: 'sets of ours in the new kernel', limitMs: 90_000, detail: () => lab.logs() },
    );
    await lab.kubectl('rollout', 'status', 'daemonset/speaker', '--timeout=120s');
    pods = { ...pods, 2: await speakerAddresses(lab, 2) };
    await sees(lab, 2, 4, own(2, 4));
    await sees(lab, 2, 6, nodeAddress(2, 6));
    await lab.helm('upgrade', ...documented('upgrade'), '--set', 'applier.apiServer=', '--timeout=180s');
  });

  it('helm uninstall leaves rules and sets of every node as they were', async () => {
    const said = await lab.helm('uninstall', ...documented('uninstall'), '--timeout=180s');
    expect(said).toContain('uninstalled');
    for (const n of NODES) for (const family of [4, 6] as const) await sees(lab, n, family, own(n, family));
    expect(await rules()).toEqual(before);
    expect(await lab.kubectl('get', 'masqpolicies', '-o', 'name')).toContain(
      'masqpolicy.natoutgoing.io/keep',
    );
    expect(await lab.kubectl('get', 'masqnodes,masqplans', '-o', 'name')).toBe('');
  });

  it('a node that is gone does not hold up helm uninstall, which names it, even if its pod was to run there', async () => {
    await lab.helm('install', ...documented('install'), ...VALUES, '--timeout=180s');
    for (const n of NODES) await sees(lab, n, 4, own(n, 4));
    await lab.kubectl('cordon', 'node-1');
    await lab.stopNode(2);
    const uninstalled = lab.helm('uninstall', ...documented('uninstall'), '--timeout=180s');
    const onTheDeadNode = waitFor(
      async () => {
        const asked = ['get', 'pods', '-n', 'natoutgoing', '-l', 'job-name=natoutgoing-removal'];
        const places = await lab.kubectl(...asked, '-o', 'jsonpath={.items[*].spec.nodeName}');
        return places === 'node-2' ? true : undefined;
      },
      { what: 'the pod that removes to be on node-2', limitMs: 30_000, detail: () => lab.logs() },
    );
    await Promise.race([onTheDeadNode, uninstalled]);
    await lab.kubectl('uncordon', 'node-1');
    expect(await uninstalled).toContain('node-2');
    await sees(lab, 1, 6, own(1, 6));
    expect(await rules([1])).toEqual([before[0]]);
  });
});
