// The commands in the pages that show their output: they print just that.
import { readFileSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemExec } from '../../src/kernel/exec.ts';
import { commandBlocks } from '../documents.ts';
import { type BuiltCommand, buildForTest } from '../kernel/command.ts';

const PAGE = 'docs/first-policies.md';
const SHOWN = commandBlocks(PAGE).filter(({ output }) => output !== undefined);

describe('the commands of docs/first-policies.md', () => {
  let command: BuiltCommand;
  beforeAll(async () => {
    command = await buildForTest();
  });
  afterAll(() => command.close());

  it('are there', () => {
    expect(SHOWN.length).toBeGreaterThan(5);
  });

  it.each(SHOWN)('$script', { timeout: 30_000 }, async ({ script, output }) => {
    const program = `natoutgoing() { '${process.execPath}' '${command.path}' "$@"; }\n`;
    const { code, stdout, stderr } = await systemExec.run({
      tool: 'bash',
      args: ['-e'],
      stdin: `${program}${script}`,
      timeoutMs: 20_000,
    });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    if (process.env['UPDATE_GOLDEN'] === '1') {
      const page = readFileSync(PAGE, 'utf8');
      const old = `${script}\`\`\`\n\n\`\`\`text\n${output ?? ''}\`\`\``;
      writeFileSync(
        PAGE,
        page.replace(old, () => `${script}\`\`\`\n\n\`\`\`text\n${stdout}\`\`\``),
      );
      return;
    }
    expect(stdout).toBe(output);
  });
});
