// When a changed status of a policy is written. What the author of the policy asked for is said at once, and so are the
// first few changes that other objects bring; nodes that report one after the other, or get addresses and annotations
// one after the other, are folded, so that thousands of them do not become thousands of writes.
import { isDeepStrictEqual } from 'node:util';
import { isObject, own } from '../api/fields.ts';

export interface StatusPace {
  /**
   * Milliseconds until `next` shall be written over `there`; 0: now; undefined: they say the same. To be asked in every
   * run, also when nothing is to be written: then a change that went away again is forgotten.
   */
  due(name: string, there: unknown, next: unknown, now: number): number | undefined;
  /** A write was made. */
  wrote(name: string, now: number): void;
  /** Forgets the policies that are not among these. */
  keep(names: ReadonlyMap<string, unknown>): void;
}

interface Account {
  tokens: number;
  filledAt: number;
  differsSince: number | undefined;
  /** What is to be written is about a change of the author's, whose nodes have not answered to it yet. */
  authors: boolean;
}

/** Writes of one policy that its author did not ask for: a few at once, then one every ten seconds. */
const BURST = 4;
const REFILL_MS = 10_000;
/** Nodes that are asked for something new answer within a moment; one write then tells of all of them. */
const SOON_MS = 300;
/** Nodes that were all right and follow a change that the policy has no part in, a pool's say. */
const LATER_MS = 5_000;

export function createStatusPace(): StatusPace {
  const accounts = new Map<string, Account>();
  const accountOf = (name: string, now: number): Account => {
    const account = accounts.get(name) ?? {
      tokens: BURST,
      filledAt: now,
      differsSince: undefined,
      authors: false,
    };
    accounts.set(name, account);
    const refills = Math.floor((now - account.filledAt) / REFILL_MS);
    account.tokens = Math.min(BURST, account.tokens + refills);
    account.filledAt += refills * REFILL_MS;
    return account;
  };
  return {
    due(name, there, next, now) {
      const account = accountOf(name, now);
      const plain: unknown = JSON.parse(JSON.stringify(next));
      if (isDeepStrictEqual(there, plain)) {
        account.differsSince = undefined;
        return undefined;
      }
      account.differsSince ??= now;
      account.authors = isAuthors(there, plain);
      if (account.authors) return 0;
      const empty = account.tokens > 0 ? 0 : Math.max(account.filledAt + REFILL_MS - now, 0);
      if (!isDeepStrictEqual(withoutNodes(there), withoutNodes(plain))) return empty;
      const patience = isProgrammed(there) ? LATER_MS : SOON_MS;
      return Math.max(account.differsSince + patience - now, empty);
    },
    wrote(name, now) {
      const account = accountOf(name, now);
      account.tokens = account.authors ? BURST : Math.max(0, account.tokens - 1);
      account.authors = false;
      account.differsSince = undefined;
    },
    keep(names) {
      for (const name of accounts.keys()) if (!names.has(name)) accounts.delete(name);
    },
  };
}

/** Whether the policy itself is new or was changed. */
const isAuthors = (there: unknown, next: unknown): boolean =>
  !isObject(there) || !isObject(next) || own(there, 'observedGeneration') !== own(next, 'observedGeneration');

/** The conditions that speak of nodes. */
const OF_NODES: readonly unknown[] = ['Programmed', 'Degraded'];

function withoutNodes(status: unknown): unknown {
  if (!isObject(status)) return undefined;
  const { nodes: _n, failedNodes: _f, ...rest } = status;
  const conditions = conditionsOf(status).filter(condition => !OF_NODES.includes(own(condition, 'type')));
  return { ...rest, conditions };
}

const conditionsOf = (
  status: Readonly<Record<string, unknown>>,
): readonly Readonly<Record<string, unknown>>[] => {
  const conditions = own(status, 'conditions');
  return Array.isArray(conditions) ? conditions.filter(isObject) : [];
};

const isProgrammed = (status: unknown): boolean =>
  isObject(status) &&
  conditionsOf(status).some(
    condition => own(condition, 'type') === 'Programmed' && own(condition, 'status') === 'True',
  );
