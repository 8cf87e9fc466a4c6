// The program's image as a folder: its settings, what its layer lists, and its tools to run.
import { mkdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { openTemporaryFolder } from '../cluster/temporary-folder.ts';
import { buildImages, run } from './images.ts';

export interface Entry {
  /** As ls prints it: drwxr-xr-x. */
  readonly mode: string;
  /** Without the leading slash. */
  readonly path: string;
}

export interface UnpackedImage {
  /** The folder that holds its files. */
  readonly root: string;
  /** A folder beside it, for whatever. */
  readonly folder: string;
  readonly bytes: number;
  readonly config: Readonly<Record<string, unknown>>;
  readonly entries: readonly Entry[];
  close(): Promise<void>;
}

interface Manifest {
  readonly Config: string;
  readonly Layers: readonly string[];
}

/** Builds the image where it is not in the cache, and unpacks it. Rejects when it has more than one layer. */
export async function unpackImage(signal: AbortSignal): Promise<UnpackedImage> {
  const { program: archive } = await buildImages(line => console.error(line), signal);
  const { path: folder, remove } = await openTemporaryFolder('natoutgoing-image-');
  const tar = (...args: readonly string[]): Promise<string> => run('tar', args, signal);
  try {
    await tar('-xf', archive, '-C', folder);
    const [manifest] = JSON.parse(await readFile(join(folder, 'manifest.json'), 'utf8')) as readonly [
      Manifest,
    ];
    const [layer = '', ...more] = manifest.Layers;
    if (more.length > 0)
      throw new Error(`the image has ${more.length + 1} layers: ${manifest.Layers.join(', ')}`);
    const { config } = JSON.parse(await readFile(join(folder, manifest.Config), 'utf8')) as {
      config: Readonly<Record<string, unknown>>;
    };
    const root = join(folder, 'root');
    await mkdir(root);
    await tar('-xf', join(folder, layer), '-C', root);
    const entries = (await tar('-tvf', join(folder, layer))).split('\n').flatMap(entryOf);
    return { root, folder, bytes: (await stat(archive)).size, config, entries, close: remove };
  } catch (error) {
    await remove();
    throw error;
  }
}

/** Of a line of `tar -tv`. */
function entryOf(line: string): readonly Entry[] {
  const [, mode = '', path = ''] = /^(\S{10}) .*? \d\d:\d\d (.*?)(?: -> .*| link to .*)?$/.exec(line) ?? [];
  return path === '' ? [] : [{ mode, path }];
}
