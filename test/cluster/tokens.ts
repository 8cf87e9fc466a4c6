// Tokens of ServiceAccounts as the API server signs them, and such that end within a test: the API gives none for less
// than ten minutes.
import { createPrivateKey, randomUUID, sign } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { ApiServer } from './api-server.ts';
import { create, refusalOf } from './objects.ts';

/** What a token ends with: it is refused when that object is gone. */
export interface BoundTo {
  readonly kind: 'Node' | 'Pod';
  readonly name: string;
  readonly uid: string;
}

/** A token of a ServiceAccount, by TokenRequest. */
export async function requestToken(
  server: ApiServer,
  account: { readonly namespace: string; readonly name: string },
  options: { readonly boundTo?: BoundTo; readonly seconds?: number } = {},
): Promise<string> {
  const { boundTo, seconds = 3600 } = options;
  const boundObjectRef = boundTo === undefined ? {} : { boundObjectRef: { apiVersion: 'v1', ...boundTo } };
  const path = `/api/v1/namespaces/${account.namespace}/serviceaccounts/${account.name}/token`;
  const answer = await create(server.client, path, {
    spec: { expirationSeconds: seconds, ...boundObjectRef },
  });
  if (answer.status !== 201)
    throw new Error(`no token for ${account.name}: ${answer.status} ${refusalOf(answer).message}`);
  return (answer.body as { status: { token: string } }).status.token;
}

/** The API gives none for less. */
export const MIN_TOKEN_S = 600;

/** The server takes a token for so many seconds after its end: clocks differ. */
const LEEWAY_S = 60;

/**
 * The same token with another end: the server refuses it `seconds` from now, or up to ten seconds later when it was
 * used before, since it remembers for so long what it took.
 */
export async function shortened(server: ApiServer, token: string, seconds: number): Promise<string> {
  const [header = '', claims = ''] = token.split('.');
  const exp = Math.floor(Date.now() / 1000) + seconds - LEEWAY_S;
  const before = JSON.parse(Buffer.from(claims, 'base64url').toString()) as object;
  // It was valid for an hour up to then: one that ends before it begins is refused for that.
  const times = { exp, nbf: exp - 3600, iat: exp - 3600, jti: randomUUID() };
  const text = `${header}.${Buffer.from(JSON.stringify({ ...before, ...times })).toString('base64url')}`;
  const key = createPrivateKey(await readFile(server.serviceAccountKey, 'utf8'));
  return `${text}.${sign('sha256', Buffer.from(text), key).toString('base64url')}`;
}
