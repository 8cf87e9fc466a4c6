// Which API server a command speaks to, and as whom.
import type { Endpoint } from '../cluster/endpoint.ts';
import { inClusterEndpoint } from '../cluster/in-cluster.ts';
import { systemClock } from '../kernel/clock.ts';
import type { Io } from './io.ts';
import type { ClusterOptions, PodOptions } from './options.ts';

/**
 * The kubeconfig that is asked for, also by KUBECONFIG where no API server is named; in a pod else the pod's account,
 * elsewhere ~/.kube/config. A kubeconfig costs the Kubernetes client's memory, so only who asks for one pays. Throws one
 * sentence when there is neither.
 */
export async function endpointOf(options: PodOptions, io: Io): Promise<Endpoint> {
  const { kubeconfig, context, apiServer } = options;
  const isAsked = kubeconfig !== undefined || context !== undefined;
  const isPod = io.env['KUBERNETES_SERVICE_HOST'] !== undefined && (io.env['KUBECONFIG'] ?? '') === '';
  if (isAsked || (apiServer === undefined && !isPod)) return kubeconfigOf(options);
  return inClusterEndpoint({
    folder: options.serviceAccount,
    env: io.env,
    now: () => systemClock.now(),
    ...(apiServer === undefined ? {} : { url: apiServer }),
  });
}

async function kubeconfigOf({ kubeconfig, context }: ClusterOptions): Promise<Endpoint> {
  const { kubeconfigEndpoint } = await import('../cluster/kubeconfig.ts');
  return kubeconfigEndpoint({ file: kubeconfig, context });
}
