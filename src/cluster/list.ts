// A collection listed whole, page by page.
import { type Api, ApiError, type RawObject, type Resource } from './api.ts';
import { refusedAnswer } from './https.ts';

export interface Listed {
  /** The version as of which the list is whole; a watch goes on from here. */
  readonly resourceVersion: string;
}

/** An answer that is not what an API server says. */
const garbage = (path: string, what: string): ApiError => new ApiError(`GET ${path}: the answer ${what}`);

/**
 * Lists it and hands on each object as it comes. Rejects with ApiError when a page is refused (410: the pages took
 * longer than the server remembers; start over), late, or not a list.
 */
export async function listAll(
  api: Api,
  resource: Resource,
  pageSize: number,
  onObject: (object: RawObject) => void,
  signal?: AbortSignal,
): Promise<Listed> {
  let token = '';
  for (;;) {
    const query = queryOf(resource, {
      limit: String(pageSize),
      ...(token === '' ? {} : { continue: token }),
    });
    const request = { method: 'GET', path: `${resource.path}${query}` } as const;
    const answer = await api.request(request, signal);
    if (answer.status !== 200) throw refusedAnswer(request, answer);
    const body = answer.body as {
      items?: unknown;
      metadata?: { resourceVersion?: unknown; continue?: unknown };
    } | null;
    const { items, metadata } = body ?? {};
    // Go's empty list may be null; without metadata it is none.
    const found = items === null && metadata !== undefined ? [] : items;
    if (!Array.isArray(found)) throw garbage(resource.path, 'is no list');
    for (const item of found as readonly unknown[]) onObject(namedObject(resource.path, item));
    token = typeof metadata?.continue === 'string' ? metadata.continue : '';
    if (token !== '') continue;
    const resourceVersion = metadata?.resourceVersion;
    if (typeof resourceVersion !== 'string' || resourceVersion === '')
      throw garbage(resource.path, 'has no resourceVersion');
    return { resourceVersion };
  }
}

/** The object, if it is one with a name; whoever reads it looks at the rest. */
export function namedObject(path: string, value: unknown): RawObject {
  const name = (value as { metadata?: { name?: unknown } } | null | undefined)?.metadata?.name;
  if (typeof name !== 'string' || name === '') throw garbage(path, 'holds an object without a name');
  return value as RawObject;
}

/** The query that selects the resource, with further parameters. */
export function queryOf(resource: Resource, more: Readonly<Record<string, string>>): string {
  const { labelSelector, fieldSelector } = resource;
  const query = new URLSearchParams({
    ...(labelSelector === undefined ? {} : { labelSelector }),
    ...(fieldSelector === undefined ? {} : { fieldSelector }),
    ...more,
  });
  return `?${query.toString()}`;
}
