// What a person should hear of: repairs, and others that insist on our place. Told when it happens, not while it lasts.
import type { RecordedEvent } from '../cluster/events.ts';
import { rivalText } from '../kernel/foreign/rivals.ts';
import type { KernelLog } from '../kernel/log.ts';
import { type DriverReport, repairsOf } from '../kernel/report.ts';
import type { Occasion } from './keeper.ts';
import type { RivalsByFamily } from './rival-watch.ts';

export interface IncidentParts {
  readonly log: KernelLog;
  readonly record: (event: RecordedEvent) => void;
  readonly regarding: () => RecordedEvent['regarding'];
}

export interface Incidents {
  saw(report: DriverReport, occasion: Occasion): void;
  sawRivals(rivals: RivalsByFamily): void;
}

export function createIncidents({ log, record, regarding }: IncidentParts): Incidents {
  let backend: string | undefined;
  let contenders = '';
  let rivals = '';
  let errors = '';
  const tell = (type: RecordedEvent['type'], reason: string, action: string, note: string): void => {
    log.warn({ reason, note }, 'incident');
    record({ type, regarding: regarding(), reason, action, note });
  };
  return {
    saw(report, occasion) {
      const families = Object.entries(report.families);
      const repairs = repairsOf(report);
      if (occasion === 'verify' && repairs.length > 0) {
        tell(
          'Warning',
          'DriftRepaired',
          'Verify',
          `others had changed what is ours; mended: ${repairs.join('; ')}`,
        );
      }
      const contendersNow = families
        .flatMap(([name, { contended }]) =>
          contended === undefined ? [] : [`${name}: ${contended.foreign}`],
        )
        .join('; ');
      if (contendersNow !== contenders && contendersNow !== '') {
        tell(
          'Warning',
          'PlaceContended',
          'Verify',
          `others insist on the first place in nat POSTROUTING: ${contendersNow}`,
        );
      } else if (contendersNow !== contenders) {
        tell('Normal', 'PlaceRegained', 'Verify', 'nobody insists on our place in nat POSTROUTING any more');
      }
      contenders = contendersNow;
      const errorsNow = families
        .flatMap(([name, { error }]) => (error === undefined ? [] : [`${name}: ${error.message}`]))
        .join('; ');
      if (errorsNow !== errors && errorsNow !== '') tell('Warning', 'ProgrammingFailed', 'Apply', errorsNow);
      errors = errorsNow;
      if (backend !== undefined && report.backend !== undefined && report.backend !== backend) {
        tell(
          'Normal',
          'BackendChanged',
          'Apply',
          `iptables backend ${report.backend} instead of ${backend}: ${report.why}`,
        );
      }
      backend = report.backend ?? backend;
    },
    sawRivals(byFamily) {
      const now = Object.entries(byFamily)
        .flatMap(([name, { rules }]) => rules.map(rule => `${name}: ${rivalText(rule)}`))
        .join('; ');
      if (now !== rivals && now !== '') {
        tell('Warning', 'Overruled', 'Verify', `rules of others are asked before ours: ${now}`);
      } else if (now !== rivals) {
        tell('Normal', 'NotOverruled', 'Verify', 'no rule of others is asked before ours any more');
      }
      rivals = now;
    },
  };
}
