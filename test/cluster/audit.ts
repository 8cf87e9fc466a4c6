// Who asked the API server for what, from its audit log.
import { readFile } from 'node:fs/promises';

export interface AuditEntry {
  readonly user: string;
  /** Id of the token: JTI=… */
  readonly credential: string;
  readonly verb: string;
  readonly group: string;
  readonly resource: string;
  readonly subresource: string;
  readonly name: string;
  readonly code: number;
  /** Milliseconds of the wall clock, when the request came. */
  readonly at: number;
}

export const AUDIT_POLICY = {
  apiVersion: 'audit.k8s.io/v1',
  kind: 'Policy',
  // A watch is told when it begins; that it ended says nothing more.
  omitStages: ['RequestReceived', 'Panic'],
  rules: [{ level: 'Metadata' }],
};

interface RawEntry {
  readonly auditID: string;
  readonly stage: string;
  readonly verb: string;
  readonly user: { readonly username: string; readonly extra?: Readonly<Record<string, readonly string[]>> };
  readonly objectRef?: {
    readonly apiGroup?: string;
    readonly resource?: string;
    readonly subresource?: string;
    readonly name?: string;
  };
  readonly responseStatus?: { readonly code?: number };
  readonly requestReceivedTimestamp: string;
}

/** All requests so far, each once, in the order of their coming. */
export async function readAudit(path: string): Promise<readonly AuditEntry[]> {
  const lines = (await readFile(path, 'utf8')).split('\n');
  const entries = new Map<string, AuditEntry>();
  for (const line of lines.filter(it => it.endsWith('}'))) {
    const { auditID, verb, user, objectRef, responseStatus, requestReceivedTimestamp } = JSON.parse(
      line,
    ) as RawEntry;
    entries.set(auditID, {
      user: user.username,
      credential: user.extra?.['authentication.kubernetes.io/credential-id']?.[0] ?? '',
      verb,
      group: objectRef?.apiGroup ?? '',
      resource: objectRef?.resource ?? '',
      subresource: objectRef?.subresource ?? '',
      name: objectRef?.name ?? '',
      code: responseStatus?.code ?? 0,
      at: Date.parse(requestReceivedTimestamp),
    });
  }
  return [...entries.values()].sort((a, b) => a.at - b.at);
}

/** The most requests that came within any span of so many milliseconds. */
export function mostWithin(entries: readonly AuditEntry[], spanMs: number): number {
  let most = 0;
  let first = 0;
  entries.forEach(({ at }, i) => {
    while (at - (entries[first]?.at ?? at) > spanMs) first += 1;
    most = Math.max(most, i - first + 1);
  });
  return most;
}
