import { expect, test } from 'vitest';
import { commandOf, likeIt, questionFrom, questionOf } from './question.ts';

const ask = (text: string) => questionFrom(new URLSearchParams(text));

test('questions as they stand in the address', () => {
  expect(ask('')).toEqual({ add: { count: 20, cpu: '4', memory: '16Gi' } });
  expect(ask('count=3&cpu=500m&memory=1Gi&gpus=2&tolerate=gpu, spot')).toEqual({ add: { count: 3, cpu: '500m', memory: '1Gi', gpu: 2, tolerate: ['gpu', 'spot'] } });
  expect(ask('ask=fail&what=host&name=web-1')).toEqual({ fail: ['host/web-1'] });
  expect(ask('ask=bounds&pool=gpu&min=1&max=4')).toEqual({ set: ['gpu.min=1', 'gpu.max=4'] });
  expect(ask('ask=fewer&cluster=550e8400')).toEqual({ cluster_id: '550e8400', consolidate: true });
  expect(ask('ask=now')).toEqual({});
});

test('a suggested change can be tried when it is about the size of a pool', () => {
  const query = questionOf({ object: 'nodepools/gpu', patch: { spec: { autoscaling: { maxNodes: 3 } } } });
  expect(ask(query ?? '')).toEqual({ set: ['gpu.max=3'] });
  expect(questionOf({ object: 'nodepools/gpu', patch: { spec: { labels: { a: 'b' } } } })).toBeUndefined();
  expect(questionOf({ object: 'deployments/default/web', patch: { spec: {} } })).toBeUndefined();
});

test('a change of pods can be looked at as pods of that shape', () => {
  const tolerates = { object: 'pods/default/export-31', helps: 1, patch: { spec: { containers: [{ name: 'main', resources: { requests: { cpu: '64000m', memory: '524288Mi' } } }], tolerations: [{ key: 'nvidia.com/gpu', operator: 'Exists', effect: 'NoSchedule' }] } } };
  expect(ask(likeIt(tolerates, { cpu: '96 cpu', memory: '768 GiB' }) ?? '')).toEqual({ add: { count: 1, cpu: '64', memory: '512Gi', tolerate: ['nvidia.com/gpu'] } });
  const moves = { object: 'pods/default/ci-1', helps: 6, patch: { spec: { nodeSelector: { nodepool: 'batch', zone: null } } } };
  expect(ask(likeIt(moves, { cpu: '4 cpu', memory: '8 GiB', 'nvidia.com/gpu': '2' }, 'c1') ?? '')).toEqual({ cluster_id: 'c1', add: { count: 6, cpu: '4', memory: '8Gi', gpu: 2, selector: ['nodepool=batch'] } });
  expect(commandOf(ask(likeIt(moves, { cpu: '500m', memory: '8 GiB' }) ?? ''), 'http://127.0.0.1:8080')).toBe('muster simulate --live --add 6 --cpu 0.5 --memory 8Gi --selector nodepool=batch');
  expect(likeIt({ object: 'nodepools/ci', helps: 1, patch: {} }, {})).toBeUndefined();
});

test('the same question on the command line', () => {
  const says = (text: string, server = 'http://127.0.0.1:8080', cluster?: string) => commandOf(ask(text), server, cluster);
  expect(says('count=40&cpu=4&memory=16Gi&gpus=1&tolerate=nvidia.com/gpu')).toBe('muster simulate --live --add 40 --cpu 4 --memory 16Gi --gpu 1 --tolerate nvidia.com/gpu');
  expect(says('ask=fail&what=rack&name=rack-a', 'http://127.0.0.1:9000')).toBe('muster simulate --live --fail rack/rack-a --server http://127.0.0.1:9000');
  expect(says('ask=bounds&pool=gpu&min=0&max=4', undefined, 'lab')).toBe('muster simulate --live --set gpu.min=0 --set gpu.max=4 --cluster lab');
  expect(says('ask=fewer')).toBe('muster simulate --live --consolidate');
  expect(says('ask=now')).toBe('muster simulate --live');
  expect(says("ask=fail&what=host&name=a b'; rm")).toBe("muster simulate --live --fail 'host/a b'\\''; rm'");
});
