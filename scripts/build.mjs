// Bundles the command into dist/natoutgoing.js: one file that needs Node and nothing else.
import { chmod } from 'node:fs/promises';
import { build } from 'esbuild';

await build({
  entryPoints: ['src/main.ts'],
  outfile: 'dist/natoutgoing.js',
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
await chmod('dist/natoutgoing.js', 0o755);
