// The writes: server-side apply under one field manager, and deletes of exactly the object that was meant. What the
// server says to a write is an outcome; that it says nothing is an ApiError.
import { type Api, type ApiAnswer, type ApiRequest, type RawObject } from './api.ts';
import { refusedAnswer } from './https.ts';
import { namedObject } from './list.ts';

export type Outcome =
  | { readonly result: 'done'; readonly object: RawObject }
  /** Somebody else wrote in between, or it is not the object that was meant. */
  | { readonly result: 'conflict' | 'notFound'; readonly message: string }
  /** The server will not have it: schema, size, admission, rights. */
  | { readonly result: 'refused'; readonly message: string };

export interface Applied {
  /** The collection's path. */
  readonly collection: string;
  readonly name: string;
  /** Only for status. */
  readonly subresource?: 'status';
  readonly fieldManager: string;
  /** With apiVersion, kind and metadata.name. */
  readonly body: object;
  /**
   * The version that is overwritten: any other is a conflict. Absent: whatever is there. An object that is gone is made
   * anew even so, since the server (1.36) looks at no version then; `uid` prevents that.
   */
  readonly lock?: string;
  /** Another object of that name, or none, is a conflict. Absent: whatever object has the name. */
  readonly uid?: string;
}

/** Applies the object whole: fields that were applied before and are not in it any more go. */
export async function applyObject(api: Api, applied: Applied, signal?: AbortSignal): Promise<Outcome> {
  const { collection, name, subresource, fieldManager, lock, uid } = applied;
  const query = `fieldManager=${encodeURIComponent(fieldManager)}&force=true&fieldValidation=Strict`;
  const below = subresource === undefined ? '' : `/${subresource}`;
  const body = applied.body as { readonly metadata?: object };
  const metadata = {
    ...body.metadata,
    ...(lock === undefined ? {} : { resourceVersion: lock }),
    ...(uid === undefined ? {} : { uid }),
  };
  const request: ApiRequest = {
    method: 'PATCH',
    path: `${collection}/${encodeURIComponent(name)}${below}?${query}`,
    body: { ...body, metadata },
    // JSON is YAML.
    contentType: 'application/apply-patch+yaml',
  };
  const answer = await api.request(request, signal);
  if (answer.status === 200 || answer.status === 201) {
    return { result: 'done', object: namedObject(request.path, answer.body) };
  }
  return outcomeOf(request, answer);
}

/** Deletes the object with that uid. One that is gone already is done. */
export async function deleteObject(
  api: Api,
  target: { readonly collection: string; readonly name: string; readonly uid: string },
  signal?: AbortSignal,
): Promise<Exclude<Outcome, { result: 'done' }> | { readonly result: 'done' }> {
  const request: ApiRequest = {
    method: 'DELETE',
    path: `${target.collection}/${encodeURIComponent(target.name)}`,
    body: { preconditions: { uid: target.uid }, propagationPolicy: 'Background' },
  };
  const answer = await api.request(request, signal);
  if (answer.status === 200 || answer.status === 202 || answer.status === 404) return { result: 'done' };
  return outcomeOf(request, answer);
}

/** Answers that another try at once will not change; the rest (429, 5xx, 401) are errors to back off from. */
const REFUSALS: readonly number[] = [400, 403, 405, 413, 415, 422];

/** How the server (1.36) says that it does not know a field of what is applied: with status 500. */
const UNKNOWN_FIELD = /field not declared in schema/;

function outcomeOf(request: ApiRequest, answer: ApiAnswer): Exclude<Outcome, { result: 'done' }> {
  const error = refusedAnswer(request, answer);
  const { message } = error;
  if (answer.status === 409 || isAnotherObject(answer)) return { result: 'conflict', message };
  if (answer.status === 404) return { result: 'notFound', message };
  if (REFUSALS.includes(answer.status) || UNKNOWN_FIELD.test(message)) return { result: 'refused', message };
  throw error;
}

/** How the server says that the object with that name has another uid: as if we wanted to change it. */
function isAnotherObject({ status, body }: ApiAnswer): boolean {
  const { details } = (body ?? {}) as { readonly details?: { readonly causes?: unknown } | null };
  const causes = Array.isArray(details?.causes) ? (details.causes as readonly unknown[]) : [];
  return (
    status === 422 && causes.some(cause => (cause as { field?: unknown } | null)?.field === 'metadata.uid')
  );
}
