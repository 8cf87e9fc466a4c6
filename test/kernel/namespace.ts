// A network and mount namespace of a test's own, and a way to run commands in it. The machine's own rules and sets are
// never touched; /run is private as well, since the xtables lock lies there.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type Exec, systemExec } from '../../src/kernel/exec.ts';

export interface Namespace {
  readonly exec: Exec;
  /** Runs a shell script inside and returns what it printed; throws when it fails. */
  sh(script: string): Promise<string>;
  close(): Promise<void>;
}

/** Opens a namespace. It needs root, and is gone when this process is: its keeper reads from a pipe of ours. */
export async function openNamespace(): Promise<Namespace> {
  const keeper = spawn('unshare', ['-nm', 'sh', '-c', 'mount -t tmpfs none /run && echo ready && exec cat'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const closed = once(keeper, 'close');
  const [first] = (await Promise.race([once(keeper.stdout, 'data'), closed])) as [Buffer | number];
  if (!Buffer.isBuffer(first) || !first.toString().startsWith('ready')) {
    throw new Error('a network namespace could not be made; these tests need root');
  }
  const exec: Exec = {
    run: async (command, signal) => {
      const args = ['-t', String(keeper.pid), '-n', '-m', '--', command.tool, ...command.args];
      const result = await systemExec.run({ ...command, tool: 'nsenter', args }, signal);
      const missing = result.code === 127 && result.stderr.startsWith('nsenter: failed to execute');
      return missing ? { ...result, code: null, spawnError: 'ENOENT' } : result;
    },
  };
  return {
    exec,
    async sh(script) {
      const result = await exec.run({ tool: 'sh', args: ['-e'], stdin: script, timeoutMs: 60_000 });
      if (result.code !== 0) throw new Error(`${script}\nended with ${result.code}: ${result.stderr}`);
      return result.stdout;
    },
    async close() {
      keeper.stdin.end();
      await closed;
    },
  };
}
