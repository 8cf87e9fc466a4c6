// Connections in groups that decide alike: all but the client's own port is equal. One judgement is for all of a group,
// and one deletion can be. Pure.
import type { ConntrackEntry, ConntrackListing, EntryFilter } from '../kernel/conntrack.ts';
import type { Path } from '../kernel/routes.ts';
import type { Judgement } from './changed.ts';

export interface Group {
  readonly first: ConntrackEntry;
  readonly judgement: Judgement;
  readonly entries: readonly ConntrackEntry[];
}

export interface Grouped {
  /** Those that do not keep their verdict; the others, most of a large table, take no memory. */
  readonly groups: readonly Group[];
  readonly looked: number;
  /** Lines that could not be read. */
  readonly unread: number;
}

/** Walks a listing; `judge` is asked once for each group. */
export function groupsOf(listing: ConntrackListing, judge: (first: ConntrackEntry) => Judgement): Grouped {
  const groups = new Map<string, Group & { readonly entries: ConntrackEntry[] }>();
  let looked = 0;
  let unread = 0;
  for (const entry of listing) {
    if (entry === undefined) {
      unread++;
      continue;
    }
    looked++;
    const key = groupKey(entry);
    let group = groups.get(key);
    if (group === undefined) {
      group = { first: entry, judgement: judge(entry), entries: [] };
      groups.set(key, group);
    }
    if (group.judgement.kind !== 'keeps') group.entries.push(entry);
  }
  const judged = [...groups.values()];
  return { groups: judged.filter(({ judgement }) => judgement.kind !== 'keeps'), looked, unread };
}

function groupKey({ protocol, zone, original, reply }: ConntrackEntry): string {
  const addresses = [original.source, original.destination, reply.source, reply.destination];
  const ports = [original.destinationPort, reply.sourcePort];
  return [protocol, zone, ...ports, ...addresses.map(({ value }) => value)].join(' ');
}

/** The filter of a whole group: all that `decide` looks at, but not the client's port, or ICMP's type and id. */
export function withoutClient({ family, protocol, zone, original, reply }: ConntrackEntry): EntryFilter {
  const { destinationPort } = original;
  const { sourcePort } = reply;
  return {
    family,
    protocol,
    zone,
    original: { ...ends(original), ...(destinationPort === undefined ? {} : { destinationPort }) },
    reply: { ...ends(reply), ...(sourcePort === undefined ? {} : { sourcePort }) },
  };
}

const ends = ({ source, destination }: Path): Path => ({
  source,
  destination,
});
