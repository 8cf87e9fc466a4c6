// Builds dist/: the command, and the benchmark.
import { rm } from 'node:fs/promises';
import { bundle } from './bundle.mjs';

await rm('dist', { recursive: true, force: true });
await bundle('src/main.ts', 'dist/natoutgoing.js');
await bundle('test/bench/main.ts', 'dist/bench.js');
