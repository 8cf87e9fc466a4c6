import packageJson from '../../package.json' with { type: 'json' };

/** Put in place of this expression when the program is built (scripts/bundle.mjs); nothing where it runs from source. */
const commit = process.env['NATOUTGOING_COMMIT'] ?? '';

/** Of the package, and of the commit that it was built from, where that is known. */
export const VERSION: string = commit === '' ? packageJson.version : `${packageJson.version} (${commit})`;
