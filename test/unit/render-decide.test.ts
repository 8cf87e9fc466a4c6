// The rendered text, read as the kernel reads it, does to every packet what `decide` says.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { formatAddress } from '../../src/cidr/address.ts';
import { decide, type Decision } from '../../src/planner/decide.ts';
import { DEFAULT_OPTIONS } from '../../src/planner/assemble.ts';
import { planNode } from '../../src/planner/plan-snapshot.ts';
import { renderFamily } from '../../src/render/render.ts';
import { ipsetText, iptablesText } from '../../src/render/text.ts';
import { NODE, SMALL } from '../oracle/arbitraries.ts';
import { busySnapshots } from '../oracle/busy.ts';
import { packetSeeds, packetsOf } from '../oracle/packets.ts';
import { NODES } from '../oracle/universe.ts';
import { type Fate, readTables } from './netfilter-model.ts';

const TARGETS = { Masquerade: 'MASQUERADE', SNAT: 'SNAT', Preserve: 'NETMAP', None: null } as const;

/** What the kernel shall do for a decision, in the words of the rule's target. */
function fateOf(decision: Decision): Fate {
  const ports = decision.portRange && `${decision.portRange.start}-${decision.portRange.end}`;
  const address = decision.address && formatAddress(decision.address);
  const host = decision.address?.family === 6 && ports !== undefined ? `[${address}]` : address;
  return {
    target: TARGETS[decision.action],
    ...(decision.action === 'SNAT' ? { toSource: ports === undefined ? host : `${host}:${ports}` } : {}),
    ...(decision.action === 'Masquerade' && ports !== undefined ? { toPorts: ports } : {}),
  };
}

// eth1 plays a tunnel, which has the last of the node's addresses.
const localAddresses = [...NODES[4], ...NODES[6]].map((address, i, all) => ({
  interface: i === all.length - 1 ? 'eth1' : 'eth0',
  address,
}));

describe('rendered rules', () => {
  it.each([
    { what: 'few policies', scenes: busySnapshots(2), numRuns: 500 },
    {
      what: 'many, behind guards',
      scenes: busySnapshots(6, { ...SMALL, policies: 7, rules: 12 }),
      numRuns: 100,
    },
  ])('do to every packet what decide says: $what', { timeout: 120_000 }, ({ scenes, numRuns }) => {
    const asked = { total: 0, translated: 0 };
    fc.assert(
      fc.property(
        scenes,
        fc.array(packetSeeds, { minLength: 20, maxLength: 40 }),
        fc.boolean(),
        (snapshot, seeds, tunnel) => {
          const options = { ...DEFAULT_OPTIONS, tunnelInterfaces: tunnel ? ['eth1'] : [] };
          const { plan, values } = planNode(snapshot, NODE, options);
          const fates = {
            4: readTables(...texts(plan, values, 4)),
            6: readTables(...texts(plan, values, 6)),
          };
          for (const packet of packetsOf(snapshot, seeds)) {
            const decision = decide(plan, { values, localAddresses }, packet);
            expect(fates[packet.source.family](packet, { localAddresses })).toEqual(fateOf(decision));
            asked.total++;
            if (decision.action !== 'None') asked.translated++;
          }
        },
      ),
      { numRuns },
    );
    expect(asked.translated).toBeGreaterThan(numRuns * 4);
  });
});

function texts(...[plan, values, family]: Parameters<typeof renderFamily>): [string, string] {
  const tables = renderFamily(plan, values, family);
  return [ipsetText(tables), iptablesText(tables)];
}
