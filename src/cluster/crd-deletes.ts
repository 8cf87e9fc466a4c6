// When a CustomResourceDefinition is removed, the API server deletes all of its objects first, and whoever watches them
// sees nothing but deletes. Objects that go with their kind are not objects that somebody deleted.
import { type Api, type ApiAnswer, ApiError } from './api.ts';
import { refusedAnswer } from './https.ts';

/** Whether deletes that were just seen are what they seem, or the kind itself is going. */
export type ConfirmDeletes = (signal: AbortSignal) => Promise<'real' | 'vanishing'>;

export interface KindName {
  readonly group: string;
  readonly version: string;
  readonly plural: string;
}

/**
 * Asks for the kind's definition, past all caches. The server marks it before it deletes the first object, so the
 * answer is never too early. A kind without one may be served by another API server (Calico's own), whose APIService
 * names it. Rejects with ApiError when they cannot be asked.
 */
export function crdDeletes(api: Api, { group, version, plural }: KindName): ConfirmDeletes {
  const get = async (path: string, signal: AbortSignal): Promise<ApiAnswer> => {
    const request = { method: 'GET', path } as const;
    const answer = await api.request(request, signal);
    if (answer.status === 200 || answer.status === 404) return answer;
    throw refusedAnswer(request, answer);
  };
  const definition = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${plural}.${group}`;
  const service = `/apis/apiregistration.k8s.io/v1/apiservices/${version}.${group}`;
  return async signal => {
    const found = await get(definition, signal);
    if (found.status === 200) {
      return member(member(found.body, 'metadata'), 'deletionTimestamp') === undefined ? 'real' : 'vanishing';
    }
    const served = await get(service, signal);
    const elsewhere =
      served.status === 200 && (member(member(served.body, 'spec'), 'service') ?? null) !== null;
    return elsewhere ? 'real' : 'vanishing';
  };
}

function member(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null) throw new ApiError('the answer is no object');
  return (value as Readonly<Record<string, unknown>>)[name];
}
