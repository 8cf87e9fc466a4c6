// Which pool an address belongs to.
import type { IpPool } from '../api/model.ts';
import type { Address } from '../cidr/address.ts';
import { containsAddress } from '../cidr/cidr.ts';

/** The pool with the longest prefix, of equal ones the alphanumerically first name; undefined: in no pool. */
export function poolOf(pools: readonly IpPool[], address: Address): IpPool | undefined {
  let owner: IpPool | undefined;
  for (const pool of pools) {
    if (!containsAddress(pool.cidr, address)) continue;
    const longer = owner === undefined || pool.cidr.prefix > owner.cidr.prefix;
    const first = owner !== undefined && pool.cidr.prefix === owner.cidr.prefix && pool.name < owner.name;
    if (longer || first) owner = pool;
  }
  return owner;
}
