// Real Kubernetes components for tests: found on this machine, or built once from the Go modules in components/.
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { access, mkdir, readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Exec } from '../../src/kernel/exec.ts';

interface GoModule {
  /** Folder below components/ with go.mod and go.sum. */
  readonly folder: string;
  /** The module whose version in go.mod is the component's version. */
  readonly path: string;
  /** Values that the linker sets: variable → value, from that version (v1.36.3). */
  readonly linkerValues: (version: string) => Readonly<Record<string, string>>;
  /** Build tags, with commas. */
  readonly tags?: string;
}

// Without a version of its own the API server takes itself for v0.0.0, and with it the CEL library and the feature
// gates that it offers.
const kubernetes = (folder: string): GoModule => ({
  folder,
  path: 'k8s.io/kubernetes',
  linkerValues: version => {
    const [major = '', minor = ''] = version.slice(1).split('.');
    return {
      'k8s.io/component-base/version.gitVersion': version,
      'k8s.io/component-base/version.gitMajor': major,
      'k8s.io/component-base/version.gitMinor': minor,
    };
  },
});
const KUBERNETES = kubernetes('kubernetes');

// Its go.mod names the etcd that Kubernetes' build/dependencies.yaml names for this version.
const ETCD: GoModule = { folder: 'etcd', path: 'go.etcd.io/etcd/server/v3', linkerValues: () => ({}) };

const HELM: GoModule = {
  folder: 'helm',
  path: 'helm.sh/helm/v4',
  linkerValues: version => ({ 'helm.sh/helm/v4/internal/version.version': version }),
};

const CONTAINERD: GoModule = {
  folder: 'containerd',
  path: 'github.com/containerd/containerd/v2',
  linkerValues: version => ({ 'github.com/containerd/containerd/v2/version.Version': version }),
  // Snapshotters that need libraries of C.
  tags: 'no_btrfs,no_devmapper,no_zfs',
};

// A further component of Kubernetes is one line here and a `tool` line in components/kubernetes/go.mod.
const COMPONENTS = {
  containerd: { module: CONTAINERD, package: 'github.com/containerd/containerd/v2/cmd/containerd' },
  'containerd-shim-runc-v2': {
    module: CONTAINERD,
    package: 'github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2',
  },
  ctr: { module: CONTAINERD, package: 'github.com/containerd/containerd/v2/cmd/ctr' },
  etcd: { module: ETCD, package: 'go.etcd.io/etcd/server/v3' },
  helm: { module: HELM, package: 'helm.sh/helm/v4/cmd/helm' },
  'kube-apiserver': { module: KUBERNETES, package: 'k8s.io/kubernetes/cmd/kube-apiserver' },
  'kube-apiserver-1.33': {
    module: kubernetes('kubernetes-1.33'),
    package: 'k8s.io/kubernetes/cmd/kube-apiserver',
  },
  'kube-controller-manager': {
    module: KUBERNETES,
    package: 'k8s.io/kubernetes/cmd/kube-controller-manager',
  },
  'kube-proxy': { module: KUBERNETES, package: 'k8s.io/kubernetes/cmd/kube-proxy' },
  'kube-scheduler': { module: KUBERNETES, package: 'k8s.io/kubernetes/cmd/kube-scheduler' },
  kubectl: { module: KUBERNETES, package: 'k8s.io/kubernetes/cmd/kubectl' },
  kubelet: { module: KUBERNETES, package: 'k8s.io/kubernetes/cmd/kubelet' },
} as const satisfies Record<string, { readonly module: GoModule; readonly package: string }>;

export type ComponentName = keyof typeof COMPONENTS;

export interface ComponentTools {
  readonly exec: Exec;
  /** KUBEBUILDER_ASSETS, PATH, XDG_CACHE_HOME are read. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** One line of progress. */
  readonly log: (line: string) => void;
}

/** Three minutes on two idle cores for the API server with an empty Go cache; a busy machine is given much more. */
const BUILD_LIMIT_MS = 30 * 60_000;

// Two test runs must not build at once, and a run that is killed must leave neither a lock nor a torn file: the
// kernel drops flock's lock with its holder, and the finished file is renamed into place while the lock is held.
// $1 the file, $2 the module's folder, $3 the package, $4 -ldflags, $5 -tags.
const BUILD_SCRIPT = `
[ -x "$1" ] && exit 0
CGO_ENABLED=0 GOWORK=off setpriv --pdeathsig KILL \\
  go -C "$2" build -mod=readonly -buildvcs=false -trimpath -ldflags "$4" -tags "$5" -o "$1.partial" "$3" &&
mv "$1.partial" "$1"`;

/**
 * The path of a component's program: from the folder KUBEBUILDER_ASSETS, else from PATH, else built into
 * XDG_CACHE_HOME (~/.cache) under natoutgoing/components, where a later call finds it. Rejects with what to do when
 * it is nowhere and cannot be built: a test that lacks a component fails.
 */
export async function component(
  name: ComponentName,
  tools: ComponentTools,
  signal?: AbortSignal,
): Promise<string> {
  const { env } = tools;
  const folders = [env['KUBEBUILDER_ASSETS'] ?? '', ...(env['PATH'] ?? '').split(delimiter)];
  return (await findProgram(name, folders)) ?? (await build(name, tools, signal));
}

async function findProgram(name: string, folders: readonly string[]): Promise<string | undefined> {
  for (const folder of folders.filter(folder => folder !== '')) {
    const path = join(folder, name);
    if (await isExecutable(path)) return path;
  }
  return undefined;
}

const isExecutable = (path: string): Promise<boolean> =>
  access(path, constants.X_OK).then(
    () => true,
    () => false,
  );

/** Where what is built for tests is kept. */
export const cacheFolder = (env: ComponentTools['env']): string =>
  join(env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'natoutgoing');

async function build(name: ComponentName, tools: ComponentTools, signal?: AbortSignal): Promise<string> {
  const { module, package: goPackage } = COMPONENTS[name];
  const source = fileURLToPath(new URL(`components/${module.folder}`, import.meta.url));
  const [goMod, goSum] = await Promise.all(
    ['go.mod', 'go.sum'].map(file => readFile(join(source, file), 'utf8')),
  );
  const version = versionOf(module.path, goMod ?? '');
  const values = Object.entries(module.linkerValues(version)).map(([name, value]) => `-X ${name}=${value}`);
  const ldflags = ['-s', '-w', ...values].join(' ');
  const { tags = '' } = module;
  const key = createHash('sha256')
    .update(JSON.stringify([goMod, goSum, ldflags, tags, BUILD_SCRIPT]))
    .digest('hex');
  const folder = join(
    cacheFolder(tools.env),
    'components',
    `${module.folder}-${version}-${key.slice(0, 12)}`,
  );
  const path = join(folder, name);
  if (await isExecutable(path)) return path;

  await requireBuildTools(name, tools.env['PATH'] ?? '');
  await mkdir(folder, { recursive: true });
  tools.log(`building ${name} ${version} into ${folder} (minutes at first; another run may be at it)`);
  const start = performance.now();
  const args = ['--pdeathsig', 'KILL', 'flock', '--no-fork', join(folder, 'lock'), 'sh', '-c', BUILD_SCRIPT];
  const result = await tools.exec.run(
    {
      tool: 'setpriv',
      args: [...args, 'sh', path, source, goPackage, ldflags, tags],
      timeoutMs: BUILD_LIMIT_MS,
    },
    signal,
  );
  signal?.throwIfAborted();
  if (result.code !== 0) {
    const why = result.timedOut ? `not done after ${BUILD_LIMIT_MS / 60_000} minutes` : result.stderr.trim();
    throw new Error(`${name} ${version} could not be built: ${result.spawnError ?? why}`);
  }
  tools.log(`built ${name} ${version} in ${Math.round((performance.now() - start) / 1000)} s`);
  return path;
}

/** The version of a required module, v1.36.3 say, from the text of go.mod. */
function versionOf(path: string, goMod: string): string {
  const line = goMod.split('\n').find(line =>
    line
      .replace(/^require /, '')
      .trim()
      .startsWith(`${path} v`),
  );
  const version = line?.split(' ').find(word => /^v\d+\.\d+\.\d+/.test(word));
  if (version === undefined) throw new Error(`go.mod requires no version of ${path}`);
  return version;
}

async function requireBuildTools(name: string, path: string): Promise<void> {
  for (const tool of ['go', 'flock', 'setpriv']) {
    if ((await findProgram(tool, path.split(delimiter))) !== undefined) continue;
    throw new Error(
      `${name} is neither in KUBEBUILDER_ASSETS nor in PATH, and cannot be built because PATH has no ${tool}: ` +
        `install Go 1.26 and util-linux, or set KUBEBUILDER_ASSETS to a folder with ${name}`,
    );
  }
}
