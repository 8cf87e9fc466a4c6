// Says of objects of others that cannot be read what is wrong with them, where their owners look: in Events.
import type { RecordedEvent } from '../cluster/events.ts';
import type { KernelLog } from '../kernel/log.ts';
import type { Refused } from './snapshot.ts';
import { API_VERSION } from '../api/own-group.ts';
import { CALICO_VERSIONS, type CalicoGroup } from './sources.ts';

const EVENT_REASONS: { readonly [K in Refused['list']]: { readonly kind: string; readonly reason: string } } =
  {
    pools: { kind: 'IPPool', reason: 'InvalidIPPool' },
    networkSets: { kind: 'GlobalNetworkSet', reason: 'InvalidGlobalNetworkSet' },
    nodes: { kind: 'Node', reason: 'InvalidNode' },
    policies: { kind: 'MasqPolicy', reason: 'InvalidMasqPolicy' },
    felixConfigs: { kind: 'FelixConfiguration', reason: 'InvalidFelixConfiguration' },
  };

const apiVersionOf = (list: Refused['list'], group: CalicoGroup): string => {
  if (list === 'nodes') return 'v1';
  if (list === 'policies') return API_VERSION;
  return `${CALICO_VERSIONS[group].group}/${CALICO_VERSIONS[group].version}`;
};

/** Says it once of each object; again only when what is wrong changes. */
export function createRefusalTeller(
  record: (event: RecordedEvent) => void,
  log: KernelLog,
): (refused: readonly Refused[], group: CalicoGroup) => void {
  let told = new Map<string, string>();
  return (refused, group) => {
    const now = new Map<string, string>();
    for (const { list, object, faults } of refused) {
      const { kind, reason } = EVENT_REASONS[list];
      const { name, uid } = object.metadata;
      const note = faults.map(({ field, reason: why }) => `${field}: ${why}`).join('; ');
      const key = `${list}/${name}`;
      now.set(key, note);
      if (told.get(key) === note) continue;
      log.warn({ kind, name, faults }, 'object is left out, since it cannot be read');
      record({
        type: 'Warning',
        regarding: {
          apiVersion: apiVersionOf(list, group),
          kind,
          name,
          uid: typeof uid === 'string' ? uid : '',
        },
        reason,
        action: 'Plan',
        note: `it is left out: ${note}`,
      });
    }
    told = now;
  };
}
