import { isMap, isPair, parseDocument } from 'yaml';

/** Maps that people fill as they want; what stands in them is shown as one value. */
const FREE = /\.(resources|nodeSelector|affinity|podLabels|podAnnotations|labels)$/;

/** The page about the chart's values, by values.yaml and its comments. */
export function valuesPageOf(text) {
  const document = parseDocument(text);
  const rows = rowsOf(document.contents, '', '');
  return [
    '<!-- Made from charts/natoutgoing/values.yaml by scripts/generate.mjs; do not edit. -->',
    '# Values of the chart',
    'A misspelt key, a wrong kind and what Kubernetes or the programs would refuse are refused by Helm, with the path.',
    ['| value | default | |', '| --- | --- | --- |', ...rows].join('\n'),
  ]
    .join('\n\n')
    .concat('\n');
}

/** A row for each value; `above` is the comment of the map that begins here, which yaml gives to its first key. */
function rowsOf(map, path, above) {
  return map.items.flatMap(pair => {
    if (!isPair(pair)) return [];
    const inner = path === '' ? pair.key.value : `${path}.${pair.key.value}`;
    const comment = [pair === map.items[0] ? map.commentBefore : undefined, pair.key.commentBefore]
      .filter(it => it !== undefined && it !== above)
      .join(' ');
    if (isMap(pair.value) && pair.value.items.length > 0 && !FREE.test(inner)) {
      const own = rowOf(inner, '', comment);
      return [...(comment === '' ? [] : [own]), ...rowsOf(pair.value, inner, '')];
    }
    return [
      rowOf(inner, `\`${JSON.stringify(pair.value)}\``, [comment, pair.value?.comment ?? ''].join(' ')),
    ];
  });
}

const rowOf = (path, value, comment) =>
  `| \`${path}\` | ${value} | ${comment.replaceAll(/\s+/g, ' ').replaceAll('|', '\\|').trim()} |`;
