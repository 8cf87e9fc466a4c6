// Text of manifests → the objects in it, with the place of each. Nothing is judged here but syntax, and a fault in one
// document does not stop the others.
import { type Document, LineCounter, parseAllDocuments, type YAMLError } from 'yaml';
import { isObject, type JsonObject, own } from '../api/fields.ts';
import { quote } from '../api/report.ts';
import { messageOf } from '../kernel/errors.ts';
import { jsonFaultOffset } from './json-fault.ts';

/** Where an object stands: a file, a document in it (from 1) and, in a List, an item (from 0). */
export interface Place {
  readonly file: string;
  readonly document: number;
  readonly item?: number;
}

export interface Placed {
  readonly place: Place;
  /** An object of one kind, or something that is no object at all. */
  readonly value: unknown;
}

export interface Documents {
  readonly objects: readonly Placed[];
  /** Faults of syntax, a line each: file:line:column: reason. */
  readonly problems: readonly string[];
}

/** Aliases may multiply a document a hundredfold at most, so that a few kilobytes cannot fill the memory. */
const MAX_ALIASES = 100;

/** Faults of syntax that are told of a document: the first is the cause, and the rest mostly follow from it. */
const MAX_ERRORS = 3;

/**
 * The objects of one text: JSON when it starts like JSON and is JSON, else YAML 1.2 with any number of documents.
 * `file` is only for messages, except that one ending in .json is never taken for YAML. JSON.parse is a hundred times
 * as fast as the YAML parser, which long GlobalNetworkSets need.
 */
export function documentsOf(file: string, text: string): Documents {
  const content = text.startsWith('\ufeff') ? text.slice(1) : text;
  const json = file.endsWith('.json');
  if (json || /^\s*[{[]/.test(content)) {
    const parsed = parseJson(file, content);
    if (json || parsed.problems.length === 0) return parsed;
  }
  return parseYaml(file, content);
}

/** One line, whatever the reason holds. */
export const problemLine = (
  file: string,
  reason: string,
  position?: { readonly line: number; readonly col: number },
): string =>
  `${file}${position === undefined ? '' : `:${position.line}:${position.col}`}: ${reason.replaceAll(/\s+/g, ' ')}`;

function parseJson(file: string, text: string): Documents {
  try {
    return { objects: unlisted({ file, document: 1 }, JSON.parse(text)), problems: [] };
  } catch (error) {
    const offset = jsonFaultOffset(text);
    const before = text.slice(0, offset).split('\n');
    const column = (before[before.length - 1] as string).length + 1;
    const what =
      offset === text.length
        ? 'it ends too soon'
        : `${quote(text.slice(offset, offset + 20))} must not stand here`;
    const reason =
      error instanceof SyntaxError ? `not JSON: ${what}` : `not readable as JSON: ${String(error)}`;
    return { objects: [], problems: [problemLine(file, reason, { line: before.length, col: column })] };
  }
}

function parseYaml(file: string, text: string): Documents {
  const objects: Placed[] = [];
  const problems: string[] = [];
  const lineCounter = new LineCounter();
  const at = (reason: string, offset?: number): void => {
    problems.push(problemLine(file, reason, offset === undefined ? undefined : lineCounter.linePos(offset)));
  };
  try {
    const documents = parseAllDocuments(text, {
      version: '1.2',
      schema: 'core',
      merge: true,
      prettyErrors: false,
      lineCounter,
    });
    for (const [index, document] of (Array.isArray(documents) ? documents : []).entries()) {
      // An unknown tag is a warning to the library; the value would not be what its author meant.
      const errors: readonly YAMLError[] = [...document.errors, ...document.warnings];
      for (const error of errors.slice(0, MAX_ERRORS)) at(`not YAML: ${error.message}`, error.pos[0]);
      if (errors.length === 0) objects.push(...valueOf(document, { file, document: index + 1 }, at));
    }
  } catch (error) {
    // Nesting beyond the stack ends the parser; there is no place to name.
    at(`not readable as YAML: ${messageOf(error)}`);
  }
  return { objects, problems };
}

function valueOf(
  document: Document.Parsed,
  place: Place,
  at: (reason: string, offset?: number) => void,
): readonly Placed[] {
  try {
    const value: unknown = document.toJS({ maxAliasCount: MAX_ALIASES });
    // A document of comments only.
    return value === null || value === undefined ? [] : unlisted(place, value);
  } catch (error) {
    at(`not readable as YAML: ${messageOf(error)}`, document.range[0]);
    return [];
  }
}

/**
 * The objects themselves, out of any List around them. Items of a typed list, an IPPoolList say, may lack apiVersion
 * and kind, which the list's own tell.
 */
function unlisted(place: Place, value: unknown): readonly Placed[] {
  if (!isObject(value)) return [{ place, value }];
  const kind = own(value, 'kind');
  const items = own(value, 'items');
  if (typeof kind !== 'string' || !kind.endsWith('List') || !Array.isArray(items)) return [{ place, value }];
  const inherited: JsonObject =
    kind === 'List' ? {} : { apiVersion: own(value, 'apiVersion'), kind: kind.slice(0, -'List'.length) };
  return items.map((item: unknown, index) => ({
    place: { ...place, item: index },
    value: isObject(item) ? { ...inherited, ...item } : item,
  }));
}
