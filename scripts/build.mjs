// Builds dist/: the command.
import { bundle } from './bundle.mjs';

await bundle('src/main.ts', 'dist/natoutgoing.js');
