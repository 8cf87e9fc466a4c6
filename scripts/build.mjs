// Builds dist/: the command, and the benchmark unless only the program is asked for (--program).
import { rm } from 'node:fs/promises';
import { bundle } from './bundle.mjs';

await rm('dist', { recursive: true, force: true });
await bundle('src/main.ts', 'dist/natoutgoing.js');
if (!process.argv.includes('--program')) await bundle('test/bench/main.ts', 'dist/bench.js');
