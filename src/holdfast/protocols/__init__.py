"""What each protocol decides once per connection or subscription, as pure functions of values.

Never: a socket, a clock, a disk or randomness. Time, offsets and entropy are arguments, decisions
are values; whoever asks carries them out.
"""
