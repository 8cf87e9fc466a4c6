// `status` as people read it: what is wrong first, then tables.
import { cut } from '../api/text.ts';
import { type Io, table } from './io.ts';
import type { ClusterStatus } from './status-model.ts';
import type { FamilyCell, NodeRow } from './status-rows.ts';

/** Problems that are printed; -o json has all. */
const MAX_PROBLEMS = 10;
/** Longest trouble in a table; the whole of it stands above, or in -o json. */
const MAX_CELL = 100;

export const statusText = (status: ClusterStatus, io: Pick<Io, 'isTerminal'>): string =>
  [
    headText(status),
    summaryText(status),
    policyTable(status, io),
    planTable(status, io),
    nodeTable(status, io),
  ].join('\n');

function headText({ problems, warnings }: ClusterStatus): string {
  const all = [...problems, ...warnings.map(warning => `warning: ${warning}`)];
  const counted =
    problems.length === 0 ? 'all is well' : `${problems.length} problem${problems.length === 1 ? '' : 's'}:`;
  const more = all.length > MAX_PROBLEMS ? [`  … and ${all.length - MAX_PROBLEMS} more (see -o json)`] : [];
  return lines(counted, ...all.slice(0, MAX_PROBLEMS).map(it => `  ${oneLine(it)}`), ...more);
}

function summaryText({ operator, calicoGroup, policies, totals }: ClusterStatus): string {
  const { leader, renewedSecondsAgo, fresh } = operator;
  const renewed = `renewed ${ago(renewedSecondsAgo)}${fresh ? '' : ', out of date'}`;
  return lines(
    `operator  ${leader === null ? 'none leads' : `${oneLine(leader)} leads (${renewed})`}`,
    `calico    ${calicoGroup ?? 'not served'}`,
    `policies  ${policies.length}`,
    `nodes     ${totals.ready} of ${totals.nodes} ready, ${totals.withTrouble} with trouble; ${totals.contended} contended, ${totals.overruled} overruled, ${totals.driftRepairs} drift repairs`,
  );
}

const policyTable = ({ policies }: ClusterStatus, io: Pick<Io, 'isTerminal'>): string =>
  policies.length === 0
    ? 'no policies\n'
    : table(
        [
          ['POLICY', 'PRIORITY', 'MODE', 'ACCEPTED', 'NODES', 'TROUBLE'],
          ...policies.map(it => [
            it.name,
            text(it.priority),
            it.mode,
            it.accepted,
            it.nodes,
            cell(it.trouble),
          ]),
        ],
        io,
      );

const planTable = ({ plans }: ClusterStatus, io: Pick<Io, 'isTerminal'>): string =>
  plans.length === 0
    ? 'no plans\n'
    : table(
        [
          ['PLAN', 'PARTS', 'HASH', 'PROGRAMMED', 'TROUBLE'],
          ...plans.map(it => [
            it.name,
            `${it.parts}/${it.of}`,
            it.contentHash.slice(0, 8),
            `${it.programmed}/${it.nodes}`,
            cell(it.trouble),
          ]),
        ],
        io,
      );

const NODE_HEAD = [
  'NODE',
  'READY',
  'BACKEND',
  'IPV4',
  'IPV6',
  'JUMP',
  'REPAIRS',
  'VERIFIED',
  'PLAN',
  'TROUBLE',
];

function nodeTable({ nodes, totals }: ClusterStatus, io: Pick<Io, 'isTerminal'>): string {
  if (nodes.length > 0) return table([NODE_HEAD, ...nodes.map(nodeCells)], io);
  return totals.nodes === 0 ? 'no nodes\n' : 'no node with a plan has trouble (--all-nodes lists all)\n';
}

const nodeCells = (row: NodeRow): readonly string[] => [
  row.name,
  row.ready,
  row.backend,
  row.ipv4.state,
  row.ipv6.state,
  jumpText(row.ipv4, row.ipv6),
  text(row.driftRepairs),
  ago(row.verifiedSecondsAgo),
  row.plan,
  cell(row.trouble),
];

/** IPv4/IPv6. */
const jumpText = (ipv4: FamilyCell, ipv6: FamilyCell): string =>
  `${text(ipv4.jumpPosition)}/${text(ipv6.jumpPosition)}`;

const text = (value: number | null): string => (value === null ? '-' : String(value));

function ago(seconds: number | null): string {
  if (seconds === null) return '-';
  if (seconds < 120) return `${seconds} s ago`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min ago`;
  return `${Math.floor(seconds / 3600)} h ago`;
}

/** Messages hold what tools printed; whatever it was, it shall not break the table or move the cursor. */
const oneLine = (message: string): string =>
  message.replaceAll(/[\s\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, ' ').trim();

const cell = (message: string): string => cut(oneLine(message), MAX_CELL);

const lines = (...all: readonly string[]): string => all.map(line => `${line}\n`).join('');
