// The demo: the manifests are applied to the world's node, packets are sent, and a table says what became of each.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DEMO_MANIFESTS } from './manifests.ts';
import type { Observation, World } from './model.ts';
import { DEMO_CASES, type DemoCase } from './scenario.ts';

/** A packet as `explain` is asked about it. */
export interface DemoPacket {
  readonly source: string;
  readonly destination: string;
  readonly protocol: string;
  readonly destinationPort?: number;
  readonly outInterface: string;
}

/** As `explain` answers. */
export interface DemoVerdict {
  readonly action: string;
  /** {policy, rule}, {ipPool}, another decider, or null for nobody. */
  readonly by: Readonly<Record<string, unknown>> | null;
  readonly address?: string;
}

export interface DemoParts {
  readonly world: Pick<World, 'send'>;
  /** Puts the manifests into the kernel of the world's node. The files are gone when the demo is. */
  readonly applyManifests: (files: string[]) => Promise<void>;
  readonly explain: (packet: DemoPacket) => Promise<DemoVerdict>;
  readonly write: (text: string) => void;
}

interface Row {
  readonly cells: readonly string[];
  readonly asExpected: boolean;
}

/** Runs the demo in a world opened with DEMO_WORLD. Resolves to whether every packet was as expected. */
export async function runDemo(parts: DemoParts): Promise<boolean> {
  const folder = await mkdtemp(join(tmpdir(), 'natoutgoing-demo-'));
  try {
    const files = DEMO_MANIFESTS.map(({ name }) => join(folder, name));
    await Promise.all(DEMO_MANIFESTS.map(({ text }, i) => writeFile(files[i] ?? '', text)));
    await parts.applyManifests(files);
    const rows: Row[] = [];
    for (const demoCase of DEMO_CASES) rows.push(await tryCase(parts, demoCase));
    parts.write(formatTable([HEADER, ...rows.map(({ cells }) => cells)]));
    const good = rows.filter(({ asExpected }) => asExpected).length;
    parts.write(`${good} of ${rows.length} packets as expected.\n`);
    return good === rows.length;
  } finally {
    await rm(folder, { recursive: true });
  }
}

const HEADER = ['PACKET', 'TO', 'ADDRESS SEEN', 'DECIDED BY', 'RESULT'];

async function tryCase({ world, explain }: DemoParts, demoCase: DemoCase): Promise<Row> {
  const { about, probe, outInterface } = demoCase;
  const { source, destination, protocol, destinationPort } = probe;
  const observed = await world.send(probe);
  const verdict = await explain({
    source,
    destination,
    protocol,
    outInterface,
    ...(destinationPort === undefined ? {} : { destinationPort }),
  });
  const by = nameOf(verdict);
  const wrong = faults(demoCase, observed, by);
  return {
    cells: [
      `${protocol.toUpperCase()} ${source} > ${withPort(destination, destinationPort)}`,
      about,
      seen(observed, demoCase.ports !== undefined),
      `${by}: ${verdict.action}`,
      wrong.length === 0 ? 'as expected' : `WRONG: ${wrong.join(', ')}`,
    ],
    asExpected: wrong.length === 0,
  };
}

function faults({ address, ports, by: expected }: DemoCase, observed: Observation, by: string): string[] {
  const wrong: string[] = [];
  if (!observed.arrived || observed.address !== address) wrong.push(`expected ${address}`);
  else if (!observed.answered) wrong.push('no answer came back');
  if (observed.arrived && ports !== undefined && (observed.port < ports.start || observed.port > ports.end)) {
    wrong.push(`expected a port of ${ports.start} to ${ports.end}`);
  }
  if (by !== expected) wrong.push(`expected ${expected} to decide`);
  return wrong;
}

/** POLICY/RULE, `IPPool NAME`, nobody, or what else decided as JSON: the form of DemoCase.by. */
function nameOf({ by }: DemoVerdict): string {
  if (by === null) return 'nobody';
  const { policy, rule, ipPool } = by;
  if (typeof policy === 'string' && typeof rule === 'string') return `${policy}/${rule}`;
  return typeof ipPool === 'string' ? `IPPool ${ipPool}` : JSON.stringify(by);
}

const seen = (observed: Observation, showPort: boolean): string =>
  observed.arrived
    ? withPort(observed.address, showPort ? observed.port : undefined)
    : `none (${observed.reason})`;

function withPort(address: string, port: number | undefined): string {
  if (port === undefined) return address;
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}

function formatTable(rows: readonly (readonly string[])[]): string {
  const widths = HEADER.map((_, column) => Math.max(...rows.map(row => row[column]?.length ?? 0)));
  const line = (row: readonly string[]): string =>
    row
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd();
  return `${rows.map(line).join('\n')}\n`;
}
