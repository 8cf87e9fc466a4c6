import { Command } from 'commander';
import { activePolicies } from '../planner/order.ts';
import { planCluster } from '../planner/plan-cluster.ts';
import { planNode } from '../planner/plan-snapshot.ts';
import type { Plan } from '../planner/plan.ts';
import type { Problem } from '../planner/problem.ts';
import { findEmpty, findShadowed, type Hider } from '../planner/shadow.ts';
import { EXIT, type ExitCode, type Io, json, table } from './io.ts';
import { anyRefused, complaints, problemLine, readObjects } from './load.ts';
import type { Manifests } from './manifests.ts';
import { type ObjectOptions, type OutputFormat, withObjects, withOutput } from './options.ts';

interface Options extends ObjectOptions {
  readonly output: OutputFormat;
}

export const checkCommand = (io: Io, exit: (code: ExitCode) => void): Command =>
  withOutput(withObjects(new Command('check')))
    .description('say of every object whether it is right, and of every rule whether it can ever decide')
    .addHelpText(
      'after',
      `
Examples:
  natoutgoing check -f pools.yaml -f policies/
  natoutgoing check --context production

Without -f the objects of the cluster are judged, and cluster stands for the file.
One line for each fault: file, object, field, reason. Warnings do not change the exit code.
Exit codes: 0 all right; 1 a fault; 2 wrong usage or error.`,
    )
    .action(async (options: Options) => {
      const manifests = await readObjects(options, io);
      const { problems, plans } = plansOf(manifests);
      const all = [...problems, ...plans.flatMap(ruleProblems).filter(firstOfItsText())];
      if (options.output === 'json') {
        io.out(json({ objects: manifests.verdicts, problems: all, files: manifests.problems }));
      } else {
        io.out(verdictTable(manifests, io));
        for (const line of complaints({ manifests, problems: [] })) io.out(`${line}\n`);
        for (const problem of all) io.out(`${problem.severity}: ${problemLine(problem)}\n`);
      }
      const faulty = anyRefused(manifests) || all.some(problem => problem.severity === 'error');
      exit(faulty ? EXIT.refused : EXIT.ok);
    });

/** The plans of all groups of nodes; without nodes, of one that only policies without nodeSelector select. */
function plansOf(manifests: Manifests): {
  readonly problems: readonly Problem[];
  readonly plans: readonly Plan[];
} {
  const { snapshot } = manifests;
  if (snapshot.nodes.length > 0) {
    const planned = planCluster(snapshot);
    return { problems: planned.problems, plans: planned.groups.map(group => group.plan) };
  }
  const everywhere = activePolicies(snapshot.policies).map(policy => {
    const { nodeSelector: _, ...spec } = policy.spec;
    return { ...policy, spec };
  });
  const selective = snapshot.policies.some(policy => policy.spec.nodeSelector !== undefined);
  const planned = planNode({ ...snapshot, policies: everywhere }, 'any');
  return {
    problems: planned.problems.filter(({ reason }) => reason !== 'NodeAddressMissing'),
    plans: selective ? [] : [planned.plan],
  };
}

function ruleProblems(plan: Plan): readonly Problem[] {
  const problem = (policy: string, rule: string, reason: string, message: string): Problem => ({
    severity: 'warning',
    kind: 'MasqPolicy',
    name: policy,
    field: `spec.rules[${rule}]`,
    reason,
    message,
  });
  return [
    ...findShadowed(plan).map(({ policy, rule, by }) =>
      problem(policy, rule, 'Shadowed', `can never decide: ${by.map(hiderText).join(', ')} is asked first`),
    ),
    ...findEmpty(plan).map(({ policy, rule }) =>
      problem(policy, rule, 'MatchesNothing', 'stands for no address now, so it can never decide'),
    ),
  ];
}

const hiderText = (hider: Hider): string =>
  'rule' in hider ? `${hider.policy}/${hider.rule}` : `${hider.policy} defaultAction`;

/** Groups share policies, and so what is to say about them. */
function firstOfItsText(): (problem: Problem) => boolean {
  const seen = new Set<string>();
  return problem => {
    const text = problemLine(problem);
    if (seen.has(text)) return false;
    seen.add(text);
    return true;
  };
}

const verdictTable = (manifests: Manifests, io: Io): string =>
  table(
    [
      ['FILE', 'KIND', 'NAME', 'VERDICT'],
      ...manifests.verdicts.map(verdict => [verdict.file, verdict.kind, verdict.name, verdict.verdict]),
    ],
    io,
  );
