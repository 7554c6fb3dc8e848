"""What the parts of a running broker hand out of their state, as frozen values.

Whoever looks on stands on these: nobody else above the server sees a stage, an object of the kernel
or a control record.
"""
