// Figures with their goals, printed as a table and kept as JSON.
import { mkdir, readFile, writeFile } from 'node:fs/promises';

export interface Figure {
  readonly what: string;
  readonly value: number;
  readonly unit: string;
  readonly atMost?: number;
}

/** Prints them and writes .cache/bench-NAME.json. A goal that is missed is printed as missed. */
export async function publish(name: string, figures: readonly Figure[]): Promise<void> {
  const lines = figures.map(({ what, value, unit, atMost }) => {
    const goal = atMost === undefined ? '' : `≤ ${atMost}`;
    const verdict = atMost === undefined ? '' : value <= atMost ? 'met' : 'MISSED';
    return [
      what.padEnd(64),
      `${value.toFixed(value < 10 ? 2 : 1)} ${unit}`.padEnd(16),
      goal.padEnd(10),
      verdict,
    ]
      .join(' ')
      .trimEnd();
  });
  console.log(`\n${name}\n${lines.join('\n')}\n`);
  await mkdir('.cache', { recursive: true });
  await writeFile(`.cache/bench-${name}.json`, `${JSON.stringify(figures, null, 2)}\n`);
}

/** Resident and anonymous memory of a process in MB (10^6), and the seconds of processor time that it used. */
export async function usageOf(
  pid: number,
): Promise<{ readonly rss: number; readonly anonymous: number; readonly cpu: number }> {
  const rollup = await readFile(`/proc/${pid}/smaps_rollup`, 'utf8');
  const kilobytes = (field: string): number =>
    Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(rollup)?.[1]);
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  // utime and stime, in hundredths of a second.
  const cpu = (Number(fields[11]) + Number(fields[12])) / 100;
  return { rss: (kilobytes('Rss') * 1024) / 1e6, anonymous: (kilobytes('Anonymous') * 1024) / 1e6, cpu };
}
