// The cost of a new flow, for several sets of rules side by side: each has namespaces and a sender of its own, and
// the senders take turns of a few milliseconds.
//
// A turn costs half as much again while the processor's other thread is busy, and some sides would meet more of such
// turns than others. So a side's cost is that of its quiet turns (the tenth of the way from the cheapest to the
// dearest), and that is found several times over, each time with new namespaces and senders, since where these
// happen to lie in memory matters, too. Median and spread are of these times.
import type { Backend } from '../../src/kernel/backend.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { createDriver } from '../../src/kernel/driver.ts';
import type { Exec } from '../../src/kernel/exec.ts';
import { silentLog } from '../../src/kernel/log.ts';
import type { FamilyTables } from '../../src/render/tables.ts';
import { interleave, quantile, type Side } from './measure.ts';
import type { Options } from './options.ts';
import { must } from './run.ts';
import { openSender, type Packets, type Sender } from './sender.ts';

/** Puts rules into a sender's namespaces. */
export type Setup = (exec: Exec, options: Options) => Promise<void>;

export interface FlowSide {
  readonly setup: Setup;
  /** By name. Each name is measured by itself. */
  readonly packets: Readonly<Record<string, Packets>>;
}

/** Fewer would be lost in the steps of the clock. */
const LEAST = 50;
const QUIET = 0.1;

/** Microseconds of processor time of a new flow, by `side packets`, once for each session. Every fate is checked. */
export async function measureFlows(
  sides: Readonly<Record<string, FlowSide>>,
  options: Options,
): Promise<Readonly<Record<string, readonly number[]>>> {
  const all: Record<string, number[]> = {};
  for (let session = 0; session < options.sessions; session++) {
    for (const [name, values] of Object.entries(await measureOnce(sides, options))) {
      (all[name] ??= []).push(quantile(values, QUIET));
    }
  }
  return all;
}

async function measureOnce(
  sides: Readonly<Record<string, FlowSide>>,
  options: Options,
): Promise<Readonly<Record<string, readonly number[]>>> {
  const senders: Sender[] = [];
  try {
    const measures: Record<string, Side> = {};
    for (const [name, { setup, packets }] of Object.entries(sides)) {
      const sender = await openSender(packets, options.signal);
      senders.push(sender);
      await setup(sender.exec, options);
      for (const kind of Object.keys(packets)) {
        const count = await countFor(sender, kind, options.turnMs);
        measures[`${name} ${kind}`] = () => sender.send(kind, count);
      }
      await sender.checkFates();
    }
    const values = await interleave(measures, options.turns, options.signal);
    for (const sender of senders) await sender.checkFates();
    return values;
  } finally {
    await Promise.all(senders.map(sender => sender.close()));
  }
}

/** As many packets as take a turn. */
async function countFor(sender: Sender, kind: string, turnMs: number): Promise<number> {
  return Math.max(LEAST, Math.round((turnMs * 1000) / (await sender.send(kind, LEAST))));
}

/** Our tables, put into place by our driver. */
export const byDriver =
  (tables: readonly FamilyTables[]): Setup =>
  async (exec, { backend, signal }) => {
    const driver = createDriver({ exec, clock: systemClock, backend, log: silentLog });
    const report = await driver.apply(tables, signal);
    const failed = Object.values(report.families).find(family => !family.ok);
    if (failed !== undefined) throw new Error(`the driver failed: ${failed.error?.message}`);
  };

const restore = async (exec: Exec, backend: Backend, signal: AbortSignal, lines: string): Promise<void> => {
  await must(exec, [`iptables-${backend}-restore`, '--noflush'], `*nat\n${lines}COMMIT\n`, signal);
};

/** A chain without rules, and no rule anywhere that needs connection tracking. */
export const emptyChain: Setup = (exec, { backend, signal }) =>
  restore(exec, backend, signal, ':EMPTY - [0:0]\n-A POSTROUTING -j EMPTY\n');

/**
 * The same on a node that tracks connections, as every node with kube-proxy does. The first rule that translates,
 * even one that nothing leads to, switches tracking on for its namespace (seen on Linux 6.18: 0.6 µs a flow).
 */
export const trackedEmptyChain: Setup = (exec, { backend, signal }) =>
  restore(
    exec,
    backend,
    signal,
    ':EMPTY - [0:0]\n:UNUSED - [0:0]\n-A POSTROUTING -j EMPTY\n-A UNUSED -j MASQUERADE\n',
  );

/** ip-masq-agent's chain: a rule for each exempt CIDR, and one that masquerades the rest. */
export const ipMasqAgent =
  (cidrs: readonly string[]): Setup =>
  async (exec, { backend, signal }) => {
    const exempt = '-m comment --comment "ip-masq-agent: local traffic is not subject to MASQUERADE"';
    const lines = [
      ':IP-MASQ-AGENT - [0:0]',
      '-A POSTROUTING -m comment --comment "ip-masq-agent: non-local traffic" -m addrtype ! --dst-type LOCAL -j IP-MASQ-AGENT',
      ...cidrs.map(cidr => `-A IP-MASQ-AGENT ${exempt} -d ${cidr} -j RETURN`),
      '-A IP-MASQ-AGENT -m comment --comment "ip-masq-agent: outbound traffic" -j MASQUERADE --random-fully',
    ];
    await restore(exec, backend, signal, lines.map(line => `${line}\n`).join(''));
  };

const FELIX_SETS = `create cali40masq-ipam-pools hash:net family inet maxelem 1048576
create cali40network-ip-pools hash:net family inet maxelem 1048576
add cali40masq-ipam-pools 10.244.0.0/16
add cali40network-ip-pools 10.244.0.0/16
`;
const FELIX_RULE =
  '-m comment --comment "cali:W_qq_N2KSTWyCvrX" -m set --match-set cali40masq-ipam-pools src -m set ! --match-set cali40network-ip-pools dst -j MASQUERADE --random-fully\n';

/** Felix's rule with two sets, in the chains in which it stands on a node (iptables mode). */
export const felix: Setup = async (exec, { backend, signal }) => {
  await must(exec, ['ipset', 'restore'], FELIX_SETS, signal);
  await restore(
    exec,
    backend,
    signal,
    `:cali-POSTROUTING - [0:0]
:cali-fip-snat - [0:0]
:cali-nat-outgoing - [0:0]
-A POSTROUTING -m comment --comment "cali:0i8pjzKKPyA34aQD" -j cali-POSTROUTING
-A cali-POSTROUTING -m comment --comment "cali:Z-c7XtVd2Bq7s_hA" -j cali-fip-snat
-A cali-POSTROUTING -m comment --comment "cali:nYKhEzDlr11Jccal" -j cali-nat-outgoing
-A cali-nat-outgoing ${FELIX_RULE}`,
  );
};

/** The same rule alone in POSTROUTING: no program writes it so, but nothing that does the same is cheaper. */
export const bareFelixRule: Setup = async (exec, { backend, signal }) => {
  await must(exec, ['ipset', 'restore'], FELIX_SETS, signal);
  await restore(exec, backend, signal, `-A POSTROUTING ${FELIX_RULE}`);
};
