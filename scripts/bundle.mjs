import { chmod } from 'node:fs/promises';
import { build } from 'esbuild';

/**
 * Bundles an entry point into one file that needs Node and nothing else.
 * @param {string} entry
 * @param {string} outfile
 */
export async function bundle(entry, outfile) {
  await build({
    entryPoints: [entry],
    outfile,
    bundle: true,
    platform: 'node',
    target: 'node20',
    format: 'esm',
    sourcemap: true,
    logLevel: 'warning',
    banner: {
      // CommonJS dependencies inside an ES module bundle still call require for Node's own modules.
      js: "#!/usr/bin/env node\nimport { createRequire as __createRequire } from 'node:module';\nconst require = __createRequire(import.meta.url);",
    },
  });
  await chmod(outfile, 0o755);
}
