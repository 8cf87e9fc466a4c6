import { chmod } from 'node:fs/promises';
import { basename, dirname, extname } from 'node:path';
import { build } from 'esbuild';

/**
 * Bundles an entry point so that it needs Node and nothing else. What it imports dynamically goes into chunks beside
 * it, so that a command pays only for what it uses.
 * @param {string} entry
 * @param {string} outfile
 */
export async function bundle(entry, outfile) {
  await build({
    entryPoints: [{ in: entry, out: basename(outfile, extname(outfile)) }],
    outExtension: { '.js': extname(outfile) },
    outdir: dirname(outfile),
    chunkNames: 'chunks/[name]-[hash]',
    bundle: true,
    splitting: true,
    platform: 'node',
    target: 'node20',
    format: 'esm',
    sourcemap: true,
    logLevel: 'warning',
    define: { 'process.env.NATOUTGOING_COMMIT': JSON.stringify(process.env.NATOUTGOING_COMMIT ?? '') },
    banner: {
      // CommonJS dependencies inside an ES module bundle still call require for Node's own modules.
      js: "#!/usr/bin/env node\nimport { createRequire as __createRequire } from 'node:module';\nconst require = __createRequire(import.meta.url);",
    },
  });
  await chmod(outfile, 0o755);
}
