// A check of rules that are right, next to the rules of kube-proxy for thousands of Services.
import { FAMILIES } from '../../src/cidr/address.ts';
import { interleave, timed } from './measure.ts';
import { ALL_PODS, block, EMPTY, POD_CIDR, policy, pool, rule, tablesOf } from './objects.ts';
import type { Part } from './options.ts';
import { rowOf } from './result.ts';
import { mustHere } from './run.ts';
import { checkReport, driverOf } from './sets.ts';

/** Services with two endpoints each, of 8 rules: 25,000 rules. */
const SERVICES = 3_125;

const part = (i: number): string => `${i >> 8}.${i & 255}`;
/** As long as kube-proxy's hashes. */
const chain = (kind: string, i: number, endpoint = 0): string =>
  `KUBE-${kind}-${String.fromCharCode(65 + endpoint)}${i.toString(36).toUpperCase().padStart(15, '0')}`;

/** What kube-proxy's iptables mode writes, in its order of chains and rules. */
export function serviceRules(services: number): string {
  const chains = ['KUBE-MARK-MASQ', 'KUBE-POSTROUTING', 'KUBE-SERVICES'];
  const rules = [
    '-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
    '-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
    '-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING',
    '-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000',
    '-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN',
    '-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000',
    '-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully',
  ];
  for (let i = 0; i < services; i++) {
    const name = `default/service-${i}`;
    const to = `-d 10.96.${part(i)}/32 -p tcp -m comment --comment "${name} cluster IP" -m tcp --dport 80`;
    const service = chain('SVC', i);
    chains.push(service);
    rules.push(
      `-A KUBE-SERVICES ${to} -j ${service}`,
      `-A ${service} ! -s 10.244.0.0/16 ${to} -j KUBE-MARK-MASQ`,
    );
    for (const endpoint of [0, 1]) {
      const address = `10.${244 + endpoint}.${part(i)}`;
      const half = endpoint === 0 ? ' -m statistic --mode random --probability 0.50000000000' : '';
      const separate = chain('SEP', i, endpoint);
      chains.push(separate);
      rules.push(
        `-A ${service} -m comment --comment "${name} -> ${address}:8080"${half} -j ${separate}`,
        `-A ${separate} -s ${address}/32 -m comment --comment "${name}" -j KUBE-MARK-MASQ`,
        `-A ${separate} -p tcp -m comment --comment "${name}" -m tcp -j DNAT --to-destination ${address}:8080`,
      );
    }
  }
  const lines = ['*nat', ...chains.map(name => `:${name} - [0:0]`), ...rules, 'COMMIT', ''];
  return lines.join('\n');
}

/** What a cluster with a few needs of its own has: three policies of four rules. */
const snapshot = {
  ...EMPTY,
  pools: [pool('pods-v4', POD_CIDR), pool('pods-v6', 'fd00:244::/48')],
  policies: ['payments', 'storage', 'monitoring'].map((name, i) =>
    policy(
      name,
      ALL_PODS,
      [0, 1, 2, 3].map(j => rule(`rule-${j}`, [block(`172.${16 + i}.${j}.0/24`)])),
    ),
  ),
};

export const check: Part = async ({ backend, longRounds, signal }) => {
  await mustHere([`iptables-${backend}-restore`, '--noflush'], serviceRules(SERVICES), signal);
  const driver = driverOf(backend);
  checkReport(await driver.apply(tablesOf(snapshot, FAMILIES), signal), true);
  const values = await interleave(
    {
      ours: () => timed(async () => checkReport(await driver.verify(signal), false)),
      save: () => timed(() => mustHere([`iptables-${backend}-save`, '-t', 'nat'], '', signal)),
    },
    // A check takes a few milliseconds, and one in ten looks at more.
    2 * longRounds,
    signal,
  );
  return [
    rowOf({
      part: 'check',
      backend,
      unit: 'ms',
      ours: 'both families, beside 25,000 service rules',
      values: values.ours,
      other: { name: 'iptables-save -t nat', values: values.save },
      goal: { of: 'ratio', atMost: backend === 'nft' ? 0.05 : 1 },
    }),
  ];
};
