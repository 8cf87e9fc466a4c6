// The fixed address ranges behind a MasqPolicy's `scope`.
import type { Scope } from '../api/model.ts';
import { type Cidr, parseCidr } from '../cidr/cidr.ts';

const constant = (texts: readonly string[]): readonly Cidr[] =>
  texts.map(text => {
    const parsed = parseCidr(text);
    if (!parsed.ok) throw new Error(`constant ${text} ${parsed.reason}`);
    return parsed.value;
  });

const PRIVATE_USE = ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', 'fc00::/7'];

/** What ip-masq-agent's nomasq-all-reserved-ranges spares beyond the private ranges (RFC 6890 and successors). */
const OTHER_RESERVED = [
  '100.64.0.0/10',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.88.99.0/24',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '240.0.0.0/4',
];

export type FixedScope = Exclude<Scope, 'ClusterPods' | 'Nodes'>;

export const SCOPE_RANGES: { readonly [S in FixedScope]: readonly Cidr[] } = {
  LinkLocal: constant(['169.254.0.0/16', 'fe80::/10']),
  Multicast: constant(['224.0.0.0/4', 'ff00::/8']),
  PrivateUse: constant(PRIVATE_USE),
  Reserved: constant([...PRIVATE_USE, ...OTHER_RESERVED]),
};
