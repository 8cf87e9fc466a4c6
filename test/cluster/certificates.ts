// The keys and certificates of one test's API server, made by openssl: Node signs but issues no certificates.
import { generateKeyPairSync } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Exec } from '../../src/kernel/exec.ts';

export interface ServerKeys {
  /** Paths of PEM files. */
  readonly caCert: string;
  readonly cert: string;
  readonly key: string;
  /** Private key by which the tokens of ServiceAccounts are signed. */
  readonly serviceAccountKey: string;
  /** The CA's certificate, PEM. */
  readonly ca: string;
}

const NEW_EC_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

/**
 * Makes a CA, a serving certificate for the addresses, and a key for ServiceAccount tokens in an existing folder.
 * They are valid for one day. Rejects with openssl's words.
 */
export async function makeServerKeys(
  folder: string,
  addresses: readonly string[],
  exec: Exec,
  signal?: AbortSignal,
): Promise<ServerKeys> {
  const [caCert, caKey, cert, key] = ['ca.crt', 'ca.key', 'server.crt', 'server.key'].map(name =>
    join(folder, name),
  ) as [string, string, string, string];
  const certificate = async (...args: string[]): Promise<void> => {
    const result = await exec.run(
      { tool: 'openssl', args: ['req', '-x509', '-days', '1', ...NEW_EC_KEY, ...args], timeoutMs: 30_000 },
      signal,
    );
    signal?.throwIfAborted();
    if (result.code !== 0)
      throw new Error(`openssl made no certificate: ${result.spawnError ?? result.stderr}`);
  };
  const names = ['DNS:localhost', 'DNS:kubernetes.default.svc', ...addresses.map(address => `IP:${address}`)];
  await certificate('-subj', '/CN=test-ca', '-keyout', caKey, '-out', caCert);
  await certificate(
    '-subj',
    '/CN=kube-apiserver',
    '-addext',
    `subjectAltName=${names.join(',')}`,
    '-addext',
    'basicConstraints=critical,CA:FALSE',
    '-CA',
    caCert,
    '-CAkey',
    caKey,
    '-keyout',
    key,
    '-out',
    cert,
  );
  const serviceAccountKey = join(folder, 'service-accounts.key');
  const { privateKey } = generateKeyPairSync('rsa', {
    modulusLength: 2048,
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
    publicKeyEncoding: { type: 'spki', format: 'pem' },
  });
  await writeFile(serviceAccountKey, privateKey, { mode: 0o600 });
  return { caCert, cert, key, serviceAccountKey, ca: await readFile(caCert, 'utf8') };
}
