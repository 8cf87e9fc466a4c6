// All commands, in the order of --help.
import { applierCommand } from './applier.ts';
import { applyCommand } from './apply.ts';
import { checkCommand } from './check.ts';
import { cleanupCommand } from './cleanup.ts';
import { demoCommand } from './demo.ts';
import { diffCommand } from './diff.ts';
import { explainCommand } from './explain.ts';
import { migrateCommand } from './migrate.ts';
import { operatorCommand } from './operator.ts';
import { renderCommand } from './render.ts';
import { statusCommand } from './status.ts';
import type { MakeCommand } from './program.ts';

export const COMMANDS: readonly MakeCommand[] = [
  operatorCommand,
  applierCommand,
  applyCommand,
  diffCommand,
  renderCommand,
  checkCommand,
  explainCommand,
  statusCommand,
  migrateCommand,
  cleanupCommand,
  demoCommand,
];
