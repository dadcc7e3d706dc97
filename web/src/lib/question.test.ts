import { expect, test } from 'vitest';
import { questionFrom, questionOf } from './question.ts';

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
