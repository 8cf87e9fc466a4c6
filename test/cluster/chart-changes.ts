// Every value of the chart: another value for it, and where in which object that is seen.
import { expect } from 'vitest';

/** Object as Kind/name, path in it, and what stands there then. */
export type Place = readonly [object: string, path: string, is: unknown];

export interface Change {
  readonly to: unknown;
  readonly at: readonly Place[];
  /** Further values without which it does not show, as for --set-json. */
  readonly also?: readonly string[];
}

const OPERATOR = 'Deployment/natoutgoing-operator';
const APPLIER = 'DaemonSet/natoutgoing-applier';
const REMOVAL = 'Job/natoutgoing-removal';
const TEST = 'Pod/natoutgoing-test';
const NETWORK = 'NetworkPolicy/natoutgoing-operator';
/** The spec of a pod, in each object that makes some. */
const PODS = [
  [OPERATOR, 'spec.template.spec'],
  [APPLIER, 'spec.template.spec'],
  [REMOVAL, 'spec.template.spec'],
  [TEST, 'spec'],
] as const;
const ONE_CONTAINER = 'spec.template.spec.containers.0';

const having = (...items: readonly unknown[]): unknown => expect.arrayContaining([...items]) as unknown;
const including = (members: object): unknown => expect.objectContaining(members) as unknown;
const there: unknown = expect.anything();
const gone = undefined;

const inAllPods = (path: string, is: unknown): readonly Place[] =>
  PODS.map(([object, spec]) => [object, `${spec}.${path}`, is]);
/** In the pods that are not on every node. */
const besideAppliers = (path: string, is: unknown): readonly Place[] =>
  inAllPods(path, is).filter(([object]) => object !== APPLIER);
const argument = (object: string, text: string): readonly Place[] => [
  [object, `${ONE_CONTAINER}.args`, having(text)],
];
const inPod = (object: string, path: string, is: unknown): readonly Place[] => [
  [object, `spec.template.${path}`, is],
];

const SERVER = 'https://192.0.2.1:7443';
const RESOURCES = { requests: { cpu: '1' } };
const AFFINITY = { nodeAffinity: {} };
const TOLERATIONS = [{ key: 'dedicated', operator: 'Equal', value: 'net', effect: 'NoSchedule' }];
const PEERS = [{ podSelector: { matchLabels: { app: 'prometheus' } } }];

/** What operator and appliers have alike. */
const ofBoth = (value: 'operator' | 'applier', object: string): Readonly<Record<string, Change>> => ({
  [`${value}.resources`]: {
    to: RESOURCES,
    at: [[object, `${ONE_CONTAINER}.resources`, including({ requests: including({ cpu: '1' }) })]],
  },
  [`${value}.priorityClassName`]: { to: 'mine', at: inPod(object, 'spec.priorityClassName', 'mine') },
  [`${value}.nodeSelector`]: {
    to: { disk: 'ssd' },
    at: inPod(object, 'spec.nodeSelector', { 'kubernetes.io/os': 'linux', disk: 'ssd' }),
  },
  [`${value}.affinity`]: { to: AFFINITY, at: inPod(object, 'spec.affinity', AFFINITY) },
  [`${value}.podLabels`]: {
    to: { team: 'net' },
    at: inPod(object, 'metadata.labels', {
      'app.kubernetes.io/name': 'natoutgoing',
      'app.kubernetes.io/component': value,
      team: 'net',
    }),
  },
  [`${value}.podAnnotations`]: {
    to: { note: 'x' },
    at: inPod(object, 'metadata.annotations', { note: 'x' }),
  },
});

const IMAGE = `sha256:${'0'.repeat(64)}`;
const MONITOR = 'ServiceMonitor/natoutgoing-operator';
const POD_MONITOR = 'PodMonitor/natoutgoing-applier';
const RULE = 'PrometheusRule/natoutgoing';
const DASHBOARD = 'ConfigMap/natoutgoing-dashboard';
const monitored = ['monitoring.serviceMonitor.enabled=true'];
const allListen = ['applier.listenOn="all"'];
const podsMonitored = ['monitoring.podMonitor.enabled=true', ...allListen];
const labelled = (object: string): readonly Place[] => [
  [object, 'metadata.labels', including({ a: 'b', 'app.kubernetes.io/name': 'natoutgoing' })],
];

export const CHANGES: Readonly<Record<string, Change>> = {
  'image.repository': {
    to: 'registry.example:5000/net/natoutgoing',
    at: inAllPods('containers.0.image', 'registry.example:5000/net/natoutgoing:0.1.0'),
  },
  'image.tag': { to: 'v9', at: inAllPods('containers.0.image', 'natoutgoing:v9') },
  'image.digest': { to: IMAGE, at: inAllPods('containers.0.image', `natoutgoing@${IMAGE}`) },
  'image.pullPolicy': { to: 'Always', at: inAllPods('containers.0.imagePullPolicy', 'Always') },
  'image.pullSecrets': { to: ['pull'], at: inAllPods('imagePullSecrets', [{ name: 'pull' }]) },

  'operator.replicas': { to: 3, at: [[OPERATOR, 'spec.replicas', 3]] },
  'operator.leaseSeconds': { to: 30, at: argument(OPERATOR, '--lease-seconds=30') },
  'operator.logLevel': { to: 'debug', at: argument(OPERATOR, '--log-level=debug') },
  'operator.kubeMark': { to: '0x8000', at: argument(OPERATOR, '--kube-mark=0x8000') },
  'operator.tunnelInterfaces': { to: ['tunl0'], at: argument(OPERATOR, '--tunnel-interface=tunl0') },
  'operator.felixConfig': { to: false, at: argument(OPERATOR, '--no-felix-config') },
  'operator.calicoApiGroup': {
    to: 'projectcalico.org/v3',
    at: argument(OPERATOR, '--calico-api-group=projectcalico.org/v3'),
  },
  'operator.apiServer': {
    to: SERVER,
    at: [
      ...besideAppliers('containers.0.args', having(`--api-server=${SERVER}`)),
      [NETWORK, 'spec.egress', [{ ports: [443, 6443, 8443, 16_443, 7443].map(port => ({ port })) }]],
    ],
  },
  'operator.port': {
    to: 19_807,
    at: [
      ...argument(OPERATOR, '--health-address=:19807'),
      [OPERATOR, `${ONE_CONTAINER}.ports.0.containerPort`, 19_807],
    ],
  },
  'operator.podDisruptionBudget': { to: false, at: [['PodDisruptionBudget/natoutgoing-operator', '', gone]] },
  'operator.tolerations': { to: TOLERATIONS, at: besideAppliers('tolerations', having(...TOLERATIONS)) },
  ...ofBoth('operator', OPERATOR),

  'applier.backend': { to: 'legacy', at: argument(APPLIER, '--backend=legacy') },
  'applier.logLevel': { to: 'warn', at: argument(APPLIER, '--log-level=warn') },
  'applier.stateFolder': {
    to: '/srv/natoutgoing',
    at: inPod(
      APPLIER,
      'spec.volumes',
      having({
        name: 'state',
        hostPath: { path: '/srv/natoutgoing', type: 'DirectoryOrCreate' },
      }),
    ),
  },
  'applier.apiServer': { to: SERVER, at: argument(APPLIER, `--api-server=${SERVER}`) },
  'applier.port': {
    to: 19_808,
    at: [
      ...argument(APPLIER, '--health-address=127.0.0.1:19808'),
      [APPLIER, `${ONE_CONTAINER}.ports.0.containerPort`, 19_808],
    ],
  },
  'applier.listenOn': { to: 'all', at: argument(APPLIER, '--health-address=:9808') },
  'applier.maxUnavailable': { to: 1, at: [[APPLIER, 'spec.updateStrategy.rollingUpdate.maxUnavailable', 1]] },
  'applier.tolerations': { to: TOLERATIONS, at: inPod(APPLIER, 'spec.tolerations', TOLERATIONS) },
  ...ofBoth('applier', APPLIER),

  'crds.install': { to: false, at: [['CustomResourceDefinition/masqpolicies.natoutgoing.io', '', gone]] },
  'crds.keep': {
    to: false,
    at: [
      [
        'CustomResourceDefinition/masqpolicies.natoutgoing.io',
        'metadata',
        expect.not.objectContaining({ annotations: there }) as unknown,
      ],
    ],
  },
  'admissionPolicy.enabled': {
    to: false,
    at: [
      ['ValidatingAdmissionPolicy/natoutgoing-applier-own-node', '', gone],
      ['ValidatingAdmissionPolicyBinding/natoutgoing-applier-own-node', '', gone],
    ],
  },
  'networkPolicy.enabled': { to: false, at: [[NETWORK, '', gone]] },
  'networkPolicy.apiServerPorts': { to: [444], at: [[NETWORK, 'spec.egress', [{ ports: [{ port: 444 }] }]]] },
  'networkPolicy.metricsFrom': { to: PEERS, at: [[NETWORK, 'spec.ingress.0.from', PEERS]] },
  'removal.enabled': { to: false, at: [[REMOVAL, '', gone]] },
  'removal.timeLimitSeconds': {
    to: 30,
    at: [...argument(REMOVAL, '--time-limit=30s'), [REMOVAL, 'spec.activeDeadlineSeconds', 90]],
  },
  'removal.strict': {
    to: true,
    at: [[REMOVAL, `${ONE_CONTAINER}.args`, expect.not.arrayContaining(['--best-effort']) as unknown]],
  },

  'monitoring.serviceMonitor.enabled': {
    to: true,
    at: [
      [MONITOR, '', there],
      ['Service/natoutgoing-operator-metrics', 'spec.ports.0.port', 9807],
    ],
  },
  'monitoring.serviceMonitor.interval': {
    to: '10s',
    at: [[MONITOR, 'spec.endpoints.0.interval', '10s']],
    also: monitored,
  },
  'monitoring.serviceMonitor.labels': { to: { a: 'b' }, at: labelled(MONITOR), also: monitored },
  'monitoring.podMonitor.enabled': { to: true, at: [[POD_MONITOR, '', there]], also: allListen },
  'monitoring.podMonitor.interval': {
    to: '10s',
    at: [[POD_MONITOR, 'spec.podMetricsEndpoints.0.interval', '10s']],
    also: podsMonitored,
  },
  'monitoring.podMonitor.labels': { to: { a: 'b' }, at: labelled(POD_MONITOR), also: podsMonitored },
  'monitoring.prometheusRule.enabled': { to: true, at: [[RULE, 'spec.groups.0.name', 'natoutgoing']] },
  'monitoring.prometheusRule.labels': {
    to: { a: 'b' },
    at: labelled(RULE),
    also: ['monitoring.prometheusRule.enabled=true'],
  },
  'monitoring.dashboard.enabled': { to: true, at: [[DASHBOARD, 'metadata.labels.grafana_dashboard', '1']] },
  'monitoring.dashboard.labels': {
    to: { a: 'b' },
    at: labelled(DASHBOARD),
    also: ['monitoring.dashboard.enabled=true'],
  },
};
