"""Whole brokers side by side: the same load on each, interleaved, in one run on one machine.

`python -m bench.macro` measures, writes `bench/results/<date>-<commit>.json` and renders it;
`python -m bench.macro --render` renders the newest result again. It measures and does not judge:
it ends with 0 whether or not a target is met.

Owns: the list of rows, the brokers' processes, the results and the page made from them.
Never: a message; those are `bench/load`'s.

Invariants:
1. A broker process serves one measurement, from an empty data directory.
2. What is compared was measured in the same run; ratios are taken within one repetition.
3. A figure that is not in the result's file is not in the page.

Flow: rows -> (for each repetition, row and broker: brokers, measurement) -> results -> table,
picture, page.
"""
