// Which API server a command speaks to, and as whom.
import type { Endpoint } from '../cluster/endpoint.ts';
import { inClusterEndpoint } from '../cluster/in-cluster.ts';
import { systemClock } from '../kernel/clock.ts';
import type { Io } from './io.ts';
import type { ClusterOptions, PodOptions } from './options.ts';

/**
 * The pod's account for who names an API server or runs in a pod, unless a kubeconfig is asked for. A kubeconfig costs
 * the Kubernetes client's memory, so only who asks for one pays. Throws one sentence when there is neither.
 */
export async function endpointOf(options: PodOptions, io: Io): Promise<Endpoint> {
  const inPod = options.apiServer !== undefined || io.env['KUBERNETES_SERVICE_HOST'] !== undefined;
  const { kubeconfig, context, apiServer } = options;
  if (kubeconfig !== undefined || context !== undefined || !inPod) return kubeconfigOf(options);
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
