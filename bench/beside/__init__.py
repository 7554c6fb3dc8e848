"""What everybody else notices while the broker is about something long.

`python -m bench.beside` plays the lines one after another, each on a log that was prepared for it,
and writes `bench/results/beside/<date>-<commit>.json`, which `bench.macro` puts into its page;
`--line b --line d` plays some of them, `--broker-from DIRECTORY` takes the broker of another work
tree, `--scale 10` ten times the numbers. It measures and does not judge: it ends with 0 whether or
not a step is reached.

Owns: the lines, the logs that they need (kept in `target/beside`, made anew with `--fresh`), the
prober and the figures.
Never: looks into the broker; it has the ports and the processor time, as anybody has.

Invariants:
1. The prober asks at fixed times, whatever comes back: a broker that stands still for a second is
   seen two hundred times and not once.
2. The prober is a process of its own and does nothing else.
3. What the disk alone shows is measured before each line and after it, with nobody else there; what
   the machine itself stood still, with all that ran on it, is noted meanwhile. That changes no
   step: it says what no broker could have done.

Flow: lines -> (prepared log -> stage: broker, prober, pairs -> moments) -> result -> page.
"""
