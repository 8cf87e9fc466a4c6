// Probes without end, to show that no packet leaves with a wrong address while something changes.
import type { Probe, ProbeCount, Prober, World } from './model.ts';

interface ProberParts {
  readonly perSecond: number;
  readonly send: World['send'];
  /** Keeps the probe's receiver listening until the function that it gives is called. */
  readonly hold: (probe: Probe) => Promise<() => Promise<void>>;
}

/** A probe that is lost is under way until its limit; more than this would be a queue, not a rate. */
const MAX_UNDER_WAY = 500;
const TICK_MS = 10;

/** See World.startProbing. */
export async function startProbing(probes: readonly Probe[], parts: ProberParts): Promise<Prober> {
  if (probes.length === 0) throw new Error('probes: there is none to send');
  if (probes.some(({ sourcePort }) => sourcePort !== undefined)) {
    throw new Error('probes: a new flow cannot have a given sourcePort');
  }
  const releases = await Promise.all(probes.map(parts.hold));
  const counts = probes.map(probe => ({ probe, sent: 0, seen: new Map<string, number>() }));
  const underWay = new Set<Promise<void>>();
  const failures: unknown[] = [];
  let next = 0;
  let due = 0;

  const sendOne = async (count: (typeof counts)[number]): Promise<void> => {
    try {
      const observed = await parts.send(count.probe);
      const seen = observed.arrived ? observed.address : 'nothing';
      count.sent++;
      count.seen.set(seen, (count.seen.get(seen) ?? 0) + 1);
    } catch (error) {
      failures.push(error);
    }
  };
  // A late tick does not send what it missed: a burst would not be the rate that was asked for.
  const timer = setInterval(() => {
    for (due += (parts.perSecond * TICK_MS) / 1000; due >= 1; due--) {
      if (underWay.size >= MAX_UNDER_WAY) continue;
      const sent = sendOne(counts[next++ % counts.length] as (typeof counts)[number]);
      underWay.add(sent);
      void sent.then(() => underWay.delete(sent));
    }
  }, TICK_MS);

  return {
    counts: () => counts,
    stop: async (): Promise<readonly ProbeCount[]> => {
      clearInterval(timer);
      await Promise.all(underWay);
      await Promise.all(releases.map(release => release()));
      if (failures.length > 0) throw failures[0];
      return counts;
    },
  };
}
